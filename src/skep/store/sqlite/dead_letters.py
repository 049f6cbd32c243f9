"""Dead letters: reading, replaying and purging them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    FROM_BEGINNING,
    NO_GROUP,
    DeadLetter,
    DeadLetterFilter,
    DeadReason,
    Edited,
    PurgeStep,
    QueueKey,
    Replayed,
    ReplayStep,
    Seq,
)
from skep.model.history import ReplayRecord
from skep.model.record import MAX_BYTES
from skep.store.replay_steps import LOOKED_PER_STEP, span
from skep.store.rules import check_sealed
from skep.store.sqlite import order
from skep.store.sqlite.database import Database
from skep.store.sqlite.discover import open_group
from skep.store.sqlite.gone import Gone, forget_messages
from skep.store.sqlite.push import SQL as PUSH_SQL
from skep.store.sqlite.push import advance, next_place
from skep.store.sqlite.session import MAX_SEQ, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "dead_letters")

_NO_LIMIT = -1


def dead_letters(
    session: Session, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
) -> list[DeadLetter]:
    """Dead letters by seq. The letter that reaches ``max_bytes`` is the last; later ones are not read."""
    queue = dead_queue(session, wanted.queue)
    letters: list[DeadLetter] = []
    for row in _found(session, queue, wanted, (after or 0) + 1, MAX_SEQ, limit):
        letters.append(_dead_letter(queue, row))
        max_bytes -= len(letters[-1].payload)
        if max_bytes <= 0:
            break
    return letters


def count_dead_letters(session: Session, wanted: DeadLetterFilter) -> int:
    """How many letters match."""
    queue = dead_queue(session, wanted.queue)
    found = session.db.execute(SQL["count_dead"], _parameters(queue, wanted, 1, MAX_SEQ, _NO_LIMIT)).get
    assert isinstance(found, int)
    return found


async def replay(
    db: Database,
    wanted: DeadLetterFilter,
    ids: Sequence[Id],
    until: Seq,
    now: Instant,
    edited: Edited | None = None,
    after: Seq | None = None,
) -> ReplayStep:
    """Move the oldest matches back to their source queues, one piece per call."""
    return await db.piece(
        "replay",
        lambda session, size: _replay(session, wanted, ids[:size], until, now, edited, after),
        len(ids),
        lambda step: step.after is not None,
    )


def _replay(
    session: Session,
    wanted: DeadLetterFilter,
    ids: Sequence[Id],
    until: Seq,
    now: Instant,
    edited: Edited | None,
    after: Seq | None,
) -> ReplayStep:
    """Move matches back to their source queues, only for the group that gave them up."""
    queue = dead_queue(session, wanted.queue)
    rows, end = _look(session, queue, wanted, after, until, len(ids))
    replayed = [_send_back(session, queue, row, id_, now, edited) for row, id_ in zip(rows, ids, strict=False)]
    remove(session, queue, _gone(rows), now)
    return ReplayStep(replayed, end)


def replays(
    session: Session, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
) -> list[ReplayRecord]:
    """The replays from a dead-letter queue, newest letters first."""
    queue = dead_queue(session, key)
    end = MAX_SEQ + 1 if before is None else min(before, MAX_SEQ + 1)
    return [
        ReplayRecord(
            dead_seq=Seq(row[0]), dead_id=row[1], queue=row[2], seq=Seq(row[3]), id=row[4], group=row[5],
            reason=None if row[6] is None else DeadReason(row[6]), error=row[7], attempts=row[8], replayed_at=row[9],
        )
        for row in session.rows(SQL["replays"], (queue.id, end, source_queue, limit))
    ]  # fmt: skip


async def purge(
    db: Database, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None
) -> PurgeStep:
    """Delete matches, one piece per call."""
    return await db.piece(
        "purge",
        lambda session, size: _purge(session, wanted, size, now, after),
        limit,
        lambda step: step.after is not None,
    )


def _purge(session: Session, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None) -> PurgeStep:
    queue = dead_queue(session, wanted.queue)
    rows, end = _look(session, queue, wanted, after, Seq(MAX_SEQ), limit)
    remove(session, queue, _gone(rows), now)
    if rows:
        session.cut_log_soon()
    return PurgeStep(len(rows), end)


def _look(
    session: Session, queue: QueueRow, wanted: DeadLetterFilter, after: Seq | None, until: Seq, limit: int
) -> tuple[list[Row], Seq | None]:
    """The first matches of one bounded look, and the seq after which the next look begins (None: it was the last)."""
    first, last = span(wanted, after, min(until, MAX_SEQ))
    if first > last:
        return [], None
    rows = list(_found(session, queue, wanted, first, last, limit, LOOKED_PER_STEP))
    if rows and len(rows) >= limit:
        return rows, Seq(rows[-1][0] & MAX_SEQ)
    cut = session.row(SQL["nth_dead"], (queue.base | first, queue.base | last, LOOKED_PER_STEP - 1))
    return rows, None if cut is None else Seq(cut[0] & MAX_SEQ)


def dead_queue(session: Session, key: QueueKey) -> QueueRow:
    """The queue; NOT_A_DEAD_LETTER_QUEUE when it holds no dead letters."""
    queue = session.queue(key)
    if not queue.holds_dead_letters:
        raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"queue {key.name!r} is not a dead-letter queue", queue=key.name)
    return queue


def _found(
    session: Session,
    queue: QueueRow,
    wanted: DeadLetterFilter,
    first: int,
    last: int,
    limit: int,
    looked: int = _NO_LIMIT,
) -> Iterator[Row]:
    """Matching rows, read one by one."""
    parameters = _parameters(queue, wanted, first, last, limit) | {"looked": looked}
    cursor = session.db.execute(SQL["find_dead"], parameters)
    try:
        yield from cursor
    finally:
        cursor.close()


def _parameters(queue: QueueRow, wanted: DeadLetterFilter, first: int, last: int, limit: int) -> dict[str, Any]:
    ids, seqs = wanted.ids, wanted.seqs
    last = last if wanted.up_to is None else min(last, wanted.up_to)
    return {
        "base": queue.base,
        "first": queue.base | min(first, MAX_SEQ),
        "last": queue.base | last,
        "ids": None if ids is None else msgspec.json.encode([id_.hex() for id_ in ids]).decode(),
        "seqs": None if seqs is None else msgspec.json.encode(seqs).decode(),
        "source_queue": wanted.source_queue,
        "partition": wanted.partition,
        "group": wanted.group,
        "reason": wanted.reason,
        "error_contains": wanted.error_contains,
        "since": wanted.since,
        "until": wanted.until,
        "limit": limit,
    }


def _dead_letter(queue: QueueRow, row: Row) -> DeadLetter:
    return DeadLetter(
        queue=queue.key,
        seq=Seq(row[0] & MAX_SEQ),
        id=row[1],
        partition=row[2],
        source_queue=row[3],
        source_seq=row[4],
        group=row[5],
        reason=DeadReason(row[6]),
        error=row[7],
        attempts=row[8],
        transaction_id=row[9],
        trace_id=row[10],
        headers=row[11],
        content_type=row[12],
        payload=row[13],
        created_at=row[14],
        failed_at=row[15],
    )


def _send_back(
    session: Session, dead_queue: QueueRow, row: Row, id_: Id, now: Instant, edited: Edited | None
) -> Replayed:
    """Append a dead letter to its source queue, for the group that gave it up. A missing group is made as by a pop."""
    letter = _dead_letter(dead_queue, row)
    order.check(session, [(QueueKey(letter.source_queue, dead_queue.key.tenant), letter.partition)])
    queue = session.queue(QueueKey(letter.source_queue, dead_queue.key.tenant))
    if edited is not None:
        check_sealed(queue.key.name, queue.settings.encryption_enabled, edited.content_type)
    audience = None
    if letter.group != NO_GROUP:
        audience = open_group(session, queue, letter.group, FROM_BEGINNING, now).id
    at, seq = next_place(queue, now)
    session.db.execute(
        PUSH_SQL["append"],
        (
            queue.base | seq, queue.id, at, row[16], audience, id_, queue.stored_partition(letter.partition), letter.transaction_id,
            letter.trace_id, *((letter.content_type, letter.headers, letter.payload) if edited is None else
            (edited.content_type, edited.headers, edited.payload)),
        ),
    )  # fmt: skip
    advance(queue, 1, at)
    why = (letter.group, letter.reason, letter.error, letter.attempts)
    session.db.execute(SQL["add_replay"], (now, dead_queue.id, letter.seq, letter.id, queue.id, seq, id_, *why))
    return Replayed(letter.seq, queue.key, id_, Seq(seq))


def _gone(rows: list[Row]) -> list[Gone]:
    return [Gone(row[0] & MAX_SEQ, row[18], row[17]) for row in rows]


def remove(session: Session, queue: QueueRow, gone: list[Gone], now: Instant) -> None:
    """Delete messages and their dead-letter rows, and correct the queue's groups."""
    if not gone:
        return
    positions = [(queue.base | one.seq,) for one in gone]
    session.db.executemany(SQL["delete_message"], positions)
    session.db.executemany(SQL["delete_dead_letter"], positions)
    queue.floor_seq = max(queue.floor_seq, gone[-1].seq)
    queue.gaps += sum(one.seq >= queue.first_seq for one in gone)
    session.touch_queue(queue)
    forget_messages(session, queue, gone, now)
