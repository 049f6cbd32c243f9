"""Scheduled messages: listing, cancelling and moving them, and letting them enter the log.

The one writing connection does all of this, so a message is promoted, cancelled or moved, and never two of these.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import islice

from skep.clock import Instant
from skep.ids import Id
from skep.model import QueueKey, Seq
from skep.model.scheduled import (
    WALK_ROWS,
    Change,
    Changed,
    ScheduledChange,
    ScheduledCount,
    ScheduledFilter,
    ScheduledMessage,
    ScheduledPage,
    ScheduledPosition,
    ScheduledRow,
    Walk,
    walk_rows,
)
from skep.store.sqlite.database import Part, read
from skep.store.sqlite.push import SQL as PUSH_SQL
from skep.store.sqlite.push import advance, next_place
from skep.store.sqlite.session import QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "scheduled")
FORGET_SQL = load_statements(__package__, "forget")


def page(
    session: Session, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int, preview_bytes: int | None
) -> ScheduledPage:
    """A page in the order of time."""
    fitting, next_after = _fitting(session, wanted, after, limit)
    return ScheduledPage([_show(session, wanted.tenant, one, preview_bytes) for one in fitting], next_after)


def count(session: Session, wanted: ScheduledFilter, after: ScheduledPosition | None) -> ScheduledCount:
    """How many messages of one bounded walk match."""
    fitting, next_after = _fitting(session, wanted, after, WALK_ROWS)
    return ScheduledCount(len(fitting), next_after)


def mark(session: Session, key: QueueKey) -> int:
    """The greatest arrival number that was ever given out."""
    session.queue(key)
    row = session.row(SQL["mark"])
    return 0 if row is None else int(row[0])


def change(
    session: Session,
    wanted: ScheduledFilter,
    what: Change,
    deliver_at: Instant | None,
    after: ScheduledPosition | None,
    limit: int,
    now: Instant,
) -> ScheduledChange:
    """Change at most ``limit`` matching messages, in the order of due times."""
    queue = session.queue(wanted.key)
    fitting, next_after = _walk(session, wanted, after, walk_rows(wanted, limit)).step(wanted, limit)
    changed = [Changed(one.id) for one in fitting]
    match what:
        case Change.RUN:
            rows = [row for one in fitting if (row := session.row(SQL["whole"], (one.arrival,))) is not None]
            first = enter_log(session, queue, rows, now)
            changed = [Changed(one.id, Seq(first + number)) for number, one in enumerate(fitting)]
        case Change.CANCEL | Change.FORGET:
            if what is Change.FORGET:
                keys = [
                    (queue.id, one.transaction_id, one.partition, one.id)
                    for one in fitting
                    if one.transaction_id is not None
                ]
                session.db.executemany(FORGET_SQL["forget_key"], keys)
                session.cut_log_soon()
            session.db.executemany(SQL["delete"], [(one.arrival,) for one in fitting])
            queue.scheduled -= len(fitting)
            session.touch_queue(queue)
        case Change.MOVE:
            session.db.executemany(SQL["arrive_anew"], [(one.arrival, deliver_at) for one in fitting])
            session.db.executemany(SQL["delete"], [(one.arrival,) for one in fitting])
    return ScheduledChange(changed, next_after)


def enter_log(session: Session, queue: QueueRow, rows: list[Row], now: Instant) -> int:
    """Move messages from the schedule into the log, in the given order; returns the first seq."""
    at, seq = next_place(queue, now)
    if not rows:
        return seq
    placed = list(enumerate(rows, seq))
    session.db.executemany(
        PUSH_SQL["append"],
        [
            (
                queue.base | n,
                queue.id,
                at,
                priority,
                None,
                id_,
                queue.stored_partition(partition),
                transaction_id,
                trace_id,
                *rest,
            )
            for n, (_, _, priority, id_, partition, transaction_id, trace_id, *rest) in placed
        ],
    )
    session.db.executemany(SQL["delete"], [(row[0],) for row in rows])
    session.db.executemany(
        SQL["give_key_its_seq"], [(queue.id, row[5], row[4], row[3], n) for n, row in placed if row[5] is not None]
    )
    advance(queue, len(rows), at)
    queue.scheduled -= len(rows)
    session.touch_queue(queue)
    return seq


def _fitting(
    session: Session, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int
) -> tuple[list[ScheduledRow], ScheduledPosition | None]:
    if wanted.queue is not None:
        session.queue(wanted.key)
    return _walk(session, wanted, after, walk_rows(wanted, limit)).page(wanted, limit)


def _walk(session: Session, wanted: ScheduledFilter, after: ScheduledPosition | None, most: int) -> Walk:
    """The next messages that may match, in the order of time, by the index that narrows most."""
    start = wanted.start(after)
    span = (*start, wanted.end, most)
    if wanted.ids is not None:
        return _named(session, wanted.tenant, _with_ids(session, wanted.ids, start), None)
    if wanted.transaction_id is not None:
        rows = session.rows(SQL["with_transaction_id"], (wanted.transaction_id, *span))
        return _named(session, wanted.tenant, rows, _end(rows, most))
    if wanted.trace_id is not None:
        rows = session.rows(SQL["with_trace_id"], (wanted.trace_id, *span))
        end = _end(rows, most)
        rows += [row for row in _with_ids(session, [wanted.trace_id], start) if end is None or _place(row) <= end]
        return _named(session, wanted.tenant, sorted(rows, key=_place), end)
    queue = None if wanted.queue is None else session.queue(wanted.key)
    if queue is not None:
        found = [ScheduledRow(queue.key.name, *row) for row in session.rows(SQL["walk"], (queue.id, *span))]
    else:
        found = _walk_all(session, wanted.tenant, span, most)
    return Walk(found, found[-1].place if len(found) == most else None)


def _walk_all(session: Session, tenant: str, span: tuple[int, ...], most: int) -> list[ScheduledRow]:
    """The first messages over all queues of a tenant. Each queue is read only as far as needed."""
    queues = session.rows(SQL["queues_with_schedule"], (tenant,))
    cursors = [(name, session.db.execute(SQL["walk"], (id_, *span))) for id_, name in queues]
    try:
        walks = [(ScheduledRow(name, *row) for row in cursor) for name, cursor in cursors]
        return list(islice(heapq.merge(*walks, key=lambda one: one.place), most))
    finally:
        for _, cursor in cursors:
            cursor.close(True)


def _with_ids(session: Session, ids: Sequence[Id], start: ScheduledPosition) -> list[Row]:
    rows = [row for id_ in dict.fromkeys(ids) for row in session.rows(SQL["with_id"], (id_,))]
    return sorted((row for row in rows if _place(row) > start), key=_place)


def _place(row: Row) -> ScheduledPosition:
    return ScheduledPosition(row[1], row[2])


def _end(rows: list[Row], most: int) -> ScheduledPosition | None:
    return _place(rows[-1]) if len(rows) == most else None


def _named(session: Session, tenant: str, rows: list[Row], end: ScheduledPosition | None) -> Walk:
    """The rows of this tenant, with the names of their queues."""
    names: dict[int, str | None] = {}
    for queue_id in {row[0] for row in rows}:
        found = session.row(SQL["queue_name"], (queue_id, tenant))
        names[queue_id] = None if found is None else found[0]
    return Walk([ScheduledRow(name, *row) for row in rows if (name := names[row[0]]) is not None], end)


def _show(session: Session, tenant: str, one: ScheduledRow, preview_bytes: int | None) -> ScheduledMessage:
    row = session.one(SQL["show"], (one.arrival, preview_bytes))  # the walk that found it saw the same snapshot
    return ScheduledMessage(
        queue=QueueKey(one.queue, tenant), place=ScheduledPosition(row[0], row[1]), id=row[2], partition=row[3], transaction_id=row[4],
        trace_id=row[5], headers=row[6], content_type=row[7], payload=row[8], payload_bytes=row[9], priority=row[10],
    )  # fmt: skip


class SqliteScheduled(Part):
    """Implements `skep.store.protocol.scheduled.ScheduledStore`."""

    page = read(page)
    count = read(count)
    mark = read(mark)

    async def change(
        self,
        wanted: ScheduledFilter,
        what: Change,
        deliver_at: Instant | None,
        after: ScheduledPosition | None,
        limit: int,
        now: Instant,
    ) -> ScheduledChange:
        """Change at most ``limit`` matching messages, as one piece of a chore."""
        return await self._db.piece(
            f"{what} scheduled",
            lambda session, size: change(session, wanted, what, deliver_at, after, size, now),
            limit,
            lambda step: step.after is not None,
        )
