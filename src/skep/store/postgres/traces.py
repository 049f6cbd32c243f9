"""Messages of a trace, or with a transaction id, across all queues of a tenant. Reads only."""

from __future__ import annotations

from msgspec import structs

from skep.ids import Id, minted_at
from skep.model import QueueKey, StoredMessage
from skep.model.record import MAX_BYTES
from skep.store.postgres.browse import stored
from skep.store.postgres.connection import Connection
from skep.store.rules import TRACE_ROWS, TRACE_SLACK_MICROS, whole_payloads
from skep.store.statements import load_statements

SQL = load_statements(__package__, "traces")


async def trace(
    connection: Connection, tenant: str, trace_id: Id, limit: int = 1000, max_bytes: int = MAX_BYTES
) -> list[StoredMessage]:
    """All messages of a trace across the tenant's queues, oldest first; those beyond ``max_bytes`` of payloads without payloads."""
    rows = list(await connection.fetch(SQL["traced"], tenant, trace_id, limit, max(limit, TRACE_ROWS), max_bytes))
    minted = minted_at(trace_id)
    if minted is not None:
        since, until = minted - TRACE_SLACK_MICROS, minted + 2 * TRACE_SLACK_MICROS
        rows += await connection.fetch(SQL["implied"], tenant, trace_id, since, until)
    found = [stored(row, QueueKey(row["queue_name"], tenant), None) for row in rows]
    found = sorted(found, key=lambda m: (m.created_at, m.queue, m.seq))[:limit]
    whole = whole_payloads(found, max_bytes)
    return found[:whole] + [structs.replace(one, payload=b"") for one in found[whole:]]


async def with_transaction_id(
    connection: Connection, tenant: str, transaction_id: str, limit: int = 100
) -> list[StoredMessage]:
    """Messages with this transaction id, newest first, without their payloads."""
    rows = await connection.fetch(SQL["with_transaction_id"], tenant, transaction_id, limit)
    found = [stored(row, QueueKey(row["queue_name"], tenant), None) for row in rows]
    return sorted(found, key=lambda m: (m.created_at, m.queue, m.seq), reverse=True)
