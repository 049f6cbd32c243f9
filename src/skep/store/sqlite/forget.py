"""Forgetting messages for good: out of the log, with all copies and texts of them that a row leads to. A tombstone stays.

What stems from a message are its dead letters, in whichever queue they lie, the messages that replays made of these, and so on.
A step is one transaction over a bounded number of messages, each with all that stems from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct

from skep.clock import Instant
from skep.model import QueueKey, Seq
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
from skep.store.replay_steps import LOOKED_PER_STEP
from skep.store.sqlite.database import Database
from skep.store.sqlite.dead_letters import remove
from skep.store.sqlite.gone import Gone, fence
from skep.store.sqlite.session import MAX_SEQ, SEQ_BITS, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "forget")

_ALL = -1
"""No limit, in SQLite's terms."""


class LetterSpot(NamedTuple):
    """A seq of some queue."""

    queue_id: int
    seq: int


class StoredLetter(NamedTuple):
    """A message that is still there."""

    position: int
    id: bytes
    partition: str
    transaction_id: str | None
    trace_id: bytes | None
    audience: int | None


class Family(Struct):
    """Chosen messages, and the places of all that stems from them, whether something is still there or not."""

    chosen: list[SeqRange]
    roots: list[StoredLetter]
    places: set[LetterSpot]


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
    """Forget the first messages of some ranges, one piece per call."""
    if dry_run:
        return await (db.reader or db.writer).call(_forget, (key, log, ranges, after, limit, now, dry_run))
    return await db.piece(
        "forget",
        lambda session, size: _forget(session, key, log, ranges, after, size, now, dry_run),
        limit,
        lambda step: step.after is not None,
    )


def _forget(
    session: Session,
    key: QueueKey,
    log: Instant | None,
    ranges: Sequence[SeqRange],
    after: Seq,
    limit: int,
    now: Instant,
    dry_run: bool,
) -> ForgetStep:
    queue = session.queue(key)
    check_log(key.name, log, queue.created_at)
    check_ranges(key.name, ranges, queue.last_seq)
    family, reached = _choose(session, queue, ranges, after, limit)
    step = ForgetStep(
        messages=len(family.roots),
        queues=[key],
        after=None if not ranges or reached >= ranges[-1].last else Seq(reached),
    )
    if not dry_run:
        _erase(session, queue, family.roots, family.chosen, now)
    for queue_id, seqs in _by_queue(family.places).items():
        other = _queue(session, queue_id)
        if other is None:  # it was deleted: a sweep removes it with all it holds
            continue
        stored = _stored(session, queue_id, seqs)
        letters = sum(session.row(SQL["is_letter"], (one.position,)) is not None for one in stored)
        step.letters += letters
        step.copies += len(stored) - letters
        step.queues.append(other.key)
        if not dry_run:
            _erase(session, other, stored, runs_of(seqs), now)
    session.cut_log_soon()
    return step


def _choose(
    session: Session, queue: QueueRow, ranges: Sequence[SeqRange], after: int, limit: int
) -> tuple[Family, int]:
    """The first ``limit`` messages of the ranges, with all that stems from them, and the seq up to which they were looked for."""
    looked = first_of(within(ranges, after, MAX_SEQ), limit)
    if not looked:
        return Family([], [], set()), after
    reached = looked[-1].last
    roots: list[StoredLetter] = []
    letters: list[Row] = []
    for first, last in looked:
        roots += _messages(session, queue.id, first, min(last, reached), limit - len(roots))
        if len(roots) >= limit:
            reached = min(reached, roots[-1].position & MAX_SEQ)
        bounds = (queue.id, first, min(last, reached))
        letters += session.rows(SQL["letters"], (*bounds, limit - len(letters)))
        if len(letters) >= limit:
            reached = min(reached, letters[-1][0])
        if reached < last:
            break
    roots = [one for one in roots if one.position & MAX_SEQ <= reached]
    chosen = within(looked, after, reached)
    return Family(chosen, roots, _stems(session, queue, chosen, roots)), reached


def _stems(
    session: Session, queue: QueueRow, chosen: Sequence[SeqRange], roots: Sequence[StoredLetter]
) -> set[LetterSpot]:
    """The places of all that stems from chosen messages, apart from chosen ones."""
    found: set[LetterSpot] = set()
    new: set[LetterSpot] = set()
    for first, last in chosen:
        new |= _letters(session, queue.id, first, last)
        new |= _replayed(session.rows(SQL["replays_of_letters"], (queue.id, first, last)))
    for root in roots:
        new |= _replayed(session.rows(SQL["replays_of_id"], (root.id,)))
    while new:
        new = {place for place in new - found if place.queue_id != queue.id or not _is_in(chosen, place.seq)}
        found |= new
        before, new = new, set()
        for queue_id, seq in before:
            new |= _letters(session, queue_id, seq, seq)
            new |= _replayed(session.rows(SQL["replays_of_letters"], (queue_id, seq, seq)))
            for one in _messages(session, queue_id, seq, seq, 1):
                new |= _replayed(session.rows(SQL["replays_of_id"], (one.id,)))
        new -= found
    return found


def _is_in(ranges: Sequence[SeqRange], seq: int) -> bool:
    return any(first <= seq <= last for first, last in ranges)


def _letters(session: Session, queue_id: int, first: int, last: int) -> set[LetterSpot]:
    rows = session.rows(SQL["letters"], (queue_id, first, last, _ALL))
    return {LetterSpot(position >> SEQ_BITS, position & MAX_SEQ) for _, position in rows}


def _replayed(rows: Iterable[Row]) -> set[LetterSpot]:
    """The places of replayed letters, and of the messages that the replays made."""
    return {place for row in rows for place in (LetterSpot(row[0], row[1]), LetterSpot(row[2], row[3]))}


def _messages(session: Session, queue_id: int, first: int, last: int, limit: int) -> list[StoredLetter]:
    base = queue_id << SEQ_BITS
    return [StoredLetter(*row) for row in session.rows(SQL["messages"], (base | first, base | last, limit))]


def _stored(session: Session, queue_id: int, seqs: Iterable[int]) -> list[StoredLetter]:
    return [one for seq in seqs for one in _messages(session, queue_id, seq, seq, 1)]


def _by_queue(places: Iterable[LetterSpot]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for queue_id, seq in sorted(places):
        found.setdefault(queue_id, []).append(seq)
    return found


def _queue(session: Session, queue_id: int) -> QueueRow | None:
    """The queue with this id; None when it was deleted."""
    row = session.row(SQL["queue_of_id"], (queue_id,))
    return None if row is None else session.find_queue(QueueKey(row[1], row[0]))


def _erase(
    session: Session, queue: QueueRow, stored: Sequence[StoredLetter], ranges: Sequence[SeqRange], now: Instant
) -> None:
    """Delete messages, and all that is kept about these seqs; leave tombstones."""
    gone = [Gone(one.position & MAX_SEQ, one.partition, one.audience) for one in stored]
    fence(session, queue, gone, now)
    remove(session, queue, gone, now)
    session.flush()
    keys = [(queue.id, one.transaction_id, one.partition, one.id) for one in stored if one.transaction_id is not None]
    session.db.executemany(SQL["forget_key"], keys)
    events = [(queue.key.tenant, one.trace_id or one.id, one.id) for one in stored]
    session.db.executemany(SQL["forget_events"], events)
    for first, last in ranges:
        for statement in ("forget_failures", "forget_replays_of_letters", "forget_replays_to"):
            session.db.execute(SQL[statement], (queue.id, first, last))
    _leave_tombstones(session, queue, ranges, now)


def _leave_tombstones(session: Session, queue: QueueRow, ranges: Sequence[SeqRange], now: Instant) -> None:
    """Note the seqs that were not forgotten before."""
    known: list[SeqRange] = []
    for first, last in ranges:
        before = session.row(SQL["tombstone_before"], (queue.id, first))
        known += [] if before is None else [SeqRange(*before)]
        known += [SeqRange(*row) for row in session.rows(SQL["tombstones_within"], (queue.id, first, last))]
    position = last_tombstone(session, queue)
    rows = [
        (queue.id, position + number, first, last, now)
        for number, (first, last) in enumerate(without(ranges, known), 1)
    ]
    session.db.executemany(SQL["add_tombstone"], rows)


def last_tombstone(session: Session, queue: QueueRow) -> int:
    """The position of the newest tombstone of a log; 0 when nothing was forgotten."""
    row = session.row(SQL["last_tombstone"], (queue.id,))
    return 0 if row is None else int(row[0])


def tombstones(session: Session, key: QueueKey, after: int, limit: int) -> Forgotten:
    """The tombstones of a log after a position."""
    queue = session.queue(key)
    rows = session.rows(SQL["tombstones"], (queue.id, after, limit))
    return Forgotten(queue.created_at, [Tombstone(*row) for row in rows])


def letters_of_source(session: Session, wanted: ForgetFilter, after: LetterPlace) -> FoundLetters:
    """The dead letters of a queue that match, among the next few."""
    queue = session.queue(wanted.queue)
    check_log(queue.key.name, wanted.log, queue.created_at)
    behind = after.queue_id << SEQ_BITS | after.seq
    rows = session.rows(SQL["letters_of_source"], (queue.id, after.source_seq, behind, LOOKED_PER_STEP))
    letters: list[FoundLetter] = []
    for source_seq, position, partition, transaction_id, trace_id in rows:
        other = _queue(session, position >> SEQ_BITS)
        if (
            other is not None
            and wanted.partition in (None, partition)
            and wanted.transaction_id in (None, transaction_id)
            and wanted.trace_id in (None, trace_id)
        ):
            letters.append(FoundLetter(other.key, Seq(position & MAX_SEQ), Seq(source_seq)))
    if len(rows) < LOOKED_PER_STEP:
        return FoundLetters(letters, None)
    source_seq, position = rows[-1][:2]
    return FoundLetters(letters, LetterPlace(source_seq, position >> SEQ_BITS, position & MAX_SEQ))
