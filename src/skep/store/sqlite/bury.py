"""Burials: a message that is given up is copied to the dead-letter queue in the transaction that settles it (I11)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from skep.clock import Instant
from skep.ids import Id
from skep.model import (
    NO_GROUP,
    DeadLetterOrigin,
    DeadReason,
    Delivery,
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    Seq,
    SettleResult,
)
from skep.model.record import Buried, Receipt, ReceiptKey, Unfit
from skep.store.lease import BURIED, Burial, Effects, Ending, buried_in
from skep.store.rules import check_sealed, dead_letter_target, not_quarantined, queue_full_reason
from skep.store.sqlite.leases import count_expired, history_row
from skep.store.sqlite.push import SQL as PUSH_SQL
from skep.store.sqlite.push import advance, depth_of, next_place
from skep.store.sqlite.queues import make_dead_letter_queue, make_queue
from skep.store.sqlite.receipts import drop, find, recorded, take
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "bury")

log = structlog.get_logger(__name__)


def bury(session: Session, queue: QueueRow, group: GroupRow, burials: Sequence[Burial], now: Instant) -> str | None:
    """Copy messages to the dead-letter queue and count them; returns its name, or None when they are discarded.

    It takes three statements, however many messages there are.
    """
    name = dead_letter_target(queue.key.name, queue.settings, queue.holds_dead_letters)
    if not burials:
        return name
    session.touch_group(group)
    expired = sum(burial.reason is DeadReason.EXPIRED for burial in burials)
    group.expired += expired
    group.dead += len(burials) - expired
    if name is not None:
        _append(session, queue, group, QueueKey(name, queue.key.tenant), burials, now)
        return name
    for burial in burials:
        # The message is kept nowhere, so the server's log names it.
        log.info("message_discarded", queue=queue.key.name, seq=burial.seq, group=group.name, reason=burial.reason)
    return None


def apply(session: Session, queue: QueueRow, group: GroupRow, effects: Effects, now: Instant) -> str | None:
    """Write the lease history, the failed attempts, the counters and the burials; returns the dead-letter queue, None without burials."""
    for ending in effects.endings:
        session.add_history(history_row(queue, group, ending, now))
    session.add_failures(queue, group, effects.failures, now)
    if effects.completed or effects.expired or effects.retried:
        group.completed += effects.completed
        group.expired += effects.expired
        group.retried += effects.retried
        session.touch_group(group)
    return bury(session, queue, group, effects.burials, now) if effects.burials else None


def apply_settled(
    session: Session, queue: QueueRow, group: GroupRow, results: Sequence[SettleResult], effects: Effects, now: Instant
) -> tuple[list[SettleResult], list[Ending]]:
    """Like `apply`, after settlements: returns the answers, which name the dead-letter queue, and the endings of leases.

    The caller adds the endings to the lease history, with these answers.
    """
    effects.burials.sort(key=lambda burial: burial.seq)
    endings, effects.endings = effects.endings, []
    grave = buried_in(apply(session, queue, group, effects, now))
    return [grave if result is BURIED else result for result in results], endings


def _append(
    session: Session, queue: QueueRow, group: GroupRow, dead_key: QueueKey, burials: Sequence[Burial], now: Instant
) -> None:
    """Copy messages to the end of the dead-letter queue, in the given order, with their reasons."""
    found = session.rows(SQL["to_bury"], (_json([queue.base | burial.seq for burial in burials]),))
    there = {position & MAX_SEQ: (partition, created_at) for position, partition, created_at in found}
    # Messages that have left the log cannot be kept; the group counts them as expired.
    lost = sum(burial.seq not in there and burial.reason is not DeadReason.EXPIRED for burial in burials)
    group.dead -= lost
    count_expired(session, group, lost)
    kept = [burial for burial in burials if burial.seq in there]
    if not kept:
        return
    dead_queue = make_dead_letter_queue(session, dead_key, now)
    at, first = next_place(dead_queue, now)
    positions = _json([queue.base | burial.seq for burial in kept])
    session.db.execute(SQL["copy"], (positions, dead_queue.base | first, dead_queue.id, at, dead_queue.only_partition))
    advance(dead_queue, len(kept), at)
    session.db.executemany(
        SQL["add_dead_letter"],
        [
            (
                dead_queue.base | seq, queue.id, burial.seq, queue.key.name, there[burial.seq][0], group.name,
                burial.reason, burial.attempts, there[burial.seq][1], now, burial.error,
            )
            for seq, burial in enumerate(kept, first)
        ],
    )  # fmt: skip


def _json(positions: list[int]) -> str:
    return msgspec.json.encode(positions).decode()


def _add_letter(session: Session, dead_queue: QueueRow, said: Row, letter: Row, error: str | None, now: Instant) -> int:
    """Append a dead letter: the columns of the message (``said``) and its origin (``letter``); returns its seq."""
    at, seq = next_place(dead_queue, now)
    position = dead_queue.base | seq
    id_, named, transaction_id, trace_id, priority, content_type, headers, payload = said
    partition = dead_queue.stored_partition(named)
    session.db.execute(
        PUSH_SQL["append"],
        (
            position, dead_queue.id, at, priority, None, id_, partition, transaction_id, trace_id, content_type, headers,
            payload,
        ),
    )  # fmt: skip
    advance(dead_queue, 1, at)
    session.db.execute(SQL["add_dead_letter"], (position, *letter, now, error))
    return seq


def quarantine(
    session: Session, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
) -> PushOutcome:
    """Put an invalid message directly into the dead-letter queue."""
    if receipt is not None and not take(session, receipt, now):
        return recorded(session, receipt.key, now)
    queue = session.find_queue(message.queue) or make_queue(session, message.queue, QueueSettings(), now)
    check_sealed(queue.key.name, queue.settings.encryption_enabled, message.content_type)
    name = dead_letter_target(queue.key.name, queue.settings, queue.holds_dead_letters)
    if name is None:
        if receipt is not None:
            drop(session, receipt.key)
        return not_quarantined(message, id_)
    dead_queue = make_dead_letter_queue(session, QueueKey(name, queue.key.tenant), now)
    limit = dead_queue.settings.max_depth
    if limit and (depth := session.depth(dead_queue)) >= limit:
        if receipt is not None:
            drop(session, receipt.key)
        return not_quarantined(message, id_, queue_full_reason(name, depth, limit, 1))
    trace_id = message.trace_id or id_
    said = (
        id_, message.partition, message.transaction_id, trace_id, message.priority, message.content_type, message.headers,
        message.payload,
    )  # fmt: skip
    letter = (queue.id, 0, queue.key.name, message.partition, NO_GROUP, DeadReason.INVALID, 0, now)
    seq = _add_letter(session, dead_queue, said, letter, error, now)
    result = PushResult(PushStatus.STORED, id_, Seq(seq), message.transaction_id, trace_id)
    return PushOutcome([result], {dead_queue.key: depth_of(session, dead_queue)})


def bury_unfit(
    session: Session, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
) -> Buried:
    """Copy messages of a log into its dead-letter queue, once per receipt."""
    known = find(session, receipt, now)
    if known is not None:
        return msgspec.json.decode(known.answer, type=Buried)
    queue = session.queue(key)
    name = dead_letter_target(key.name, queue.settings, queue.holds_dead_letters)
    told = Buried(key.name, name, 0, 0)
    for one in unfit if name is not None else ():
        message = session.row(SQL["message_to_bury"], (queue.base | one.seq,))
        if message is None:
            told.gone += 1
            continue
        assert name is not None
        dead_queue = make_dead_letter_queue(session, QueueKey(name, key.tenant), now)
        *said, created_at = message
        letter = (queue.id, one.seq, key.name, message[1], NO_GROUP, DeadReason.INVALID, 0, created_at)
        _add_letter(session, dead_queue, tuple(said), letter, one.error, now)
        told.buried += 1
    take(session, Receipt(receipt, msgspec.json.encode(told), expires_at), now)
    return told


def bury_new(
    session: Session, key: QueueKey, batch: PushBatch, error: str | None, attempts: int, now: Instant
) -> str | None:
    """Put the messages of a failed push into the dead-letter queue, in order; returns its name.

    None when the queue is gone, or keeps no dead letters. The messages were accepted, so max_depth does not refuse them.
    NOT_ENCRYPTED when the queue is encrypted and a message is not.
    """
    queue = session.find_queue(key)
    name = None if queue is None else dead_letter_target(key.name, queue.settings, queue.holds_dead_letters)
    if queue is None or name is None:
        return None
    for message in batch.messages:
        check_sealed(key.name, queue.settings.encryption_enabled, message.content_type)
    dead_queue = make_dead_letter_queue(session, QueueKey(name, key.tenant), now)
    for m, id_ in zip(batch.messages, batch.ids, strict=True):
        said = (
            id_, m.partition, m.transaction_id, m.trace_id or id_, m.priority, m.content_type, m.headers, m.payload,
        )  # fmt: skip
        letter = (queue.id, 0, key.name, m.partition, NO_GROUP, DeadReason.OPERATION_FAILED, attempts, now)
        _add_letter(session, dead_queue, said, letter, error, now)
    return name


def with_origins(session: Session, queue: QueueRow, deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Deliveries of a dead-letter queue with their origins. A message that was pushed there directly has none."""
    return [msgspec.structs.replace(one, dead_letter=_origin(session, queue.base | one.seq)) for one in deliveries]


def _origin(session: Session, position: int) -> DeadLetterOrigin | None:
    row = session.row(SQL["origin"], (position,))
    if row is None:
        return None
    source, source_seq, partition, group, reason, error, attempts, failed_at = row
    return DeadLetterOrigin(source, source_seq, partition, group, DeadReason(reason), error, attempts, failed_at)
