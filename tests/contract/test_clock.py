"""A clock that was ahead, or behind, and is put right: nothing waits for the wrong time, and nothing is kept for it."""

from __future__ import annotations

import msgspec
import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.errors import Code
from skep.ids import IdMint
from skep.model import NO_DEAD_LETTER_QUEUE, Ordering, PushStatus, Retry, Tried
from skep.model.key import SessionRecord
from skep.model.record import Report
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops

HOUR, DAY, YEARS = 3_600, 86_400, 10 * 365 * 86_400
AHEAD = pytest.mark.parametrize("ahead", [HOUR, DAY, YEARS])
ORDERINGS = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
LIMIT = 1_000


async def set_clock(driver: Driver, at: int) -> None:
    """Start anew with another clock, and let the store note its time."""
    driver.clock = ManualClock(at)
    driver.mint = IdMint(driver.clock)
    await put_right(driver)


async def put_right(driver: Driver) -> None:
    while (await driver.store.put_right(driver.now, LIMIT)).more:
        pass


async def prove(driver: Driver) -> None:
    """Let the clock go on for so long that it is believed."""
    driver.clock.advance(600)
    await put_right(driver)


async def stamps(driver: Driver) -> list[Instant]:
    return [message.created_at for message in (await driver.browse(limit=1_000)).messages]


@AHEAD
@ORDERINGS
async def test_what_is_pushed_after_the_clock_was_put_back_is_delivered_at_once(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering)
    right = driver.now
    driver.clock.advance(ahead)
    await driver.push("early", partition="a")
    await driver.ack(*await driver.pop())

    driver.clock = ManualClock(right)
    await driver.push("b1", "b2", partition="b")
    await driver.push("a1", partition="a")
    found = await driver.pop()

    assert sorted(payloads(found)) == ["a1", "b1", "b2"]
    await driver.ack(*found)
    await driver.push("b3", partition="b")
    assert payloads(await driver.pop(batch=1)) == ["b3"]


@AHEAD
@ORDERINGS
async def test_what_was_left_by_the_clock_that_was_ahead_is_delivered_in_order(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("1", "2")
    (first,) = await driver.pop(batch=1)
    await driver.push("3")

    await set_clock(driver, right)
    await driver.push("4")
    await driver.ack(first)
    seen = []
    while found := await driver.pop(batch=1):
        seen += payloads(found)
        await driver.ack(*found)

    assert seen == ["2", "3", "4"]


@AHEAD
@ORDERINGS
async def test_created_at_never_falls_along_the_log(driver: Driver, ordering: Ordering, ahead: int) -> None:
    await driver.create(ordering=ordering)
    right = driver.now
    await driver.push("1")
    await set_clock(driver, right + seconds(ahead))
    await driver.push("2")
    await set_clock(driver, right + seconds(1))
    await driver.push("3")
    assert await stamps(driver) == sorted(await stamps(driver))

    await prove(driver)
    await driver.push("4")

    found = await stamps(driver)
    assert found == sorted(found)
    assert found[0] == right  # what was right is left alone
    assert found[1] <= driver.now
    assert found[3] == driver.now


@AHEAD
@ORDERINGS
async def test_I9_a_lease_of_the_clock_that_was_ahead_lasts_as_long_as_it_was_asked_for(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a", "b", partition="x")
    await driver.push("c", partition="y")
    await driver.pop(lease_seconds=30)

    await set_clock(driver, right)
    driver.clock.advance(29)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert {delivery.attempt for delivery in await driver.pop()} == {2}


@AHEAD
@ORDERINGS
async def test_a_lease_that_was_renewed_ahead_of_time_lasts_no_longer_than_the_renewal(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering)
    right = driver.now
    await put_right(driver)
    await driver.push("a")
    held = await driver.pop_one(lease_seconds=10)
    await set_clock(driver, right + seconds(ahead))
    await driver.renew(held, lease_seconds=40)

    await set_clock(driver, right)
    driver.clock.advance(39)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["a"]


@AHEAD
@ORDERINGS
async def test_a_retry_comes_when_it_was_asked_for(driver: Driver, ordering: Ordering, ahead: int) -> None:
    await driver.create(ordering=ordering, initial_backoff_ms=20_000, max_backoff_ms=20_000)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a")
    await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF)

    await set_clock(driver, right)
    driver.clock.advance(19)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["a"]


@AHEAD
@ORDERINGS
async def test_a_delay_counts_from_when_the_message_is_found(driver: Driver, ordering: Ordering, ahead: int) -> None:
    await driver.create(ordering=ordering, delayed_processing_seconds=60)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a", partition="x")
    await set_clock(driver, right)
    await driver.push("b", partition="y")

    assert await driver.pop() == []
    driver.clock.advance(59)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert sorted(payloads(await driver.pop())) == ["a", "b"]


@AHEAD
async def test_a_window_buffer_opens_although_the_log_ends_ahead(driver: Driver, ahead: int) -> None:
    await driver.create(window_buffer_seconds=5)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a")
    await set_clock(driver, right)
    await driver.push("b")

    assert await driver.pop() == []
    driver.clock.advance(5)
    assert payloads(await driver.pop()) == ["a", "b"]


@AHEAD
async def test_claims_and_backoffs_of_operations_do_not_wait_for_the_wrong_time(ops: Ops, ahead: int) -> None:
    driver = ops.driver
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await ops.push("a", partition="x")
    _, claimed = await ops.claim()
    deadline = claimed[0].timeout_seconds

    await set_clock(driver, right)
    driver.clock.advance(deadline)
    token, claimed = await ops.claim()
    await ops.perform(token, claimed)

    assert payloads(await driver.pop()) == ["a"]


@AHEAD
@ORDERINGS
async def test_retention_goes_on(driver: Driver, ordering: Ordering, ahead: int) -> None:
    await driver.create(ordering=ordering, retention_seconds=DAY)
    right = driver.now
    await driver.push("before")
    await set_clock(driver, right + seconds(ahead))
    await driver.push("ahead")
    await set_clock(driver, right)
    await prove(driver)
    await driver.push("after")
    await driver.ack(*await driver.pop())

    driver.clock.advance(DAY + 1)
    await driver.retain()

    assert await stamps(driver) == []


@AHEAD
async def test_retention_of_what_is_completed_goes_on(driver: Driver, ahead: int) -> None:
    await driver.create(completed_retention_seconds=HOUR)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("ahead")
    await driver.ack(*await driver.pop())
    await driver.retain()

    await set_clock(driver, right)
    await prove(driver)
    await driver.retain()
    driver.clock.advance(HOUR)
    await driver.retain()

    assert await stamps(driver) == []


@AHEAD
@ORDERINGS
async def test_messages_expire_at_their_age(driver: Driver, ordering: Ordering, ahead: int) -> None:
    await driver.create(ordering=ordering, max_age_seconds=2 * HOUR, dead_letter_queue=NO_DEAD_LETTER_QUEUE)
    right = driver.now
    await driver.pop()  # there is a group that they expire for
    await set_clock(driver, right + seconds(ahead))
    await driver.push("ahead")
    await set_clock(driver, right)
    await prove(driver)
    await driver.push("after")

    driver.clock.advance(2 * HOUR - 1)
    await driver.expire()
    assert (await driver.stats()).expired == 0
    driver.clock.advance(1)
    await driver.expire()
    assert (await driver.stats()).expired == 2


@AHEAD
async def test_I3_a_deduplication_key_ends_with_its_window(driver: Driver, ahead: int) -> None:
    await driver.create(dedup_window_seconds=HOUR)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a", transaction_id="t")
    await set_clock(driver, right)
    await prove(driver)

    driver.clock.advance(HOUR - 1)
    assert [result.status for result in await driver.push("a", transaction_id="t")] == [PushStatus.DUPLICATE]
    driver.clock.advance(1)
    assert [result.status for result in await driver.push("a", transaction_id="t")] == [PushStatus.STORED]


@AHEAD
async def test_the_lease_history_is_swept_although_its_first_row_is_from_ahead(driver: Driver, ahead: int) -> None:
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("ahead")
    await driver.ack(*await driver.pop())
    await set_clock(driver, right)
    await driver.push("after")
    await driver.ack(*await driver.pop())
    await prove(driver)

    history = [lease for _, lease in await driver.store.lease_history(driver.key(), 0, 100, None)]
    assert len(history) == 2
    assert all(lease.settled_at <= driver.now for lease in history)


@AHEAD
async def test_I13_a_push_that_was_stored_ahead_of_time_is_not_stored_again(driver: Driver, ahead: int) -> None:
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("0")
    await set_clock(driver, right)
    batch = driver.batch(driver.message("1"))
    await driver.store.push([batch], driver.now)  # its answer is lost

    again = msgspec.structs.replace(batch, tried=Tried(driver.now, driver.now, driver.store.session))
    await driver.store.push([again], driver.now)
    await prove(driver)
    await driver.store.push([again], driver.now)

    assert len(await stamps(driver)) == 2


@AHEAD
async def test_a_clock_that_is_not_proven_puts_no_stamp_right(driver: Driver, ahead: int) -> None:
    """A machine that starts with a clock that is behind, and is set some minutes later, finds everything as it was."""
    right = driver.now
    await put_right(driver)
    await driver.create(max_age_seconds=2 * HOUR)
    await driver.push("1", transaction_id="t")

    await set_clock(driver, right - seconds(ahead))
    assert payloads(await driver.pop(lease_seconds=1)) == ["1"]
    driver.clock.advance(599)
    await put_right(driver)
    await driver.push("2")

    await set_clock(driver, right + seconds(60))
    await driver.expire()
    assert await stamps(driver) == [right, right]
    assert [result.status for result in await driver.push("1", transaction_id="t")] == [PushStatus.DUPLICATE]
    assert payloads(await driver.pop()) == ["1"]


@AHEAD
@ORDERINGS
async def test_a_clock_that_was_behind_and_is_put_right_delivers_on(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    right = driver.now
    await set_clock(driver, right - seconds(ahead))
    await driver.create(ordering=ordering)
    await driver.push("1")
    await driver.pop(lease_seconds=60)

    await set_clock(driver, right)
    await driver.push("2", partition="other")
    assert sorted((d.payload, d.attempt) for d in await driver.pop(batch=1) + await driver.pop(batch=1)) == [
        (b"1", 2),
        (b"2", 1),
    ]


@AHEAD
async def test_a_session_from_ahead_lasts_no_longer_than_any(driver: Driver, ahead: int) -> None:
    right = driver.now
    id_ = driver.mint.mint().hex()
    await set_clock(driver, right + seconds(ahead))
    session = SessionRecord(id_, f"key:{id_}", driver.now, driver.now, driver.later(HOUR), b"{}")
    await driver.store.access.put_session(session)

    await set_clock(driver, right)
    found = await driver.store.access.get_session(id_)

    assert found is not None
    assert (found.created_at, found.used_at, found.expires_at) == (right, right, driver.later(HOUR))


@AHEAD
async def test_an_endpoint_rests_no_longer_than_it_was_to(driver: Driver, ahead: int) -> None:
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.store.records.report_endpoint(
        driver.tenant, "http://a.example/", Report.FAILED, driver.now, threshold=1, open_seconds=30
    )

    await set_clock(driver, right)
    (endpoint,) = await driver.store.records.endpoints(driver.tenant)

    assert endpoint.open_until == driver.later(30)


@AHEAD
@ORDERINGS
async def test_I9_a_lease_taken_since_the_clock_was_put_back_is_not_cut_short(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    driver.clock = ManualClock(right)  # the store has not noticed yet
    await driver.push("a")
    await driver.pop_one(lease_seconds=30)

    driver.clock.advance(5)
    await put_right(driver)

    driver.clock.advance(24)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert [delivery.attempt for delivery in await driver.pop()] == [2]


@pytest.mark.parametrize("ahead", [120, HOUR, YEARS])
@ORDERINGS
async def test_I9_a_lease_renewed_since_the_clock_was_put_back_is_not_cut_short(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering, lease_seconds=30)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a")
    held = await driver.pop_one(lease_seconds=30)
    driver.clock = ManualClock(right)
    await driver.renew(held, lease_seconds=200)

    driver.clock.advance(5)
    await put_right(driver)

    driver.clock.advance(194)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["a"]


@pytest.mark.parametrize("ahead", [HOUR, YEARS])
@ORDERINGS
async def test_I9_a_lease_that_was_renewed_again_and_again_ahead_of_time_is_soon_over(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering, lease_seconds=30)
    right = driver.now
    await put_right(driver)
    driver.clock = ManualClock(right + seconds(ahead))
    await driver.push("a")
    held = await driver.pop_one()
    for _ in range(50):
        driver.clock.advance(20)
        await driver.renew(held, lease_seconds=30)
    await put_right(driver)

    await set_clock(driver, right + seconds(1_000))
    driver.clock.advance(29)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["a"]


@AHEAD
@ORDERINGS
async def test_a_retry_asked_for_since_the_clock_was_put_back_does_not_come_early(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering, initial_backoff_ms=20_000, max_backoff_ms=20_000)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    driver.clock = ManualClock(right)
    await driver.push("a")
    await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF)

    driver.clock.advance(5)
    await put_right(driver)

    driver.clock.advance(14)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["a"]


@AHEAD
@ORDERINGS
async def test_a_delay_that_began_ahead_of_time_is_no_longer_than_it_was_to_be(
    driver: Driver, ordering: Ordering, ahead: int
) -> None:
    await driver.create(ordering=ordering, delayed_processing_seconds=60)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.push("a")
    assert await driver.pop() == []

    await set_clock(driver, right)
    driver.clock.advance(60)

    assert payloads(await driver.pop()) == ["a"]


@AHEAD
async def test_a_claim_made_since_the_clock_was_put_back_is_not_cut_short(ops: Ops, ahead: int) -> None:
    driver = ops.driver
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    driver.clock = ManualClock(right)
    await ops.push("a", partition="x")
    _, (claimed,) = await ops.claim()

    driver.clock.advance(5)
    await put_right(driver)

    driver.clock.advance(claimed.timeout_seconds - 6)
    assert (await ops.claim())[1] == []
    driver.clock.advance(1)
    assert [one.position for one in (await ops.claim())[1]] == [claimed.position]


@ORDERINGS
async def test_I9_servers_that_slew_cut_no_lease_short(driver: Driver, ordering: Ordering) -> None:
    """One server has started with the right clock; another is ten seconds ahead, and loses one in ten."""
    await driver.create(ordering=ordering)
    await driver.push("a")
    await driver.pop_one(lease_seconds=30)
    for ahead in (9, 8, 7):
        await driver.store.put_right(driver.later(ahead), LIMIT)
        await put_right(driver)
        driver.clock.advance(29 / 3)

    assert await driver.pop() == []
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["a"]


@AHEAD
async def test_a_group_that_was_used_ahead_of_time_becomes_idle(driver: Driver, ahead: int) -> None:
    await driver.create(group_idle_seconds=HOUR)
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    await driver.pop(group="mistyped")

    await set_clock(driver, right)
    await prove(driver)
    assert (await driver.stats(group="mistyped")).active_at == driver.now
    for _ in range(6):
        driver.clock.advance(HOUR / 2)
        await driver.pop(group="real")
        await driver.store.retain(driver.key(), driver.now, LIMIT)

    assert [group.group for group in (await driver.queue_stats()).groups if group.idle] == ["mistyped"]


@AHEAD
async def test_I13_an_operation_that_was_blocked_ahead_of_time_is_blocked_since_now(ops: Ops, ahead: int) -> None:
    driver = ops.driver
    right = driver.now
    await set_clock(driver, right + seconds(ahead))
    kept = await ops.push("a")
    token, (one,) = await ops.claim()
    await ops.back(token, one, 1, error="full", code=Code.QUEUE_FULL, blocked_at=driver.now)

    await set_clock(driver, right)
    await prove(driver)
    proven = driver.now

    shown = await ops.shown(kept)
    assert shown.blocked_at == proven
    assert shown.created_at <= proven
    assert shown.started_at is not None
    assert shown.started_at <= proven
    driver.clock.advance(60)
    _, (one,) = await ops.claim()
    assert one.blocked_since(Code.QUEUE_FULL, driver.now) == proven


async def test_I13_a_block_from_ahead_that_is_not_put_right_yet_counts_from_now(ops: Ops) -> None:
    driver = ops.driver
    right = driver.now
    await set_clock(driver, right + seconds(YEARS))
    await ops.push("a")
    token, (one,) = await ops.claim()
    await ops.back(token, one, 1, error="full", code=Code.QUEUE_FULL, blocked_at=driver.now)

    await set_clock(driver, right)
    driver.clock.advance(60)
    _, (one,) = await ops.claim()

    assert one.blocked_since(Code.QUEUE_FULL, driver.now) == driver.now


async def test_an_operation_that_nobody_has_begun_is_not_begun_by_a_clock_that_is_put_back(ops: Ops) -> None:
    driver = ops.driver
    right = driver.now
    await set_clock(driver, right + seconds(HOUR))
    kept = await ops.push("a")

    await set_clock(driver, right)
    await prove(driver)

    shown = await ops.shown(kept)
    assert (shown.started_at, shown.blocked_at) == (None, None)
