"""Changes that servers announce to each other through the store: written in the transaction that makes them, read in commit order."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg

from skep.clock import Instant
from skep.model import QueueKey
from skep.model.system_event import EventPosition, SystemEvent, SystemEventKind, SystemEvents
from skep.store.postgres.connection import Connection
from skep.store.postgres.queues import queue_of
from skep.store.statements import load_statements

SQL = load_statements(__package__, "events")

PAGE = 1_000


async def note(connection: Connection, kind: SystemEventKind, key: QueueKey, now: Instant) -> None:
    """Announce a change to the other servers when this transaction commits. This must be its last statement."""
    await connection.execute(SQL["note"], kind, key.tenant, key.name, now)


async def read(connection: asyncpg.Connection[asyncpg.Record], after: EventPosition | None) -> SystemEvents:
    """The changes after a position; with None no changes, only the present position.

    The change at the position must be the same as before. If not, changes may be missing, and the answer is not ``complete``.
    """
    if after is None:
        return SystemEvents(await _end(connection), [])
    rows = await connection.fetch(SQL["read"], after.number, PAGE + 1)
    if rows[0]["timeline"] != after.timeline or not _follow(rows, after):
        return SystemEvents(await _end(connection), [], complete=False)
    fresh = [row for row in rows if row["position"] is not None and row["position"] > after.number]
    return SystemEvents(_place(fresh[-1]) if fresh else after, [_event(row) for row in fresh])


async def _end(connection: asyncpg.Connection[asyncpg.Record]) -> EventPosition:
    row = await connection.fetchrow(SQL["position"])
    assert row is not None
    return _place(row)


def _place(row: asyncpg.Record) -> EventPosition:
    return EventPosition(row["position"] or 0, row["mark"] or "", row["timeline"])


def _follow(rows: Sequence[asyncpg.Record], after: EventPosition) -> bool:
    """Whether these rows follow the position. A sweep keeps the newest change, so a server that has read it finds it again."""
    first: tuple[int | None, str | None] = (rows[0]["position"], rows[0]["mark"])
    return first == (after.number, after.mark) if after.number else first[0] in (None, 1)


def _event(row: asyncpg.Record) -> SystemEvent:
    key = QueueKey(row["event_name"], row["event_tenant"])
    return SystemEvent(SystemEventKind(row["kind"]), key, None if row["id"] is None else queue_of(row))
