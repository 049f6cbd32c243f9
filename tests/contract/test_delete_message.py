"""Deleting one message: it is never delivered again, its lease is fenced, and every account is right at once."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code, SkepError
from skep.model import (
    FROM_BEGINNING,
    FROM_NOW,
    ClearScope,
    Ordering,
    Outcome,
    PushStatus,
    Retry,
    Seq,
    SettleStatus,
    Start,
    StartMode,
)
from tests.contract.driver import Driver, attempts, payloads, seqs

ORDERINGS = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED])


async def refusal(driver: Driver, seq: int, **fields: Any) -> Code:
    with pytest.raises(SkepError) as raised:
        await driver.delete_message(seq, **fields)
    await driver.check_accounts()
    return raised.value.code


async def figures(driver: Driver, group: str) -> tuple[int, int, int, int]:
    stats = await driver.stats(group=group)
    return stats.completed, stats.pending, stats.in_flight, stats.expired


async def in_log(driver: Driver) -> list[int]:
    return [message.seq for message in (await driver.browse(limit=100)).messages]


@ORDERINGS
async def test_I12_a_pending_message_is_deleted_for_all_groups(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    stored = await driver.push("a", "b", "c", partition="p", transaction_id=None)
    await driver.ack(*await driver.pop(batch=1, group="one"))
    await driver.seek(FROM_BEGINNING, group="two")

    deleted = await driver.delete_message(2)

    assert (deleted.seq, deleted.id, deleted.groups, deleted.leases) == (2, stored[1].id, ["one", "two"], 0)
    assert await figures(driver, "one") == (1, 1, 0, 1)
    assert await figures(driver, "two") == (0, 2, 0, 1)
    assert (await driver.queue_stats()).depth == 2
    assert await in_log(driver) == [1, 3]
    assert payloads(await driver.pop(group="one")) == ["c"]
    assert payloads(await driver.pop(group="two")) == ["a", "c"]
    assert payloads(await driver.pop(group="three")) == ["a", "c"], "a group that is made later never sees it"
    assert await figures(driver, "three") == (0, 0, 2, 0)


@ORDERINGS
@pytest.mark.parametrize("seq", [1, 2, 3])
async def test_I6_a_message_under_a_lease_is_fenced_and_its_neighbours_come_again(
    driver: Driver, ordering: Ordering, seq: int
) -> None:
    await driver.create(ordering=ordering, max_attempts=5)
    await driver.push("a", "b", "c", partition="p")
    held = await driver.pop()
    driver.clock.advance(1)

    deleted = await driver.delete_message(seq)

    # Nobody has popped since: the token counts no more at once, for none of the lease's messages.
    assert deleted.leases == 1
    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE] * 3
    assert (await driver.renew(held[0])).code is Code.STALE_LEASE
    again = []
    while more := await driver.pop():
        again += more
        await driver.ack(*more)
    assert (seqs(again), attempts(again)) == ([n for n in (1, 2, 3) if n != seq], [2, 2])
    stats = await driver.stats()
    assert (stats.completed, stats.expired, stats.pending, stats.in_flight) == (2, 1, 0, 0)
    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE] * 3


@ORDERINGS
async def test_I6_the_only_message_of_a_lease_is_deleted_and_nothing_is_left_of_the_lease(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, max_attempts=1)
    await driver.push("a")
    held = await driver.pop_one()

    await driver.delete_message(1)

    assert [result.code for result in await driver.nack(held)] == [Code.STALE_LEASE]
    assert await driver.store.leases(driver.tenant, driver.now) == []
    await driver.expire()
    assert (await driver.dead(), await driver.pop()) == ([], [])
    assert (await driver.queue_stats()).depth == 0


@ORDERINGS
async def test_I14_a_lease_of_another_group_and_of_another_partition_lives_on(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", partition="p")
    await driver.push("b", partition="q")
    done = await driver.pop(group="done")
    await driver.ack(*done)
    (first, *_) = await driver.pop(batch=1, group="works", partition="p" if ordering is not Ordering.FIFO else None)

    deleted = await driver.delete_message(2)

    assert (deleted.groups, deleted.leases) == (["works"], 0)
    assert [result.status for result in await driver.ack(first)] == [SettleStatus.COMPLETED]
    assert await figures(driver, "done") == (2, 0, 0, 0)
    assert await figures(driver, "works") == (1, 0, 0, 1)


async def test_I4_the_message_behind_a_head_that_waits_for_its_retry_is_ready_at_once(driver: Driver) -> None:
    await driver.create(max_attempts=5, initial_backoff_ms=60_000)
    await driver.push("a", "b")
    await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF)
    assert await driver.pop() == []

    await driver.delete_message(1)

    assert payloads(await driver.pop()) == ["b"]


@ORDERINGS
async def test_a_message_that_all_groups_have_settled_is_not_deleted(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("done", "dead")
    first, second = await driver.pop()
    await driver.settle(driver.settlement(first), driver.settlement(second, Outcome.REJECT))

    assert [await refusal(driver, seq) for seq in (1, 2)] == [Code.MESSAGE_SETTLED] * 2
    assert await in_log(driver) == [1, 2]
    assert len(await driver.dead()) == 1


@ORDERINGS
async def test_what_is_gone_cleared_or_was_never_there_is_refused(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    (stored,) = await driver.push("c")
    await driver.delete_message(1)

    assert await refusal(driver, 1) is Code.MESSAGE_NOT_FOUND
    assert await refusal(driver, 9) is Code.MESSAGE_NOT_FOUND
    assert await refusal(driver, 0) is Code.MESSAGE_NOT_FOUND
    assert await refusal(driver, 2**62) is Code.MESSAGE_NOT_FOUND
    assert await refusal(driver, 2, id_=stored.id) is Code.MESSAGE_NOT_FOUND, "another message was meant"
    assert await refusal(driver, 2, queue="none") is Code.QUEUE_NOT_FOUND
    await driver.clear(ClearScope.PENDING)
    assert await refusal(driver, 2) in (Code.MESSAGE_SETTLED, Code.MESSAGE_NOT_FOUND)


@ORDERINGS
async def test_a_dry_run_tells_whose_message_it_is_and_changes_nothing(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", partition="p")
    held = await driver.pop_one(group="g")

    would = await driver.delete_message(1, dry_run=True)

    assert (would.groups, would.leases) == (["g"], 1)
    assert [result.status for result in await driver.ack(held)] == [SettleStatus.COMPLETED]
    assert await refusal(driver, 1, dry_run=True) is Code.MESSAGE_SETTLED


async def test_I3_the_transaction_id_of_a_deleted_message_stays_taken(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=60)
    (first,) = await driver.push("a", transaction_id="t")
    await driver.delete_message(1)

    (again,) = await driver.push("a", transaction_id="t")
    driver.clock.advance(61)
    (later,) = await driver.push("a", transaction_id="t")

    assert (again.status, again.id) == (PushStatus.DUPLICATE, first.id)
    assert (later.status, later.seq) == (PushStatus.STORED, 2)


@ORDERINGS
async def test_I2_the_seq_of_the_last_message_is_not_given_out_again(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    await driver.delete_message(2)

    (stored,) = await driver.push("c")

    assert stored.seq == 3
    assert payloads(await driver.pop()) == ["a", "c"]


@ORDERINGS
async def test_I12_groups_that_start_amid_gaps_and_seek_over_them_count_no_more_than_there_is(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, max_depth=5)
    await driver.push(*"abcde")
    for seq in (2, 4):
        await driver.delete_message(seq)

    assert (await driver.queue_stats()).depth == 3
    for start, wanted in ((FROM_BEGINNING, "ace"), (Start(StartMode.SEQ, 2), "ce"), (Start(StartMode.SEQ, 4), "e")):
        stats = await driver.seek(start, group="g")
        assert (stats.pending, stats.pushed) == (len(wanted), len(wanted))
        assert payloads(await driver.pop(group="g")) == list(wanted)
    await driver.seek(FROM_NOW, group="g")
    (full,) = await driver.push("f")
    assert full.status is PushStatus.STORED, "what is gone takes no room"


async def test_I12_an_external_group_passes_over_what_was_deleted(driver: Driver) -> None:
    await driver.push(*"abcd")
    await driver.store.report_progress(driver.key(), "spark", Seq(1), driver.now)

    deleted = await driver.delete_message(3)
    stats = await driver.store.report_progress(driver.key(), "spark", Seq(4), driver.now)

    assert deleted.groups == ["spark"]
    assert (stats.completed, stats.expired, stats.pending) == (2, 1, 0)
    assert await refusal(driver, 4) is Code.MESSAGE_SETTLED


@ORDERINGS
async def test_retention_and_progress_go_on_past_a_deleted_message(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, retention_seconds=10)
    await driver.push(*"abc")
    await driver.delete_message(2)
    await driver.ack(*await driver.pop())
    driver.clock.advance(20)

    chore = await driver.retain()

    stats = await driver.queue_stats()
    assert (chore.done, stats.first_seq, stats.gaps, stats.depth) == (2, 4, 0, 0)
    assert (await driver.stats()).progress_seq == 3


async def test_a_dead_letter_is_deleted_with_its_message_though_somebody_holds_it(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    held = await driver.pop("q.dead")

    await driver.delete_message(1, queue="q.dead")

    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE] * 2
    assert [letter.source_seq for letter in await driver.dead()] == [2]
    assert payloads(await driver.pop("q.dead")) == ["b"]


@ORDERINGS
async def test_a_message_replayed_for_one_group_is_deleted_for_that_one(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    await driver.ack(*await driver.pop(group="other"))
    await driver.reject(*await driver.pop(group="mine"))
    await driver.replay()

    deleted = await driver.delete_message(2)

    assert deleted.groups == ["mine"]
    assert await driver.pop(group="mine") == await driver.pop(group="other") == []
    assert (await driver.queue_stats()).depth == 0


async def test_what_was_said_about_a_deleted_message_is_forgotten(driver: Driver) -> None:
    await driver.create(max_attempts=5)
    await driver.push("a")
    await driver.nack(await driver.pop_one(), error="card 4111 refused")

    await driver.delete_message(1)

    assert await driver.store.failures([(driver.key(), Seq(1))]) == [[]]


@ORDERINGS
async def test_what_is_deleted_behind_a_held_message_makes_that_no_younger(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    pushed_at = driver.now
    await driver.push("a", "b", "c")
    driver.clock.advance(20)
    held = await driver.pop_one(group="g")

    await driver.delete_message(3)

    assert (await driver.stats(group="g")).oldest_at == pushed_at
    await driver.ack(held)
    assert (await driver.stats(group="g")).oldest_at == pushed_at
    assert payloads(await driver.pop(group="g")) == ["b"]
