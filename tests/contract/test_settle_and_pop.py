"""Acks that claim what they free for those who wait: as settlements and then a pop, or as settlements alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from skep.model import WHOLE_LEASE, Delivery, Ordering, Outcome, PopRequest, PopResult, SettleResult, SettleStatus
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, payloads
from tests.support.reference_store import ReferenceStore


async def ack_and_pop(
    driver: Driver, held: Sequence[Delivery], *requests: PopRequest, **fields: Any
) -> tuple[list[SettleResult], list[PopResult | None]]:
    said = [driver.settlement(one, **({"outcome": Outcome.ACK} | fields)) for one in held]
    done = await driver.store.settle_and_pop(said, requests, driver.now)
    await driver.check_accounts()
    return done


def given(popped: Sequence[PopResult | None]) -> list[list[str] | None]:
    return [None if result is None else payloads(result.deliveries) for result in popped]


async def test_an_ack_gives_the_next_of_its_partition_to_who_waits_for_it(driver: Driver) -> None:
    await driver.create(lease_seconds=30)
    await driver.push("a", "b")
    held = await driver.pop(batch=1)
    request = driver.request()

    results, (result,) = await ack_and_pop(driver, held, request)

    assert [r.status for r in results] == [SettleStatus.COMPLETED]
    assert result is not None
    (delivery,) = result.deliveries
    assert (delivery.payload, delivery.seq, delivery.attempt, delivery.token) == (b"b", 2, 1, request.token)
    assert delivery.lease_deadline == driver.later(30)
    assert await driver.pop() == []
    assert [r.status for r in await driver.ack(delivery)] == [SettleStatus.COMPLETED]
    assert (await driver.stats()).pending == 0


@pytest.mark.parametrize("partition", ["p", "q"])
async def test_what_was_pushed_meanwhile_is_given_too(driver: Driver, partition: str) -> None:
    await driver.push("a", partition="p")
    held = await driver.pop()
    await driver.push("b", "c", partition=partition)

    _, popped = await ack_and_pop(driver, held, driver.request())

    assert given(popped) == [["b", "c"]]


async def test_what_was_left_and_what_was_pushed_meanwhile_are_given_together(driver: Driver) -> None:
    await driver.push("a", "b")
    held = await driver.pop(batch=1)
    await driver.push("c")

    _, popped = await ack_and_pop(driver, held, driver.request())

    assert given(popped) == [["b", "c"]]


async def test_of_several_who_wait_each_gets_its_share(driver: Driver) -> None:
    await driver.push("a", "c", partition="p")
    await driver.push("b", "d", partition="q")
    held = await driver.pop(batch=1) + await driver.pop(batch=1)

    _, popped = await ack_and_pop(driver, held, *(driver.request(batch=1) for _ in range(3)))

    assert given(popped) == [["c"], ["d"], []]


async def test_a_whole_lease_is_acked_for_who_waits(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    held = await driver.pop(batch=2)
    said = msgspec.structs.replace(driver.settlement(held[0], Outcome.ACK_THROUGH), seq=WHOLE_LEASE)

    (result,), popped = await driver.store.settle_and_pop([said], [driver.request()], driver.now)
    await driver.check_accounts()

    assert (result.status, result.messages) == (SettleStatus.COMPLETED, 2)
    assert given(popped) == [["c"]]


async def test_where_nothing_is_freed_nothing_is_given(driver: Driver) -> None:
    await driver.push("a", "b")
    held = await driver.pop()

    for one in held:
        _, popped = await ack_and_pop(driver, [one], driver.request())
        assert given(popped) == [[] if isinstance(driver.store, ReferenceStore) else None], "nobody looks in vain"
    await driver.push("c")
    assert payloads(await driver.pop()) == ["c"]


async def test_I6_a_stale_ack_frees_nothing(driver: Driver) -> None:
    await driver.push("a", "b")
    held = await driver.pop(batch=1)

    results, popped = await ack_and_pop(driver, held, driver.request(), token=driver.token())

    assert [r.status for r in results] == [SettleStatus.REFUSED]
    assert given(popped) in ([None], [[]])
    assert [r.status for r in await driver.ack(*held)] == [SettleStatus.COMPLETED]
    assert payloads(await driver.pop()) == ["b"]


async def test_I5_what_another_holds_stays_with_it(driver: Driver) -> None:
    await driver.push("a", partition="p")
    await driver.push("b", partition="q")
    mine, theirs = await driver.pop(batch=1), await driver.pop(batch=1)
    await driver.push("c", partition="p")
    await driver.push("d", partition="q")

    _, popped = await ack_and_pop(driver, mine, driver.request())

    (given_now,) = given(popped)
    assert (given_now or []) + payloads(await driver.pop()) == ["c"]
    assert [r.status for r in await driver.ack(*theirs)] == [SettleStatus.COMPLETED]
    assert payloads(await driver.pop()) == ["d"]


@pytest.mark.parametrize("outcome", [Outcome.NACK, Outcome.REJECT, Outcome.RELEASE])
async def test_other_outcomes_are_settled_all_the_same(driver: Driver, outcome: Outcome) -> None:
    await driver.create(max_attempts=3)
    await driver.push("a", "b")
    held = await driver.pop(batch=1)

    (settled,), _ = await ack_and_pop(driver, held, driver.request(), outcome=outcome)
    (again,) = await driver.settle(driver.settlement(held[0], outcome))

    assert settled.status is not SettleStatus.REFUSED
    assert again.repeated or again.status is SettleStatus.REFUSED


async def test_an_unordered_queue_frees_nothing_that_others_wait_for(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push("a")
    held = await driver.pop()
    await driver.push("b")

    _, (result,) = await ack_and_pop(driver, held, driver.request())

    assert (payloads(result.deliveries) if result else []) + payloads(await driver.pop()) == ["b"]


async def test_I14_who_waits_for_another_group_gets_nothing_of_this_one(driver: Driver) -> None:
    await driver.push("a", "b")
    held = await driver.pop(batch=1)

    _, popped = await ack_and_pop(driver, held, driver.request(group="other"))

    assert given(popped) in ([None], [["a", "b"]])
    assert payloads(await driver.pop()) == ["b"]


async def test_who_acks_by_popping_gets_it_settled_or_looks_by_itself(driver: Driver) -> None:
    await driver.push("a", "b")
    held = await driver.pop(batch=1)

    _, popped = await ack_and_pop(driver, held, driver.request(auto_ack=True))

    left = await driver.pop()
    assert (given(popped), payloads(left)) in (([None], ["b"]), ([["b"]], []))
    assert (await driver.stats()).in_flight == len(left)


async def test_what_is_known_of_a_dead_letter_comes_with_it(driver: Driver) -> None:
    await driver.create("q.dead")
    await driver.create(dead_letter_queue="q.dead")
    await driver.push("a", "b")
    for _ in range(2):
        await driver.reject(await driver.pop_one(), error="broken")
    held = await driver.pop("q.dead", batch=1)

    _, (result,) = await ack_and_pop(driver, held, driver.request("q.dead"))

    (letter,) = result.deliveries if result is not None and result.deliveries else await driver.pop("q.dead")
    assert letter.dead_letter is not None
    assert letter.dead_letter.error == "broken"
    assert result is None or not isinstance(driver.store, PostgresStore), "known of it is read after the commit"


@pytest.mark.parametrize("careful", ["stale", "twice"])
async def test_what_the_careful_way_decides_about_is_claimed_for_nobody(driver: Driver, careful: str) -> None:
    """It may fail, and then nobody would be told of what was claimed."""
    if not isinstance(driver.store, PostgresStore):
        pytest.skip("one transaction does both")
    await driver.push("a", "b", partition="p")
    await driver.push("c", "d", partition="q")
    first, second = await driver.pop_one(), await driver.pop_one()
    more = {
        "stale": [driver.settlement(second, token=driver.token())],
        "twice": [driver.settlement(second), driver.settlement(second, Outcome.ACK_THROUGH)],
    }

    results, popped = await driver.store.settle_and_pop(
        [driver.settlement(first), *more[careful]], [driver.request()], driver.now
    )

    assert results[0].status is SettleStatus.COMPLETED
    assert given(popped) == [None]
    assert payloads(await driver.pop())[0] == "b"


async def test_far_behind_its_log_an_ack_leaves_looking_to_who_waits(driver: Driver) -> None:
    await driver.push("a")
    held = await driver.pop()
    rest = [str(number) for number in range(201)]
    await driver.push(*rest)

    _, (result,) = await ack_and_pop(driver, held, driver.request())

    assert (payloads(result.deliveries) if result else []) + payloads(await driver.pop()) == rest
    assert result is None or not isinstance(driver.store, PostgresStore), "the ack would take long"
