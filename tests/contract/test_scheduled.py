"""Scheduled messages can be seen and changed until they are due: listed, found, cancelled, moved, run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import ClearScope, Ordering, PushStatus, Seq, Tried
from skep.model.scheduled import Change, Changed, ScheduledFilter, ScheduledMessage, ScheduledPosition
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver, payloads
from tests.support.reference_store import ReferenceStore


def meant(driver: Driver, queue: str | None = "q", **fields: Any) -> ScheduledFilter:
    return ScheduledFilter(tenant=driver.tenant, queue=queue, **fields)


async def listed(driver: Driver, queue: str | None = "q", *, limit: int = 2, **fields: Any) -> list[ScheduledMessage]:
    """All that fit, page by page."""
    found, after = [], None
    while True:
        page = await driver.store.scheduled.page(meant(driver, queue, **fields), after, limit, None)
        found += page.messages
        if (after := page.after) is None:
            return found


async def names(driver: Driver, queue: str | None = "q", **fields: Any) -> list[str]:
    return [one.payload.decode() for one in await listed(driver, queue, **fields)]


async def change(
    driver: Driver, what: Change, *, to: Instant | None = None, queue: str = "q", limit: int = 2, **fields: Any
) -> list[Changed]:
    """Change all that fit, step by step."""
    done: list[Changed] = []
    after: ScheduledPosition | None = None
    while True:
        step = await driver.store.scheduled.change(meant(driver, queue, **fields), what, to, after, limit, driver.now)
        await driver.check_accounts()
        done += step.changed
        if (after := step.after) is None:
            return done


async def some(driver: Driver) -> dict[str, Id]:
    """Four messages that wait, in the order of their time; pushed in another."""
    given: list[tuple[str, float, dict[str, Any]]] = [
        ("c", 30, {"partition": "p", "transaction_id": "t-c"}),
        ("a", 10, {"partition": "p"}),
        ("d", 30, {"transaction_id": "t-d"}),
        ("b", 20, {"priority": 3, "headers": b'{"k":"v"}'}),
    ]
    return {name: (await driver.push(name, deliver_at=driver.later(at), **more))[0].id for name, at, more in given}


async def test_they_are_listed_by_time_then_in_order_of_arrival(driver: Driver) -> None:
    ids = await some(driver)

    found = await listed(driver)

    assert [(one.payload.decode(), one.id) for one in found] == [(name, ids[name]) for name in "abcd"]
    assert [one.deliver_at for one in found] == [driver.later(at) for at in (10, 20, 30, 30)]
    assert [one.partition for one in found] == ["p", "Default", "p", "Default"]
    assert (found[1].priority, found[1].headers, found[1].trace_id) == (3, b'{"k":"v"}', ids["b"])
    assert {one.queue for one in found} == {driver.key()}


async def test_a_page_ends_where_the_next_begins_whatever_its_size(driver: Driver) -> None:
    await some(driver)

    for limit in (1, 2, 3, 4, 5):
        assert await names(driver, limit=limit) == ["a", "b", "c", "d"]
    assert await names(driver, limit=1, partition="p") == ["a", "c"]


async def test_a_payload_is_cut_to_the_preview(driver: Driver) -> None:
    await driver.push("0123456789", deliver_at=driver.later(10))

    (shown,) = (await driver.store.scheduled.page(meant(driver), None, 10, 4)).messages

    assert (shown.payload, shown.payload_bytes) == (b"0123", 10)


async def test_they_are_found_by_what_they_are_known_by(driver: Driver) -> None:
    ids = await some(driver)
    trace = driver.mint.mint()
    (traced,) = await driver.push("e", deliver_at=driver.later(40), trace_id=trace, transaction_id="t-c")

    assert await names(driver, ids=[ids["d"], ids["a"], driver.mint.mint()]) == ["a", "d"]
    assert await names(driver, partition="p") == ["a", "c"]
    assert await names(driver, transaction_id="t-c") == ["c", "e"]
    assert await names(driver, trace_id=trace) == ["e"]
    assert await names(driver, trace_id=ids["b"]) == ["b"]
    assert await names(driver, trace_id=traced.id) == [], "its trace is the one that it was given"
    assert await names(driver, due_after=driver.later(20)) == ["b", "c", "d", "e"]
    assert await names(driver, due_before=driver.later(20)) == ["a"]
    assert await names(driver, due_after=driver.later(20), due_before=driver.later(30), partition="p") == []


async def test_a_trace_of_one_s_own_is_in_order_among_those_that_were_given_it(driver: Driver) -> None:
    (first,) = await driver.push("own", deliver_at=driver.later(20))
    await driver.push("early", deliver_at=driver.later(10), trace_id=first.id)
    await driver.push("late", deliver_at=driver.later(30), trace_id=first.id)

    for limit in (1, 2, 5):
        assert await names(driver, trace_id=first.id, limit=limit) == ["early", "own", "late"]


async def test_they_are_listed_over_all_queues_of_the_tenant_and_of_no_other(driver: Driver) -> None:
    await driver.push("b", queue="one", deliver_at=driver.later(20), transaction_id="t")
    await driver.push("a", queue="two", deliver_at=driver.later(10))
    await driver.push("c", queue="two", deliver_at=driver.later(30), transaction_id="t")
    await driver.push("now", queue="three")
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    (theirs,) = await other.push("x", queue="one", deliver_at=driver.later(15), transaction_id="t")

    assert await names(driver, None) == ["a", "b", "c"]
    assert await names(driver, None, transaction_id="t", limit=1) == ["b", "c"]
    assert await names(driver, None, ids=[theirs.id]) == []
    assert await names(driver, "one", transaction_id="t") == ["b"]
    assert await names(other, None) == ["x"]


async def test_what_has_entered_the_log_is_scheduled_no_more(driver: Driver) -> None:
    await some(driver)
    driver.clock.advance(20)
    await driver.promote()

    assert await names(driver) == ["c", "d"]


async def test_a_cancelled_message_never_enters_the_log(driver: Driver) -> None:
    ids = await some(driver)

    assert await change(driver, Change.CANCEL, partition="p") == [Changed(ids["a"]), Changed(ids["c"])]

    assert await names(driver) == ["b", "d"]
    assert (await driver.queue_stats()).scheduled == 2
    driver.clock.advance(60)
    await driver.promote()
    assert payloads(await driver.pop()) == ["b", "d"]


async def test_I3_a_cancelled_message_keeps_its_transaction_id_until_its_window_ends(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=100)
    (first,) = await driver.push("a", deliver_at=driver.later(10), transaction_id="t")
    await change(driver, Change.CANCEL)

    (again,) = await driver.push("a", deliver_at=driver.later(10), transaction_id="t")
    driver.clock.advance(101)
    (anew,) = await driver.push("a", transaction_id="t")

    assert (again.status, again.id, again.seq) == (PushStatus.DUPLICATE, first.id, None)
    assert again.trace_id is None  # no message has it
    assert anew.status is PushStatus.STORED


async def test_what_runs_enters_the_log_at_once_in_the_order_of_its_time(driver: Driver) -> None:
    ids = await some(driver)
    await driver.push("before")

    done = await change(driver, Change.RUN, due_after=driver.later(20))

    assert done == [Changed(ids["b"], Seq(2)), Changed(ids["c"], Seq(3)), Changed(ids["d"], Seq(4))]
    assert [one.payload for one in (await driver.browse()).messages] == [b"before", b"b", b"c", b"d"]
    assert await names(driver) == ["a"]
    (again,) = await driver.push("x", transaction_id="t-c", partition="p")
    assert (again.status, again.seq) == (PushStatus.DUPLICATE, 3)


async def test_what_runs_in_a_fifo_queue_enters_its_one_partition(driver: Driver) -> None:
    await driver.push("a", partition="p", deliver_at=driver.later(10))
    await driver.update(ordering=Ordering.FIFO)

    await change(driver, Change.RUN)

    assert (await driver.pop_one()).partition == "Default"


async def test_a_moved_message_is_due_at_its_new_time(driver: Driver) -> None:
    ids = await some(driver)

    moved = await change(driver, Change.MOVE, to=driver.later(25), ids=[ids["a"], ids["d"]])

    assert [one.id for one in moved] == [ids["a"], ids["d"]]
    assert await names(driver) == ["b", "a", "d", "c"]
    assert (await driver.queue_stats()).scheduled == 4
    driver.clock.advance(20)
    assert (await driver.promote()).next_at == driver.later(5)
    driver.clock.advance(10)
    await driver.promote()
    assert [one.payload for one in (await driver.browse()).messages] == [b"b", b"a", b"d", b"c"]


async def test_a_message_that_is_moved_keeps_all_that_it_has(driver: Driver) -> None:
    trace = driver.mint.mint()
    await driver.push(
        "x", deliver_at=driver.later(10), partition="p", transaction_id="t", trace_id=trace, priority=2, headers=b"{}",
        content_type="text/plain",
    )  # fmt: skip
    (before,) = await listed(driver)

    await change(driver, Change.MOVE, to=driver.later(50))

    (after,) = await listed(driver)
    assert after.deliver_at == driver.later(50)
    assert msgspec.structs.replace(after, place=before.place) == before


async def test_a_message_that_is_moved_into_the_past_is_due_at_once(driver: Driver) -> None:
    await driver.push("a", deliver_at=driver.later(10))
    await change(driver, Change.MOVE, to=Instant(driver.now - 1))

    assert (await driver.promote()).done == 1


@pytest.mark.parametrize("what", list(Change))
async def test_with_a_mark_only_what_was_counted_is_changed(driver: Driver, what: Change) -> None:
    await driver.push("0", "1", "2", deliver_at=driver.later(10))
    mark = await driver.store.scheduled.mark(driver.key())
    assert (await driver.store.scheduled.count(meant(driver, mark=mark), None)).count == 3
    await driver.push("later", deliver_at=driver.later(10))
    await driver.push("elsewhere", queue="other", deliver_at=driver.later(10))

    done = await change(driver, what, to=driver.later(20), mark=mark)

    assert len(done) == 3
    assert await names(driver, due_before=driver.later(20)) == ["later"]
    assert await names(driver, "other") == ["elsewhere"]


async def test_what_is_moved_among_those_that_were_counted_is_not_one_of_them(driver: Driver) -> None:
    await driver.push("near", deliver_at=driver.later(10))
    (far,) = await driver.push("far", deliver_at=driver.later(100))
    mark = await driver.store.scheduled.mark(driver.key())
    await change(driver, Change.MOVE, to=driver.later(5), ids=[far.id])

    await change(driver, Change.CANCEL, due_before=driver.later(50), mark=mark)

    assert await names(driver) == ["far"]


async def test_the_mark_of_a_queue_where_nothing_was_ever_scheduled_is_before_all(driver: Driver) -> None:
    await driver.create()
    mark = await driver.store.scheduled.mark(driver.key())
    await driver.push("a", deliver_at=driver.later(10))

    assert await change(driver, Change.CANCEL, mark=mark) == []


async def test_each_message_is_either_promoted_or_cancelled(driver: Driver) -> None:
    """Whatever the order in which they come to it."""
    await driver.push(*(str(number) for number in range(60)), deliver_at=driver.later(1))
    driver.clock.advance(2)

    async def cancel() -> int:
        return len(
            (await driver.store.scheduled.change(meant(driver), Change.CANCEL, None, None, 7, driver.now)).changed
        )

    async def run() -> int:
        return len((await driver.store.scheduled.change(meant(driver), Change.RUN, None, None, 5, driver.now)).changed)

    async def promote() -> int:
        return (await driver.store.promote(driver.key(), driver.now, 6)).done

    counts = await asyncio.gather(*(call() for _ in range(5) for call in (cancel, promote, run)))

    cancelled, entered = sum(counts[0::3]), sum(counts[1::3]) + sum(counts[2::3])
    stats = await driver.queue_stats()
    assert (stats.last_seq, stats.scheduled) == (entered, 60 - cancelled - entered)
    delivered = payloads(await driver.pop())
    left = await names(driver)
    assert len(delivered) == len(set(delivered)) == entered
    assert not set(delivered) & set(left)


async def test_I12_the_depth_follows_what_is_cancelled(driver: Driver) -> None:
    await driver.create(max_depth=2)
    await driver.push("a", "b", deliver_at=driver.later(10))
    await change(driver, Change.CANCEL, limit=1)

    assert (await driver.queue_stats()).depth == 0
    assert (await driver.push("c"))[0].status is PushStatus.STORED


async def test_a_queue_that_is_not_there_is_not_found(driver: Driver) -> None:
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: driver.store.scheduled.page(meant(driver, "nowhere"), None, 1, None),
        lambda: driver.store.scheduled.page(meant(driver, "nowhere", transaction_id="t"), None, 1, None),
        lambda: driver.store.scheduled.count(meant(driver, "nowhere"), None),
        lambda: driver.store.scheduled.mark(driver.key("nowhere")),
        lambda: driver.store.scheduled.change(meant(driver, "nowhere"), Change.CANCEL, None, None, 1, driver.now),
    ]
    for call in calls:
        with pytest.raises(SkepError) as refused:
            await call()
        assert refused.value.code is Code.QUEUE_NOT_FOUND
    assert await names(driver, None) == []


async def test_what_a_deleted_queue_had_scheduled_is_not_shown(driver: Driver) -> None:
    (gone,) = await driver.push("a", deliver_at=driver.later(10), transaction_id="t")
    await driver.delete()

    assert await names(driver, None) == []
    assert await names(driver, None, ids=[gone.id]) == []
    assert await names(driver, None, transaction_id="t") == []


async def test_what_is_cleared_is_gone_from_the_schedule(driver: Driver) -> None:
    await some(driver)
    await driver.clear(ClearScope.SCHEDULED)

    assert await names(driver) == []


@pytest.mark.parametrize("what", [Change.MOVE, Change.RUN])
async def test_I13_a_push_that_was_tried_finds_its_message_wherever_it_was_moved(driver: Driver, what: Change) -> None:
    batch = driver.batch(driver.message("1", deliver_at=driver.later(50_000)))
    await driver.store.push([batch], driver.now)
    again = msgspec.structs.replace(batch, tried=Tried(driver.now, driver.now, "session"))
    driver.clock.advance(3_600)
    await change(driver, what, to=driver.later(90_000))

    driver.clock.advance(20)
    assert (await driver.store.push([again], driver.now))[0].results == []
    stats = await driver.queue_stats()
    assert stats.scheduled + stats.last_seq == 1


async def test_a_walk_over_many_that_do_not_fit_is_bounded_and_goes_on(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.model.scheduled.WALK_ROWS", 5)
    await driver.push(*(str(number) for number in range(12)), deliver_at=driver.later(10), partition="many")
    await driver.push("one", deliver_at=driver.later(20), partition="few", trace_id=driver.mint.mint())

    assert await names(driver, partition="few") == ["one"]
    assert len(await names(driver, partition="many")) == 12
    if isinstance(driver.store, SqliteStore):
        first = await driver.store.scheduled.page(meant(driver, partition="few"), None, 10, None)
        assert first.messages == []
        assert first.after is not None
    assert len(await change(driver, Change.CANCEL, partition="few")) == 1


@pytest.mark.parametrize("what", list(Change))
async def test_a_step_ends_once_it_has_enough_bytes(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, what: Change
) -> None:
    """However large payloads are: whoever pushes meanwhile waits for one step, and its rows are in memory."""
    monkeypatch.setattr("skep.model.scheduled.STEP_BYTES", 10)
    await driver.push("first 6", "second", "third", "fourth", "much larger than a step", deliver_at=driver.later(10))
    mark = await driver.store.scheduled.mark(driver.key())
    steps, after = [], None
    while True:
        step = await driver.store.scheduled.change(
            meant(driver, mark=mark), what, driver.later(99) if what is Change.MOVE else None, after, 100, driver.now
        )
        steps.append(len(step.changed))
        if (after := step.after) is None:
            break

    assert sum(steps) == 5
    if not isinstance(driver.store, ReferenceStore):
        assert [count for count in steps if count] == [2, 2, 1]
    await driver.check_accounts()


async def test_a_promotion_ends_once_it_has_enough_bytes_and_says_that_there_is_more(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.model.scheduled.STEP_BYTES", 10)
    texts = ["first 6", "second", "third", "fourth", "much larger than a step"]
    await driver.push(*texts, deliver_at=driver.later(10))
    driver.clock.advance(10)
    passes = [await driver.promote()]
    while passes[-1].more:
        passes.append(await driver.promote())

    if not isinstance(driver.store, ReferenceStore):
        assert [one.done for one in passes] == [2, 2, 1]
    assert payloads(await driver.pop()) == texts


async def test_a_walk_over_many_queues_is_bounded_and_goes_on_in_the_order_of_time(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.model.scheduled.WALK_ROWS", 7)
    times: dict[str, list[float]] = {"a": [1, 2, 3, 4, 5, 20], "b": [6, 7, 8, 9], "c": [2.5, 30]}
    for queue, waits in times.items():
        for at in waits:
            await driver.push(f"{at:g}", queue=queue, deliver_at=driver.later(at))
    expected = [f"{at:g}" for at in sorted(at for waits in times.values() for at in waits)]

    assert await names(driver, None) == expected
    assert await names(driver, None, limit=100) == expected
    assert await names(driver, None, partition="Default") == expected
    assert await names(driver, None, partition="nobody's") == []
