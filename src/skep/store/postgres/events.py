"""Changes that servers tell each other through the store: noted in the transaction that makes them, read in its order."""

from __future__ import annotations

import asyncpg

from skep.clock import Instant
from skep.model import QueueKey
from skep.store.postgres.connection import Connection
from skep.store.postgres.queues import queue_of
from skep.store.statements import load_statements
from skep.system_events import SystemEvent, SystemEventKind, SystemEvents

SQL = load_statements(__package__, "events")

PAGE = 1_000


async def note(connection: Connection, kind: SystemEventKind, key: QueueKey, now: Instant) -> None:
    """Tell the other servers, once this transaction commits. It is the last thing the transaction does."""
    await connection.execute(SQL["note"], kind, key.tenant, key.name, now)


async def read(connection: asyncpg.Connection[asyncpg.Record], after: int | None) -> SystemEvents:
    """What was noted after a position; with None nothing, but the position to begin from."""
    if after is None:
        return SystemEvents(await connection.fetchval(SQL["position"]), [])
    rows = await connection.fetch(SQL["read"], after, PAGE)
    if not rows:
        return SystemEvents(after, [])
    oldest = await connection.fetchval(SQL["oldest"])
    return SystemEvents(rows[-1]["position"], [_event(row) for row in rows], complete=oldest <= after + 1)


def _event(row: asyncpg.Record) -> SystemEvent:
    key = QueueKey(row["event_name"], row["event_tenant"])
    return SystemEvent(SystemEventKind(row["kind"]), key, None if row["id"] is None else queue_of(row))
