"""Forgetting messages for good: nothing of them is left that a row leads to, every account is right, and a tombstone tells of it."""

from __future__ import annotations

from typing import Any

import pytest

from skep.arrow.log import LogRange
from skep.errors import Code, SkepError
from skep.model import (
    FROM_BEGINNING,
    ClearScope,
    MessageFilter,
    Ordering,
    PushStatus,
    Retry,
    Seq,
    SettleStatus,
)
from skep.model.forgetting import (
    FIRST_LETTER,
    ForgetFilter,
    FoundLetter,
    LetterPlace,
    SeqRange,
    merged,
    within,
    without,
)
from skep.model.history import TraceEvent
from skep.model.scheduled import Change, ScheduledFilter
from tests.contract.driver import PLENTY, Driver, attempts, payloads, seqs

ORDERINGS = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED])


async def figures(driver: Driver, group: str, queue: str = "q") -> tuple[int, int, int, int]:
    stats = await driver.stats(queue, group=group)
    return stats.completed, stats.pending, stats.in_flight, stats.expired


async def in_log(driver: Driver, queue: str = "q") -> list[int]:
    return [message.seq for message in (await driver.browse(queue, limit=100)).messages]


async def refusal(driver: Driver, *seqs: int, **fields: Any) -> Code:
    with pytest.raises(SkepError) as raised:
        await driver.forget(*seqs, **fields)
    await driver.check_accounts()
    return raised.value.code


@ORDERINGS
async def test_I12_I8_messages_are_forgotten_for_all_groups_settled_or_not(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push(*"abcde", partition="p")
    await driver.ack(*await driver.pop(batch=2, group="one"))
    await driver.seek(FROM_BEGINNING, group="two")

    done = await driver.forget(1, 4)

    assert (done.messages, done.letters, done.copies, done.queues) == (2, 0, 0, [driver.key()])
    assert await in_log(driver) == [2, 3, 5]
    assert await figures(driver, "one") == (2, 2, 0, 1)
    assert await figures(driver, "two") == (0, 3, 0, 2)
    assert payloads(await driver.pop(group="one")) == ["c", "e"]
    assert payloads(await driver.pop(group="two")) == ["b", "c", "e"]
    assert payloads(await driver.pop(group="three")) == ["b", "c", "e"], "a group that is made later never sees them"


@ORDERINGS
@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_I6_a_message_under_a_lease_is_fenced_and_its_neighbours_come_again(
    driver: Driver, ordering: Ordering, seq: int
) -> None:
    await driver.create(ordering=ordering, max_attempts=5)
    await driver.push("a", "b", "c", partition="p")
    held = await driver.pop()
    driver.clock.advance(1)

    await driver.forget(seq)

    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE] * 3
    again = []
    while more := await driver.pop():
        again += more
        await driver.ack(*more)
    assert (seqs(again), attempts(again)) == ([n for n in (1, 2, 3) if n != seq], [2, 2])
    assert await figures(driver, again[0].group) == (2, 0, 0, 1)


@ORDERINGS
async def test_I14_a_lease_that_holds_none_of_them_lives_on(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", partition="p")
    await driver.push("b", partition="q")
    (first, *_) = await driver.pop(batch=1, partition="p" if ordering is not Ordering.FIFO else None)

    await driver.forget(2)

    assert [result.status for result in await driver.ack(first)] == [SettleStatus.COMPLETED]
    assert (await driver.queue_stats()).depth == 0


async def test_I4_the_message_behind_a_forgotten_head_is_ready_at_once(driver: Driver) -> None:
    await driver.create(max_attempts=5, initial_backoff_ms=60_000)
    await driver.push("a", "b")
    await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF, error="card 4111 refused")
    assert await driver.pop() == []

    await driver.forget(1)

    assert [
        one.last_error for one in await driver.store.partition_stats(driver.key(), "__QUEUE_MODE__", driver.now)
    ] == [None]
    assert payloads(await driver.pop()) == ["b"]
    assert await driver.store.failures([(driver.key(), Seq(1))]) == [[]]


@ORDERINGS
async def test_dead_letters_go_with_their_message_in_whichever_queue_they_lie(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, dead_letter_queue="first")
    await driver.push("a", "b")
    await driver.reject(*await driver.pop(group="one"), error="card 4111 refused")
    await driver.update(dead_letter_queue="second")
    await driver.reject(*await driver.pop(group="two"), error="card 4111 refused")

    done = await driver.forget(1)

    assert (done.messages, done.letters, done.copies) == (1, 2, 0)
    assert done.queues == [driver.key(), driver.key("first"), driver.key("second")]
    for grave in ("first", "second"):
        assert [letter.source_seq for letter in await driver.dead(grave)] == [2]
        assert await driver.tombstones(grave) == [(1, 1)]
        assert await in_log(driver, grave) == [2]
    assert await driver.tombstones() == [(1, 1)]


async def test_a_letter_that_somebody_holds_is_fenced(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    held = await driver.pop("q.dead")

    await driver.forget(1)

    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE] * 2
    assert payloads(await driver.pop("q.dead")) == ["b"]


async def test_the_lease_of_a_letter_that_was_replayed_leaves_no_error_when_the_message_is_forgotten(
    driver: Driver,
) -> None:
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    held = await driver.pop("q.dead")
    await driver.replay()
    await driver.forget(1)

    await driver.nack(*held, error="card 4111 refused")

    found = await driver.store.failures([(driver.key("q.dead"), Seq(seq)) for seq in (1, 2)])
    assert [len(of_letter) for of_letter in found] == [0, 1]


async def test_dead_letters_whose_message_retention_took_are_forgotten_by_their_source(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    driver.clock.advance(20)
    await driver.retain()
    assert await in_log(driver) == []

    done = await driver.forget(2)

    assert (done.messages, done.letters) == (0, 1)
    assert [letter.source_seq for letter in await driver.dead()] == [1]
    assert await driver.tombstones() == [(2, 2)], "others may still have the message"


async def test_dead_letters_of_an_earlier_queue_of_that_name_stay(driver: Driver) -> None:
    await driver.create(dead_letter_queue="grave")
    await driver.push("old")
    await driver.reject(*await driver.pop())
    await driver.delete()
    driver.clock.advance(1)
    await driver.create(dead_letter_queue="grave")
    await driver.push("new")

    assert (await driver.forget(1)).letters == 0
    assert [letter.payload for letter in await driver.dead("grave")] == [b"old"]


@ORDERINGS
async def test_what_replays_made_of_a_message_goes_with_it_and_their_history(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    await driver.reject(*await driver.pop(), error="card 4111 refused")
    await driver.replay()
    await driver.reject(*await driver.pop(), error="card 4111 refused again")
    await driver.replay(seqs=[Seq(3)])
    assert await in_log(driver) == [1, 2, 3, 4, 5]

    done = await driver.forget(1)

    # The message; what the first replay made of it, 3; what the second one made of that, 5.
    assert (done.messages, done.letters, done.copies) == (1, 0, 2)
    assert await in_log(driver) == [2, 4]
    assert await driver.tombstones() == [(1, 1), (3, 3), (5, 5)]
    assert await driver.tombstones("q.dead") == [(1, 1), (3, 3)], "the letters were there, too"
    assert [one.dead_seq for one in await driver.store.replays(driver.key("q.dead"), None, None, PLENTY)] == [2]
    assert payloads(await driver.pop()) == []


async def test_what_a_replay_made_is_forgotten_alone_but_its_origin_stays(driver: Driver) -> None:
    await driver.push("a")
    await driver.reject(*await driver.pop())
    await driver.replay()

    done = await driver.forget(2)

    assert (done.messages, done.copies) == (1, 0)
    assert await in_log(driver) == [1]
    assert await driver.store.replays(driver.key("q.dead"), None, None, PLENTY) == []


async def test_a_letter_is_forgotten_by_its_own_seq_with_what_was_made_of_it(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    await driver.replay(seqs=[Seq(1)])

    done = await driver.forget(1, 2, queue="q.dead")

    assert (done.messages, done.letters, done.copies) == (1, 0, 1)
    assert await driver.dead() == []
    assert await in_log(driver) == [1, 2], "their origins stay"
    assert (await driver.queue_stats("q.dead")).dead_letters == 0


async def test_I3_the_transaction_id_of_a_forgotten_message_is_free(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=60)
    await driver.push("a", transaction_id="t")
    await driver.push("b", transaction_id="u")

    await driver.forget(1)

    (again,) = await driver.push("a", transaction_id="t")
    (other,) = await driver.push("b", transaction_id="u")
    assert (again.status, again.seq) == (PushStatus.STORED, 3)
    assert (other.status, other.seq) == (PushStatus.DUPLICATE, 2)


async def test_I3_a_key_that_was_used_again_stays(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=60)
    await driver.push("a", transaction_id="t")
    driver.clock.advance(61)
    await driver.push("b", transaction_id="t")

    await driver.forget(1)

    (again,) = await driver.push("b", transaction_id="t")
    assert (again.status, again.seq) == (PushStatus.DUPLICATE, 2)


@ORDERINGS
async def test_I2_the_seq_of_the_last_message_is_not_given_out_again(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    await driver.forget(1, 2)

    (stored,) = await driver.push("c")

    assert stored.seq == 3
    assert payloads(await driver.pop()) == ["c"]


async def test_events_of_traces_about_them_are_forgotten(driver: Driver) -> None:
    trace = driver.mint.mint()
    (first,) = await driver.push("a", trace_id=trace)
    (second,) = await driver.push("b")
    events = [
        TraceEvent(trace_id=trace_id, name="charged", data=b'{"card": 4111}', at=driver.now, message_id=id_)
        for trace_id, id_ in ((trace, first.id), (second.id, second.id), (trace, None))
    ]
    await driver.store.note_trace_events(driver.tenant, events)

    await driver.forget(1)

    assert [e.message_id for e in await driver.store.trace_events(driver.tenant, trace)] == [None]
    assert len(await driver.store.trace_events(driver.tenant, second.id)) == 1
    await driver.forget(2)
    assert await driver.store.trace_events(driver.tenant, second.id) == []


async def test_no_read_shows_them(driver: Driver) -> None:
    trace = driver.mint.mint()
    for payload in "abc":
        await driver.push(payload, partition="p", transaction_id=payload, trace_id=trace)
    await driver.store.read_log(driver.key(), LogRange(first=Seq(1), last=Seq(9), max_rows=9, max_bytes=9_999))

    await driver.forget(2)

    store = driver.store
    piece = await store.read_log(driver.key(), LogRange(first=Seq(1), last=Seq(9), max_rows=9, max_bytes=9_999))
    assert piece.batch.column("seq").to_pylist() == [1, 3]
    assert await store.message(driver.key(), Seq(2)) is None
    assert [m.seq for m in await store.trace(driver.tenant, trace)] == [1, 3]
    assert await store.with_transaction_id(driver.tenant, "b") == []
    assert (await driver.browse(partition="p")).messages == (await driver.browse()).messages
    assert (await driver.queue_stats()).depth == 2


async def test_forgetting_again_changes_nothing_and_leaves_no_more_tombstones(driver: Driver) -> None:
    await driver.push(*"abcdef")
    await driver.reject(*await driver.pop(batch=1))
    await driver.forget(1, 2, 4)

    again = await driver.forget(1, 2, 3, 4)

    assert (again.messages, again.letters) == (1, 0)
    assert await driver.tombstones() == [(1, 2), (4, 4), (3, 3)]
    assert (await driver.forget(1, 2, 3, 4)).messages == 0
    assert (await driver.forget(*range(1, 7))).messages == 2
    assert await driver.tombstones(after=3) == [(5, 6)]
    assert [stone.position for stone in (await driver.store.tombstones(driver.key(), 1, 2)).tombstones] == [2, 3]


async def test_the_bounds_of_a_log_tell_that_something_was_forgotten(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.create("other")
    assert (await driver.store.log_bounds(driver.key())).forgotten == 0

    await driver.forget(1)
    await driver.forget(2)

    bounds = await driver.store.log_bounds(driver.key())
    assert (bounds.first_seq, bounds.last_seq, bounds.forgotten) == (1, 2, 2)
    many = await driver.store.bounds_of_logs(driver.tenant, ["q", "other"])
    assert {name: one.forgotten for name, one in many.items()} == {"q": 2, "other": 0}
    told = await driver.store.tombstones(driver.key(), 0, PLENTY)
    assert told.log == bounds.created_at
    assert {stone.forgotten_at for stone in told.tombstones} == {driver.now}


async def test_a_dry_run_counts_and_changes_nothing(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    await driver.replay(seqs=[Seq(1)])

    would = await driver.forget(1, 2, dry_run=True)

    assert (would.messages, would.letters, would.copies) == (2, 1, 1)
    assert await in_log(driver) == [1, 2, 3]
    assert await driver.tombstones() == []
    done = await driver.forget(1, 2)
    assert (done.messages, done.letters, done.copies) == (2, 1, 1)


@ORDERINGS
async def test_a_step_is_bounded_and_the_next_goes_on_behind_it(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push(*map(str, range(30)))
    await driver.reject(*await driver.pop(batch=9, group="g"))
    wanted = [SeqRange(3, 20), SeqRange(25, 25), SeqRange(28, 30)]

    first = await driver.store.forget(driver.key(), None, wanted, Seq(0), 5, driver.now)

    assert (first.messages, first.after, first.letters) == (5, 7, 5)
    assert await driver.tombstones() == [(3, 7)]
    rest = await driver.forget(ranges=wanted, limit=4)
    assert (rest.messages, rest.letters) == (17, 2)
    assert await in_log(driver) == [1, 2, 21, 22, 23, 24, 26, 27]


async def test_seqs_that_no_message_has_had_yet_are_refused(driver: Driver) -> None:
    await driver.push("a")

    assert await refusal(driver, 1, 2) is Code.INVALID_REQUEST
    assert await refusal(driver, 1, queue="none") is Code.QUEUE_NOT_FOUND
    assert await in_log(driver) == [1]


async def test_seqs_of_another_log_are_refused(driver: Driver) -> None:
    before = await driver.create()
    await driver.push("a")
    await driver.delete()
    driver.clock.advance(1)
    made = await driver.create()
    await driver.push("b")

    assert await refusal(driver, 1, log=before.created_at) is Code.LOG_REPLACED
    assert (await driver.forget(1, log=made.created_at)).messages == 1


async def test_the_tombstones_of_a_deleted_queue_go_with_it(driver: Driver) -> None:
    await driver.push("a")
    await driver.forget(1)
    await driver.delete()
    while (await driver.store.sweep(driver.now, 1000)).more:
        pass
    driver.clock.advance(1)
    await driver.create()

    assert await driver.tombstones() == []


@ORDERINGS
async def test_cleared_messages_that_are_still_there_are_forgotten_too(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b", partition="p")
    held = await driver.pop(batch=1)
    await driver.clear(ClearScope.PENDING)

    assert (await driver.forget(1, 2)).messages == 2

    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE]
    wanted = MessageFilter(queue=driver.key(), cleared=True)
    assert (await driver.store.messages(wanted, driver.now)).messages == []
    assert (await driver.queue_stats()).depth == 0


async def test_messages_below_the_beginning_of_a_log_are_found_when_asked_for(driver: Driver) -> None:
    await driver.push("a", partition="p")
    await driver.push("b", partition="p", transaction_id="t")
    await driver.pop(batch=1)
    await driver.clear(ClearScope.PENDING)

    assert (await driver.browse()).messages == []
    assert [m.seq for m in (await driver.browse(cleared=True)).messages] == [1, 2]
    assert [m.seq for m in (await driver.browse(cleared=True, partition="p")).messages] == [1, 2]
    assert [m.seq for m in (await driver.browse(cleared=True, transaction_id="t")).messages] == [2]


@pytest.mark.parametrize("how", [{"transaction_id": "t"}, {"partition": "p"}])
async def test_scheduled_messages_are_forgotten_with_their_transaction_id(driver: Driver, how: dict[str, Any]) -> None:
    at = driver.later(60)
    await driver.push("a", deliver_at=at, transaction_id="t", partition="p")
    await driver.push("b", deliver_at=at, transaction_id="u", partition="r")
    wanted = ScheduledFilter(tenant=driver.tenant, queue="q", **how)

    step = await driver.store.scheduled.change(wanted, Change.FORGET, None, None, 10, driver.now)

    await driver.check_accounts()
    assert len(step.changed) == 1
    assert (await driver.queue_stats()).scheduled == 1
    (again,) = await driver.push("a", deliver_at=at, transaction_id="t", partition="p")
    (other,) = await driver.push("b", deliver_at=at, transaction_id="u", partition="r")
    assert (again.status, other.status) == (PushStatus.SCHEDULED, PushStatus.DUPLICATE)


async def test_letters_are_found_by_their_source(driver: Driver) -> None:
    trace = driver.mint.mint()
    await driver.push("a", partition="p", transaction_id="t")
    await driver.push("b", partition="q", trace_id=trace)
    await driver.push("c", queue="other", partition="p")
    await driver.reject(*await driver.pop(), *await driver.pop("other"))
    unfit = driver.message("d", partition="p")
    await driver.store.quarantine(unfit, driver.mint.mint(), "not an order", None, driver.now)

    async def found(**fields: Any) -> list[tuple[int, int]]:
        wanted = ForgetFilter(queue=driver.key(), **fields)
        look = await driver.store.letters_of_source(wanted, FIRST_LETTER)
        assert all(letter.queue == driver.key("q.dead") for letter in look.letters)
        assert look.after is None
        return [(letter.source_seq, letter.seq) for letter in look.letters]

    assert await found() == [(0, 3), (1, 1), (2, 2)]
    assert await found(partition="p") == [(0, 3), (1, 1)]
    assert await found(transaction_id="t") == [(1, 1)]
    assert await found(trace_id=trace) == [(2, 2)]
    assert await found(partition="p", trace_id=trace) == []


async def test_letters_of_a_source_are_found_look_by_look(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    await driver.reject(*await driver.pop(batch=2, group="one"))
    await driver.reject(*await driver.pop(batch=1, group="two"))
    wanted = ForgetFilter(queue=driver.key())
    (first, second, third) = (await driver.store.letters_of_source(wanted, FIRST_LETTER)).letters

    assert [one.source_seq for one in (first, second, third)] == [1, 1, 2]
    queue = await driver.store.get_queue(driver.key("q.dead"))
    assert queue is not None

    async def behind(letter: FoundLetter) -> list[FoundLetter]:
        after = LetterPlace(letter.source_seq, queue.id, letter.seq)
        return (await driver.store.letters_of_source(wanted, after)).letters

    if type(driver.store).__name__ != "ReferenceStore":  # which finds them all at once
        assert await behind(first) == [second, third]
        assert await behind(second) == [third]


async def test_another_tenant_is_not_concerned(driver: Driver) -> None:
    other = Driver(driver.store, driver.clock, f"{driver.tenant}-other")
    for one in (driver, other):
        await one.push("a")
        await one.reject(*await one.pop())

    done = await driver.forget(1)

    assert (done.messages, done.letters) == (1, 1)
    assert (len(await other.dead()), await in_log(other)) == (1, [1])


def test_ranges_are_merged_cut_and_subtracted() -> None:
    assert merged([(5, 7), (1, 1), (2, 3), (6, 9), (4, 4)]) == [(1, 9)]
    assert merged([(1, 2), (4, 5)]) == [(1, 2), (4, 5)]
    assert within(merged([(1, 4), (6, 9)]), 2, 7) == [(3, 4), (6, 7)]
    known = [SeqRange(2, 3), SeqRange(8, 20)]
    assert list(without(merged([(1, 5), (7, 9), (25, 26)]), known)) == [(1, 1), (4, 5), (7, 7), (25, 26)]
    assert list(without([SeqRange(9, 12)], known)) == []
