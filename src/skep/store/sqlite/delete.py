"""Deleting one message that a group has not settled.

The leases that hold it end first, and their tokens are fenced, so no settlement meets the deleted message. Then the message leaves
the log, and groups count it as expired.
"""

from __future__ import annotations

from skep.clock import Instant
from skep.ids import Id
from skep.model import DeletedMessage, QueueKey, Seq
from skep.store.rules import message_not_found, message_settled
from skep.store.sqlite.dead_letters import remove
from skep.store.sqlite.gone import Gone, fence, tokens_of
from skep.store.sqlite.leases import find_lease
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Session
from skep.store.sqlite.sets import sets_of
from skep.store.statements import load_statements

SQL = load_statements(__package__, "delete")


def delete_message(
    session: Session, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
) -> DeletedMessage:
    """Delete a message; with ``dry_run`` only tell what would be deleted."""
    queue = session.queue(key)
    row = session.row(SQL["message"], (queue.base | seq,)) if 0 < seq <= MAX_SEQ else None
    if row is None or id_ not in (None, row[0]):
        raise message_not_found(key.name, seq)
    message_id, partition, transaction_id, audience = row
    gone = Gone(seq, partition, audience)
    known = list(session.groups(queue).values())
    waiting = [group for group in known if _is_unsettled(session, queue, group, gone)]
    if not waiting and (known or seq < queue.first_seq):
        raise message_settled(key.name, seq)
    leases = sum(bool(tokens_of(session, queue, group, partition, {seq})) for group in waiting)
    names = sorted(group.name for group in waiting)
    found = DeletedMessage(seq, message_id, partition, transaction_id, names, leases)
    if dry_run:
        return found
    fence(session, queue, [gone], now)
    remove(session, queue, [gone], now)
    session.flush()
    session.db.execute(SQL["forget_failures"], (queue.id, seq))
    session.cut_log_soon()
    return found


def _is_unsettled(session: Session, queue: QueueRow, group: GroupRow, message: Gone) -> bool:
    """Whether the message is for the group, and the group has not settled it."""
    if message.audience not in (None, group.id) and not group.external:
        return False
    if message.seq > group.scan_seq or group.external:
        return message.seq > group.scan_seq
    if not queue.is_ordered:
        return any(message.seq in held.seqs for held in sets_of(session, group, message.partition))
    lease = find_lease(session, group, message.partition)
    return lease is not None and (
        message.seq in lease.open or (message.seq > lease.delivered_seq and lease.pending > 0)
    )
