"""Following a trace, or a transaction id, across all queues of a tenant. Reads only."""

from __future__ import annotations

from skep.clock import MICROS_PER_MS
from skep.ids import Id
from skep.model import QueueKey, StoredMessage
from skep.model.record import MAX_BYTES
from skep.store.rules import TRACE_ROWS, TRACE_SLACK_MICROS, whole_payloads
from skep.store.sqlite.browse import show
from skep.store.sqlite.log_position import find_seq_at
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "traces")

_MS_BYTES = 6


def trace(
    session: Session, tenant: str, trace_id: Id, limit: int = 1000, max_bytes: int = MAX_BYTES
) -> list[StoredMessage]:
    """All messages of a trace across the tenant's queues, oldest first; those beyond ``max_bytes`` of payloads without payloads."""
    found = session.rows(SQL["traced"], (trace_id, tenant, max(limit, TRACE_ROWS)))
    minted_at = int.from_bytes(trace_id[:_MS_BYTES], "big") * MICROS_PER_MS
    for (name,) in session.rows(SQL["queues_of_tenant"], (tenant,)):
        queue = session.queue(QueueKey(name, tenant))
        if queue.last_at < minted_at - TRACE_SLACK_MICROS or queue.created_at > minted_at + TRACE_SLACK_MICROS:
            continue  # nothing was pushed to it at that time
        low = find_seq_at(session, queue, minted_at - TRACE_SLACK_MICROS)
        high = find_seq_at(session, queue, minted_at + TRACE_SLACK_MICROS + 1) - 1
        row = session.row(SQL["by_id"], (queue.base | low, queue.base | high, trace_id)) if low <= high else None
        if row is not None:
            found.append((row[1], name, row[0]))
    places = [(QueueKey(name, tenant), position) for _, name, position in sorted(found)[:limit]]
    messages = [one for key, position in places for one in show(session, key, position, 0)]
    whole = whole_payloads(messages, max_bytes)
    read = [one for key, position in places[:whole] for one in show(session, key, position, None)]
    return read + messages[whole:]


def with_transaction_id(session: Session, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
    """Messages with this transaction id, newest first, without their payloads."""
    found = [
        shown
        for position, name in session.rows(SQL["with_transaction_id"], (transaction_id, tenant, limit))
        for shown in show(session, QueueKey(name, tenant), position, 0)
    ]
    return sorted(found, key=lambda m: (m.created_at, m.queue, m.seq), reverse=True)
