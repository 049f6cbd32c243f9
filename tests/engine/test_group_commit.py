"""Many requests, one store call; and every caller gets the answer that is its own."""

from __future__ import annotations

import asyncio

import pytest

from skep.config import EngineSettings, Limits
from skep.errors import Code, SkepError
from skep.model import Outcome, PushStatus, QueueKey, Renewal
from tests.engine.driver import ORDERS, EngineDriver, message, settlement, until

INVOICES = QueueKey("invoices")


async def test_concurrent_pushes_become_one_store_call(driver: EngineDriver) -> None:
    outcomes = await asyncio.gather(*(driver.push(str(number)) for number in range(100)))

    assert len(driver.store.calls["push"]) == 1
    assert [outcome.results[0].seq for outcome in outcomes] == list(range(1, 101))


async def test_what_arrives_during_a_call_goes_together_into_the_next(driver: EngineDriver) -> None:
    driver.store.hold("push")
    first = asyncio.ensure_future(driver.push("0"))
    await driver.store.held("push")
    others = [asyncio.ensure_future(driver.push(str(number))) for number in range(1, 50)]
    await asyncio.sleep(0)
    driver.store.let_go("push")
    outcomes = await asyncio.gather(first, *others)

    assert [len(call) for call in driver.store.calls["push"]] == [1, 49]
    assert [outcome.results[0].seq for outcome in outcomes] == list(range(1, 51))


async def test_a_pop_and_a_settlement_do_not_wait_for_a_push_that_commits(driver: EngineDriver) -> None:
    await driver.push("1")
    driver.store.hold("push")
    pushing = asyncio.ensure_future(driver.push("2"))
    await driver.store.held("push")

    deliveries = await driver.pop()
    await driver.ack(deliveries)

    assert not pushing.done()
    driver.store.let_go("push")
    await pushing


async def test_settlements_and_renewals_of_many_callers_are_merged_and_each_gets_its_own(driver: EngineDriver) -> None:
    for number in range(10):
        await driver.push(str(number), partition=f"p{number}")
    deliveries = await driver.pop(batch=10)
    renewals = [
        Renewal(queue=ORDERS, partition=delivery.partition, token=delivery.token, lease_seconds=10 + number)
        for number, delivery in enumerate(deliveries)
    ]
    renewed = await asyncio.gather(*(driver.engine.renew([renewal]) for renewal in renewals))
    outcomes = [Outcome.ACK, Outcome.REJECT] * 5
    settled = await asyncio.gather(
        *(
            driver.engine.settle([settlement(delivery, outcome)])
            for delivery, outcome in zip(deliveries, outcomes, strict=True)
        )
    )

    assert len(driver.store.calls["renew"]) == 1
    assert [result[0].deadline for result in renewed] == [
        driver.clock.now() + (10 + number) * 1_000_000 for number in range(10)
    ]
    assert len(driver.store.calls["settle"]) == 1
    assert [result[0].status for result in settled] == ["completed", "dead"] * 5


async def test_concurrent_pops_are_merged_and_get_different_messages(driver: EngineDriver) -> None:
    await driver.push(*(str(number) for number in range(6)), partition="a")
    await driver.push(*(str(number) for number in range(6)), partition="b")
    popped = await asyncio.gather(driver.pop(batch=6), driver.pop(batch=6))

    assert len(driver.store.calls["pop"]) == 1
    assert sorted({delivery.partition for delivery in deliveries}.pop() for deliveries in popped) == ["a", "b"]


async def test_a_push_over_several_queues_is_one_call_and_others_like_it_join(driver: EngineDriver) -> None:
    outcomes = await asyncio.gather(
        *(driver.engine.push([message("1", ORDERS), message("2", INVOICES)]) for _ in range(5))
    )

    assert len(driver.store.calls["push"]) == 1
    assert all(result.status is PushStatus.STORED for outcome in outcomes for result in outcome.results)


async def test_transactions_of_many_callers_are_one_call(driver: EngineDriver) -> None:
    for number in range(5):
        await driver.push(str(number), partition=f"p{number}")
    deliveries = await driver.pop(batch=5)
    outcomes = await asyncio.gather(
        *(driver.engine.transact([settlement(delivery)], [message("9", INVOICES)]) for delivery in deliveries)
    )

    assert len(driver.store.calls["transact"]) == 1
    assert all(outcome.committed for outcome in outcomes)


async def test_a_failed_store_call_fails_every_caller_in_it(driver: EngineDriver) -> None:
    driver.store.fail_next("push", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    outcomes = await asyncio.gather(*(driver.push(str(number)) for number in range(5)), return_exceptions=True)

    assert len(driver.store.calls["push"]) == 1, "an ambiguous commit is not tried again"
    errors = [outcome for outcome in outcomes if isinstance(outcome, SkepError)]
    assert [error.code for error in errors] == [Code.STORE_UNAVAILABLE] * 5
    assert len({id(error) for error in errors}) == 5


async def test_an_unexpected_error_is_told_to_everyone_and_nothing_is_tried_again(driver: EngineDriver) -> None:
    # It may come after the commit: a second try could store everything twice.
    driver.store.fail_next("push", RuntimeError("a bug"))
    calls = len(driver.store.calls["push"])
    outcomes = await asyncio.gather(*(driver.push(str(number)) for number in range(3)), return_exceptions=True)

    assert [error.code for error in outcomes if isinstance(error, SkepError)] == [Code.INTERNAL] * 3
    assert len(driver.store.calls["push"]) == calls + 1


async def test_a_caller_cancelled_before_its_turn_pushes_nothing(driver: EngineDriver) -> None:
    driver.store.hold("push")
    first = asyncio.ensure_future(driver.push("1"))
    await driver.store.held("push")
    second = asyncio.ensure_future(driver.push("2"))
    await asyncio.sleep(0)
    second.cancel()
    driver.store.let_go("push")
    await first
    await until(second.done)

    assert (await driver.engine.browse.queue_stats(ORDERS)).last_seq == 1


class TestBounds:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(limits=Limits(merged_messages=10, merged_bytes=100, waiting_requests=30))

    async def test_a_merged_call_takes_a_bounded_number_of_messages(self, driver: EngineDriver) -> None:
        await asyncio.gather(*(driver.push("1", "2", "3") for _ in range(7)))

        assert [len(call) for call in driver.store.calls["push"]] == [3, 3, 1]

    async def test_a_merged_call_takes_a_bounded_number_of_bytes(self, driver: EngineDriver) -> None:
        await asyncio.gather(*(driver.push('"' + 40 * "x" + '"') for _ in range(5)))

        assert [len(call) for call in driver.store.calls["push"]] == [2, 2, 1]

    async def test_one_request_may_be_larger_than_a_merged_call(self, driver: EngineDriver) -> None:
        outcome = await driver.push(*(str(number) for number in range(25)))

        assert len(outcome.results) == 25

    async def test_a_full_channel_refuses_and_says_try_again(self, driver: EngineDriver) -> None:
        outcomes = await asyncio.gather(*(driver.push("1") for _ in range(31)), return_exceptions=True)

        refused = [outcome for outcome in outcomes if isinstance(outcome, SkepError)]
        assert [(error.code, error.retryable) for error in refused] == [(Code.STORE_BUSY, True)]
