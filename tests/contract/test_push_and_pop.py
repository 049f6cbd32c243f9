"""A push that claims what it brings for those who wait: as a push and then a pop, or as a push alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from skep.clock import Instant, seconds
from skep.model import Ordering, PopRequest, PopResult, PushBatch, PushOutcome, PushStatus, Seq
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, payloads
from tests.support.reference_store import ReferenceStore


async def push_and_pop(
    driver: Driver, batch: PushBatch, *requests: PopRequest
) -> tuple[PushOutcome, list[PopResult | None]]:
    (outcome,), popped = await driver.store.push_and_pop([batch], requests, driver.now)
    await driver.check_accounts()
    return outcome, popped


def given(popped: Sequence[PopResult | None]) -> list[list[str] | None]:
    return [None if result is None else payloads(result.deliveries) for result in popped]


async def test_a_push_gives_its_message_to_who_waits_for_it(driver: Driver) -> None:
    await driver.create(lease_seconds=30)
    await driver.pop()
    request = driver.request()

    outcome, (result,) = await push_and_pop(driver, driver.batch(driver.message("a")), request)

    assert [(r.status, r.seq) for r in outcome.results] == [(PushStatus.STORED, 1)]
    assert result is not None
    (delivery,) = result.deliveries
    assert (delivery.payload, delivery.seq, delivery.attempt, delivery.token) == (b"a", 1, 1, request.token)
    assert (delivery.lease_deadline, delivery.id) == (driver.later(30), outcome.results[0].id)
    assert await driver.pop() == []
    assert [r.status for r in await driver.ack(delivery)] == ["completed"]


async def test_what_is_given_as_it_comes_has_its_time_in_the_log_and_is_due_when_its_lease_ends(driver: Driver) -> None:
    if isinstance(driver.store, ReferenceStore):
        pytest.skip("it gives what is in the log already")
    await driver.create(lease_seconds=30)
    first = driver.now
    await driver.push("a")
    await driver.ack(await driver.pop_one())
    earlier = Instant(first - 500_000)
    batch = driver.batch(driver.message("b", partition="other"))

    _, (result,) = await driver.store.push_and_pop([batch], [driver.request()], earlier)

    assert result is not None
    assert [(one.payload, one.created_at) for one in result.deliveries] == [(b"b", first)]
    assert result.next_ready_at == earlier + seconds(30)


async def test_of_several_who_wait_each_gets_its_share(driver: Driver) -> None:
    await driver.pop_after_creating()
    requests = [driver.request(batch=1), driver.request(batch=1), driver.request(batch=1)]

    _, popped = await push_and_pop(
        driver, driver.batch(driver.message("a", partition="a"), driver.message("b", partition="b")), *requests
    )

    assert given(popped) == [["a"], ["b"], []]


async def test_I4_I5_what_is_pushed_to_a_leased_partition_waits_for_its_lease(driver: Driver) -> None:
    await driver.push("a")
    (held,) = await driver.pop()

    outcome, popped = await push_and_pop(driver, driver.batch(driver.message("b")), driver.request())
    assert [r.seq for r in outcome.results] == [2]
    assert given(popped) in ([[]], [None])
    assert await driver.pop() == []

    (settled,) = await driver.ack(held)
    assert settled.frees
    assert payloads(await driver.pop()) == ["b"]


async def test_I4_what_was_there_before_comes_first(driver: Driver) -> None:
    await driver.pop_after_creating()
    await driver.push("a", partition="p")
    await driver.push("b", partition="q")

    _, popped = await push_and_pop(driver, driver.batch(driver.message("c", partition="p")), driver.request(batch=3))
    rest = await driver.pop()

    first = [] if popped[0] is None else popped[0].deliveries
    together = payloads([*first, *rest])
    assert sorted(together) == ["a", "b", "c"]
    assert together.index("a") < together.index("c")


async def test_what_is_ready_comes_before_what_is_pushed(driver: Driver) -> None:
    await driver.push("a", partition="p")
    await driver.push("b", partition="q")
    assert payloads(await driver.pop(batch=1)) == ["a"]

    _, popped = await push_and_pop(driver, driver.batch(driver.message("c", partition="r")), driver.request(batch=1))

    assert given(popped) in ([["b"]], [None])
    assert sorted([*(given(popped)[0] or []), *payloads(await driver.pop(batch=2))]) == ["b", "c"]


@pytest.mark.parametrize(
    "settings", [{"delayed_processing_seconds": 5}, {"window_buffer_seconds": 5}, {"paused": True}], ids=str
)
async def test_who_waits_for_a_queue_that_holds_back_gets_nothing_early(
    driver: Driver, settings: dict[str, Any]
) -> None:
    await driver.create(**settings)
    await driver.pop()

    _, popped = await push_and_pop(driver, driver.batch(driver.message("a")), driver.request())

    assert given(popped) in ([[]], [None])


async def test_what_was_given_with_its_push_comes_again_once_its_lease_ran_out(driver: Driver) -> None:
    await driver.create(lease_seconds=30)
    await driver.pop()
    _, popped = await push_and_pop(driver, driver.batch(driver.message("a", priority=3)), driver.request())
    first = [] if popped[0] is None else popped[0].deliveries or await driver.pop()
    await driver.push("b")

    driver.clock.advance(31)
    [again] = await driver.pop()
    await driver.ack(again)

    [one] = first
    assert (one.payload, one.attempt, again.payload, again.attempt, again.priority) == (b"a", 1, b"a", 2, 3)
    assert payloads(await driver.pop()) == ["b"]


async def test_a_partition_asked_for_is_the_only_one_that_is_given(driver: Driver) -> None:
    await driver.pop_after_creating()

    _, popped = await push_and_pop(
        driver,
        driver.batch(driver.message("a", partition="mine"), driver.message("b", partition="theirs")),
        driver.request(partition="mine"),
    )

    assert given(popped) == [["a"]]


async def test_one_message_of_another_partition_is_not_given(driver: Driver) -> None:
    await driver.pop_after_creating()

    _, popped = await push_and_pop(
        driver, driver.batch(driver.message("a", partition="theirs")), driver.request(partition="mine")
    )

    assert given(popped) in ([[]], [None])
    assert payloads(await driver.pop(partition="theirs")) == ["a"]


async def test_a_group_that_is_given_something_is_in_use(driver: Driver) -> None:
    await driver.create(lease_seconds=30)
    await driver.pop(group="g")
    driver.clock.advance(120)

    _, [result] = await push_and_pop(driver, driver.batch(driver.message("a")), driver.request(group="g"))

    if result is not None:
        assert payloads(result.deliveries) == ["a"]
        assert (await driver.stats(group="g")).active_at == driver.now


async def test_nobody_is_given_anything_for_an_external_group(driver: Driver) -> None:
    await driver.push("a")
    await driver.store.report_progress(driver.key(), "g", Seq(1), driver.now)

    _, popped = await push_and_pop(driver, driver.batch(driver.message("b")), driver.request(group="g"))

    assert given(popped) in ([[]], [None])


async def test_I14_who_waits_for_another_group_has_his_own(driver: Driver) -> None:
    await driver.pop_after_creating()
    await driver.pop(group="other")

    _, popped = await push_and_pop(
        driver, driver.batch(driver.message("a")), driver.request(), driver.request(group="other")
    )

    for group, found in zip(("__QUEUE_MODE__", "other"), given(popped), strict=True):
        left = payloads(await driver.pop(group=group))
        assert (found or []) + left == ["a"], "given once, with the push or afterwards"


@pytest.mark.parametrize(
    "fields",
    [{"transaction_id": "t"}, {"deliver_at": 5}, {"queue": "new"}],
    ids=["transaction id", "scheduled", "to a queue that is new"],
)
async def test_a_push_that_needs_a_closer_look_is_stored_all_the_same(driver: Driver, fields: dict[str, Any]) -> None:
    await driver.pop_after_creating()
    if "deliver_at" in fields:
        fields = {"deliver_at": driver.later(5)}

    outcome, popped = await push_and_pop(driver, driver.batch(driver.message("a", **fields)), driver.request())

    assert [r.status for r in outcome.results] == ["scheduled" if "deliver_at" in fields else "stored"]
    driver.clock.advance(5)
    await driver.store.promote(driver.key(), driver.now, 100)
    queue = fields.get("queue", "q")
    assert (given(popped)[0] or []) + payloads(await driver.pop(queue)) == ["a"]


async def test_a_refused_push_gives_nobody_anything(driver: Driver) -> None:
    await driver.create(max_depth=1)
    await driver.pop()

    outcome, popped = await push_and_pop(
        driver, driver.batch(driver.message("a"), driver.message("b")), driver.request()
    )

    assert {r.status for r in outcome.results} == {PushStatus.REFUSED}
    assert given(popped) in ([[]], [None])
    assert await driver.pop() == []


async def test_a_duplicate_gives_nobody_anything(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=60)
    await driver.push("a", transaction_id="t")
    await driver.ack(*await driver.pop())

    outcome, popped = await push_and_pop(
        driver, driver.batch(driver.message("a", transaction_id="t")), driver.request()
    )

    assert [r.status for r in outcome.results] == [PushStatus.DUPLICATE]
    assert given(popped) in ([[]], [None])


@pytest.mark.parametrize("how", ["unordered", "paused", "auto_ack", "dead letters"])
async def test_a_queue_that_is_not_plain_gives_its_messages_once(driver: Driver, how: str) -> None:
    await driver.create(ordering=Ordering.UNORDERED if how == "unordered" else Ordering.PER_KEY)
    if how == "dead letters":
        await driver.create("source", dead_letter_queue="q", max_attempts=1)
        await driver.push("dead", queue="source")
        await driver.nack(*await driver.pop("source"))
    else:
        await driver.pop()
    if how == "paused":
        await driver.update(paused=True)
    request = driver.request(auto_ack=how == "auto_ack")

    _, popped = await push_and_pop(driver, driver.batch(driver.message("a", partition="p")), request)

    if how == "paused":
        assert given(popped) in ([[]], [None])
        await driver.update(paused=False)
    left = payloads(await driver.pop())
    assert sorted((given(popped)[0] or []) + left) == (["a", "dead"] if how == "dead letters" else ["a"])


async def test_a_plain_push_to_a_quiet_queue_is_claimed_in_its_own_transaction(driver: Driver) -> None:
    """Not as a push alone: that every store may do it by halves would make this file hold nothing."""
    await driver.pop_after_creating()

    _, popped = await push_and_pop(driver, driver.batch(driver.message("a")), driver.request())

    assert given(popped) == [["a"]]


async def test_in_postgresql_a_lease_is_known_to_hold_the_partition(driver: Driver) -> None:
    await driver.push("a")
    (held,) = await driver.pop()

    _, popped = await push_and_pop(driver, driver.batch(driver.message("b")), driver.request())

    assert given(popped) == [[]], "nobody need look"
    driver.clock.advance(10_000)
    if isinstance(driver.store, PostgresStore):
        _, popped = await push_and_pop(driver, driver.batch(driver.message("c")), driver.request())
        assert given(popped) == [None], "it ran out: somebody must look"
    assert [r.code for r in await driver.ack(held)] == [None]


async def test_an_ack_frees_only_what_others_can_have(driver: Driver) -> None:
    if isinstance(driver.store, ReferenceStore):
        pytest.skip("that nothing is freed is for a store to say that knows it")
    await driver.push("a", "b", partition="p")
    await driver.push("c", partition="q")
    deliveries = await driver.pop(batch=3)
    first, second, third = sorted(deliveries, key=lambda d: d.seq)
    assert [r.frees for r in await driver.ack(first)] == [False], "the lease still holds its partition"
    await driver.push("d", partition="q")
    assert await driver.pop() == []
    assert [r.frees for r in await driver.ack(third)] == [True]
    assert [r.frees for r in await driver.ack(second)] == [False]
