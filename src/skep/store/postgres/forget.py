"""Forgetting messages for good: out of the log, with all copies and texts of them that a row leads to. A tombstone stays.

What stems from a message are its dead letters, in whichever queue they lie, the messages that replays made of these, and so on.
A step is one transaction over a bounded number of messages, each with all that stems from it. It has all concerned groups alone, and
holds all concerned logs: so nothing is buried, replayed or deleted meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import asyncpg
from msgspec import Struct

from skep.clock import Instant
from skep.model import Queue, QueueKey, Seq
from skep.model.forgetting import (
    ForgetFilter,
    ForgetStep,
    Forgotten,
    FoundLetter,
    FoundLetters,
    LetterPlace,
    SeqRange,
    Tombstone,
    check_log,
    check_ranges,
    first_of,
    runs_of,
    within,
    without,
)
from skep.store.postgres import dead_letters, queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.rows import struct_of
from skep.store.replay_steps import LOOKED_PER_STEP
from skep.store.rules import SEQ_MAX
from skep.store.statements import load_statements

SQL = load_statements(__package__, "forget")

_ALL = 2**31 - 1
"""No limit that matters."""


class LetterSpot(NamedTuple):
    """A seq of some queue."""

    queue_id: int
    seq: int


class Family(Struct):
    """Chosen messages, and the places of all that stems from them, whether something is still there or not."""

    chosen: list[SeqRange]
    roots: list[asyncpg.Record]
    places: set[LetterSpot]
    reached: int

    @property
    def by_queue(self) -> dict[int, list[int]]:
        """The places, by queue."""
        found: dict[int, list[int]] = {}
        for queue_id, seq in sorted(self.places):
            found.setdefault(queue_id, []).append(seq)
        return found


async def forget(
    db: Database,
    key: QueueKey,
    log: Instant | None,
    ranges: Sequence[SeqRange],
    after: Seq,
    limit: int,
    now: Instant,
    dry_run: bool = False,
) -> ForgetStep:
    """Forget the first messages of some ranges."""
    if dry_run:
        return (await db.pool.transaction(_would_forget, key, log, ranges, after, limit))[0]
    step, changed = await db.pool.piece(
        "forget",
        lambda c, size: _forget(c, key, log, ranges, after, size, now, db.shard),
        limit,
        lambda done: done[0].after is not None,
    )
    await db.tell_waiting(changed, now)
    return step


async def _would_forget(
    connection: Connection, key: QueueKey, log: Instant | None, ranges: Sequence[SeqRange], after: Seq, limit: int
) -> tuple[ForgetStep, list[int]]:
    queue = await _checked(connection, key, log, ranges)
    family = await _choose(connection, queue, ranges, after, limit)
    return await _told(connection, queue, family, ranges)


async def _forget(
    connection: Connection,
    key: QueueKey,
    log: Instant | None,
    ranges: Sequence[SeqRange],
    after: Seq,
    limit: int,
    now: Instant,
    shard: int,
) -> tuple[ForgetStep, list[int]]:
    """Also returns the ids of the queues that changed, where messages may be ready now."""
    queue = await _checked(connection, key, log, ranges)
    # A read without locks tells which groups and logs to lock: all at once, in the common order of locks.
    family = await _choose(connection, queue, ranges, after, limit)
    locked = sorted({queue.id, *family.by_queue})
    for queue_id in locked:
        await connection.execute(SQL["take_groups"], queue_id, True)
    for queue_id in locked:
        await connection.execute(SQL["lock_log"], queue_id)
    for queue_id in locked:
        # Also the groups that were made before the log was locked.
        await connection.execute(SQL["take_groups"], queue_id, False)
    family = await _choose(connection, queue, ranges, after, limit)
    if not {queue.id, *family.by_queue} <= set(locked):
        raise asyncpg.SerializationError("messages were buried or replayed at this very moment")
    step, touched = await _told(connection, queue, family, ranges)
    stored = {queue.id: list(family.roots)}
    for row in await _stored(connection, family.places):
        stored.setdefault(row["queue_id"], []).append(row)
    for queue_id in touched:
        await connection.execute(SQL["lock_groups"], queue_id)
    for queue_id in touched:
        if rows := stored.get(queue_id):
            partitions = [row["partition"] for row in rows]
            await connection.execute(SQL["fence"], queue_id, [row["seq"] for row in rows], partitions, now)
    chosen = {queue_id: runs_of(seqs) for queue_id, seqs in family.by_queue.items()}
    chosen[queue.id] = sorted([*family.chosen, *chosen.get(queue.id, ())])
    for queue_id in touched:
        rows = sorted(stored.get(queue_id, ()), key=lambda row: int(row["seq"]))
        await dead_letters.remove(connection, queue_id, [row["seq"] for row in rows], now, shard)
        await _forget_rows(connection, queue_id, key.tenant, rows, chosen[queue_id], now)
    return step, touched


async def _checked(connection: Connection, key: QueueKey, log: Instant | None, ranges: Sequence[SeqRange]) -> Queue:
    queue = await queues.need(connection, key)
    check_log(key.name, log, queue.created_at)
    check_ranges(key.name, ranges, await connection.fetchval(SQL["last_seq"], queue.id))
    return queue


async def _told(
    connection: Connection, queue: Queue, family: Family, ranges: Sequence[SeqRange]
) -> tuple[ForgetStep, list[int]]:
    """What a step does, and the ids of the queues that it changes, without those that were deleted meanwhile."""
    others = {row["id"]: row for row in await connection.fetch(SQL["queues"], list(family.by_queue))}
    family.places = {place for place in family.places if place.queue_id in others}
    stored = await _stored(connection, family.places)
    letters = sum(row["is_letter"] for row in stored)
    end = None if not ranges or family.reached >= ranges[-1].last else Seq(family.reached)
    names = [QueueKey(row["name"], row["tenant"]) for id_, row in others.items() if id_ != queue.id]
    step = ForgetStep(len(family.roots), [queue.key, *names], end, letters, len(stored) - letters)
    return step, sorted({queue.id, *others})


async def _choose(connection: Connection, queue: Queue, ranges: Sequence[SeqRange], after: int, limit: int) -> Family:
    """The first ``limit`` messages of the ranges, with all that stems from them."""
    looked = first_of(within(ranges, after, SEQ_MAX), limit)
    if not looked:
        return Family([], [], set(), after)
    reached = looked[-1].last
    roots = await connection.fetch(SQL["messages"], queue.id, *_columns(looked), limit)
    if len(roots) >= limit:
        reached = min(reached, roots[-1]["seq"])
    letters = await _letters(connection, queue, within(looked, after, reached), limit)
    if len(letters) >= limit:
        reached = min(reached, letters[-1]["source_seq"])
    roots = [row for row in roots if row["seq"] <= reached]
    chosen = within(looked, after, reached)
    return Family(chosen, roots, await _stems(connection, queue, chosen, roots), reached)


async def _letters(
    connection: Connection, queue: Queue, ranges: Sequence[SeqRange], limit: int
) -> list[asyncpg.Record]:
    return await connection.fetch(SQL["letters"], queue.key.name, *_columns(ranges), limit, queue.key.tenant)


async def _stems(
    connection: Connection, queue: Queue, chosen: Sequence[SeqRange], roots: Sequence[asyncpg.Record]
) -> set[LetterSpot]:
    """The places of all that stems from chosen messages, apart from chosen ones."""
    ids = {row["seq"]: row["id"] for row in roots}
    new = {
        LetterSpot(row["queue_id"], row["seq"])
        for row in await _letters(connection, queue, chosen, _ALL)
        # An earlier queue of that name may have left letters with the same seqs.
        if ids.get(row["source_seq"]) == row["id"]
        or (row["source_seq"] not in ids and row["created_at"] >= queue.created_at)
    }
    firsts, lasts = _columns(chosen)
    new |= _replayed(await connection.fetch(SQL["replays_of_letters"], [queue.id] * len(chosen), firsts, lasts))
    new |= _replayed(await connection.fetch(SQL["replays_of_ids"], list(ids.values())))
    found: set[LetterSpot] = set()
    while new := {place for place in new - found if place.queue_id != queue.id or not _is_in(chosen, place.seq)}:
        found |= new
        new = await _next_stems(connection, new)
    return found


async def _next_stems(connection: Connection, places: set[LetterSpot]) -> set[LetterSpot]:
    """What directly stems from the messages that are, or were, at these places."""
    there = {LetterSpot(row["queue_id"], row["seq"]): row["id"] for row in await _stored(connection, places)}
    ordered = sorted(places)
    queue_ids, seqs = [one.queue_id for one in ordered], [one.seq for one in ordered]
    letters = await connection.fetch(SQL["letters_of"], queue_ids, seqs, [there.get(one) for one in ordered])
    return (
        {LetterSpot(row["queue_id"], row["seq"]) for row in letters}
        | _replayed(await connection.fetch(SQL["replays_of_letters"], queue_ids, seqs, seqs))
        | _replayed(await connection.fetch(SQL["replays_of_ids"], list(there.values())))
    )


def _is_in(ranges: Sequence[SeqRange], seq: int) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def _replayed(rows: Iterable[asyncpg.Record]) -> set[LetterSpot]:
    """The places of replayed letters, and of the messages that the replays made."""
    return {
        place
        for row in rows
        for place in (LetterSpot(row["dead_queue"], row["dead_seq"]), LetterSpot(row["queue_id"], row["seq"]))
    }


async def _stored(connection: Connection, places: Iterable[LetterSpot]) -> list[asyncpg.Record]:
    """The messages at these places, in order, as far as they are still there."""
    ordered = sorted(places)
    if not ordered:
        return []
    return await connection.fetch(SQL["stored"], [one.queue_id for one in ordered], [one.seq for one in ordered])


async def _forget_rows(
    connection: Connection,
    queue_id: int,
    tenant: str,
    rows: Sequence[asyncpg.Record],
    ranges: Sequence[SeqRange],
    now: Instant,
) -> None:
    """Delete what is kept about messages beside the log, and leave tombstones for the seqs that were not forgotten before."""
    named = [row for row in rows if row["transaction_id"] is not None]
    await connection.execute(
        SQL["forget_keys"], queue_id, [row["transaction_id"] for row in named], [row["partition"] for row in named],
        [row["id"] for row in named],
    )  # fmt: skip
    await connection.execute(
        SQL["forget_events"], tenant, [row["trace_id"] for row in rows], [row["id"] for row in rows]
    )
    firsts, lasts = _columns(ranges)
    await connection.execute(SQL["forget_failures"], queue_id, firsts, lasts)
    await connection.execute(SQL["forget_replays"], queue_id, firsts, lasts)
    known = await connection.fetch(SQL["known_tombstones"], queue_id, firsts, lasts)
    fresh = list(without(ranges, [SeqRange(*row) for row in known]))
    await connection.execute(SQL["add_tombstones"], queue_id, *_columns(fresh), now)


def _columns(ranges: Sequence[SeqRange]) -> tuple[list[int], list[int]]:
    return [one.first for one in ranges], [one.last for one in ranges]


async def tombstones(connection: Connection, key: QueueKey, after: int, limit: int) -> Forgotten:
    """The tombstones of a log after a position."""
    queue = await queues.need(connection, key)
    rows = await connection.fetch(SQL["tombstones"], queue.id, after, limit)
    return Forgotten(queue.created_at, [struct_of(Tombstone, row) for row in rows])


async def letters_of_source(connection: Connection, wanted: ForgetFilter, after: LetterPlace) -> FoundLetters:
    """The dead letters of a queue that match, among the next few."""
    queue = await queues.need(connection, wanted.queue)
    check_log(queue.key.name, wanted.log, queue.created_at)
    rows = await connection.fetch(
        SQL["letters_of_source"], queue.key.name, *after, LOOKED_PER_STEP, queue.key.tenant, queue.created_at
    )
    letters = [
        FoundLetter(QueueKey(row["name"], queue.key.tenant), Seq(row["seq"]), Seq(row["source_seq"]))
        for row in rows
        if row["fits"]
        and wanted.partition in (None, row["partition"])
        and wanted.transaction_id in (None, row["transaction_id"])
        and wanted.trace_id in (None, row["trace_id"])
    ]
    if len(rows) < LOOKED_PER_STEP:
        return FoundLetters(letters, None)
    return FoundLetters(letters, LetterPlace(rows[-1]["source_seq"], rows[-1]["queue_id"], rows[-1]["seq"]))
