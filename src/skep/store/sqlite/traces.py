"""Following a trace, or a transaction id, across all queues of a tenant. Reads only."""

from __future__ import annotations

from skep.clock import MICROS_PER_MS
from skep.ids import Id
from skep.model import QueueKey, StoredMessage
from skep.store.rules import TRACE_SLACK_MICROS
from skep.store.sqlite.browse import show
from skep.store.sqlite.log_position import find_seq_at
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "traces")

_MS_BYTES = 6


def trace(session: Session, tenant: str, trace_id: Id, limit: int = 1000) -> list[StoredMessage]:
    """All messages of a trace across the tenant's queues, oldest first."""
    found = [
        shown
        for position, name in session.rows(SQL["traced"], (trace_id, tenant, limit))
        for shown in show(session, QueueKey(name, tenant), position, None)
    ]
    minted_at = int.from_bytes(trace_id[:_MS_BYTES], "big") * MICROS_PER_MS
    for (name,) in session.rows(SQL["queues_of_tenant"], (tenant,)):
        queue = session.queue(QueueKey(name, tenant))
        if queue.last_at < minted_at - TRACE_SLACK_MICROS or queue.created_at > minted_at + TRACE_SLACK_MICROS:
            continue  # nothing was pushed to it at that time
        low = find_seq_at(session, queue, minted_at - TRACE_SLACK_MICROS)
        high = find_seq_at(session, queue, minted_at + TRACE_SLACK_MICROS + 1) - 1
        row = session.row(SQL["by_id"], (queue.base | low, queue.base | high, trace_id)) if low <= high else None
        if row is not None:
            found += show(session, queue.key, row[0], None)
    found.sort(key=lambda m: (m.created_at, m.queue, m.seq))
    return found[:limit]


def with_transaction_id(session: Session, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
    """Messages with this transaction id, newest first, without their payloads."""
    found = [
        shown
        for position, name in session.rows(SQL["with_transaction_id"], (transaction_id, tenant, limit))
        for shown in show(session, QueueKey(name, tenant), position, 0)
    ]
    return sorted(found, key=lambda m: (m.created_at, m.queue, m.seq), reverse=True)
