"""Pushes: receipts, deduplication, depth, the schedule, and seqs (offsets) in commit order.

The common batch (one queue without max_depth; no transaction id, no trace id, nothing scheduled) takes a shortcut with little Python
per message. Both ways store the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain
from typing import Any

from msgspec import Struct

from skep.clock import MICROS_PER_MS, Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    Depth,
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    Seq,
    StoredRange,
)
from skep.model.queue import no_queue
from skep.store.rules import (
    PIECE_BYTES,
    SEQ_MAX,
    TRACE_SLACK_MICROS,
    are_sealed,
    holds,
    not_encrypted_reason,
    queue_full_reason,
    receipt_after,
    sought_of,
    stored_before,
    was_stored,
)
from skep.store.sqlite import order, receipts
from skep.store.sqlite.log_position import find_seq_at
from skep.store.sqlite.queues import check_rules, make_queue
from skep.store.sqlite.session import QueueRow, Session
from skep.store.statements import load_statements, repeated

SQL = load_statements(__package__, "push")

_STORED = PushStatus.STORED
_MS_BYTES = 6


_APPEND_PLAIN = {size: repeated(SQL["append_plain"], size, first=3) for size in (100, 10, 1)}
"""Statements by number of rows, largest first: one of a hundred rows costs half of a hundred statements."""


class _Planned(Struct):
    """The part of a batch for one queue; ``fresh`` are the indexes of messages to store, ``queue`` is None until it is made."""

    key: QueueKey
    queue: QueueRow | None
    fresh: list[int]
    refusal: Code | None = None
    reason: str | None = None


def push(
    session: Session, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True, *, in_turn: bool = False
) -> list[PushOutcome]:
    """Append every batch that is neither refused nor held. A batch whose receipt exists is not appended again.

    Operations come ``in_turn``: they are performed in order, and are never held.
    """
    if not in_turn and session.has_operations():
        places = {place for batch in batches for place in _places(session, batch)}
        if waiting := order.waiting_partitions(session, places):
            return [_push_behind(session, waiting, batch, now, create_queues) for batch in batches]
    wanted = [batch.receipt for batch in batches if batch.receipt is not None]
    tried = [batch for batch in batches if batch.tried is not None]
    if tried or (wanted and not receipts.take_all(session, wanted, now)):
        return [_push_once(session, batch, now, create_queues) for batch in batches]
    outcomes = _append_batches(session, batches, now, create_queues)
    if wanted:
        for batch, outcome in zip(batches, outcomes, strict=True):
            if batch.receipt is not None:
                _put_right(session, batch, outcome)
    return outcomes


def _places(session: Session, batch: PushBatch) -> set[order.Place]:
    return {(message.queue, message.partition) for message in order.as_stored(session, batch).messages}


def _push_behind(
    session: Session, waiting: set[order.Place], batch: PushBatch, now: Instant, create_queues: bool
) -> PushOutcome:
    """Push one batch while operations wait; it is held if it would overtake one."""
    if batch.receipt is not None and receipts.find(session, batch.receipt.key, now) is not None:
        return receipts.recorded(session, batch.receipt.key, now)
    done = batch.tried is not None and was_stored(batch, _stored_ids(session, batch, now))
    if not done and holds(waiting, order.as_stored(session, batch)):
        return PushOutcome([], {}, held=True)
    return _push_once(session, batch, now, create_queues)


def _push_once(session: Session, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
    receipt = batch.receipt
    if receipt is not None and not receipts.take(session, receipt, now):
        return receipts.recorded(session, receipt.key, now)
    if batch.tried is not None and was_stored(batch, _stored_ids(session, batch, now)):
        return stored_before(batch)
    outcome = push_batch(session, batch, now, create_queues)
    if receipt is not None:
        _put_right(session, batch, outcome)
    return outcome


def _stored_ids(session: Session, batch: PushBatch, now: Instant) -> set[Id]:
    """The ids in the log around the time of the earlier attempt, and those of the batch's messages in the schedule."""
    found: set[Id] = set()
    for key, sought in sought_of([batch], now).items():
        queue = session.find_queue(key)
        if queue is not None:
            # If the clock was put back, new messages get the time of the log's end, which is ahead.
            until = SEQ_MAX if queue.last_at > now else sought.until
            low, high = (find_seq_at(session, queue, at) for at in (sought.since, until))
            found.update(id_ for (id_,) in session.rows(SQL["ids_between"], (queue.base | low, queue.base | high)))
            for scheduled in sought.scheduled:
                found.update(id_ for (id_,) in session.rows(SQL["id_scheduled"], (queue.id, scheduled)))
    return found


def _put_right(session: Session, batch: PushBatch, outcome: PushOutcome) -> None:
    """Delete the receipt of a refused batch; let the receipt of a duplicate name the stored message."""
    assert batch.receipt is not None
    if outcome.refused:
        receipts.drop(session, batch.receipt.key)
    elif (right := receipt_after(batch, outcome)) is not batch.receipt and right is not None:
        receipts.rewrite(session, right)


def _append_batches(
    session: Session, batches: Sequence[PushBatch], now: Instant, create_queues: bool
) -> list[PushOutcome]:
    """Append every batch that is not refused, in order. Plain batches of one queue are appended as one, which costs a fraction."""
    if len(batches) == 1:
        return [push_batch(session, batches[0], now, create_queues)]
    messages = [message for batch in batches for message in batch.messages]
    if (queue := _plain_queue(session, messages)) is None:
        return [push_batch(session, batch, now, create_queues) for batch in batches]
    whole = PushBatch(messages, [id_ for batch in batches for id_ in batch.ids])
    stored, depth = _append_plain(session, queue, whole, now)
    ends = accumulate([len(batch.ids) for batch in batches])
    return [
        PushOutcome(stored.part(end - len(batch.ids), end), {queue.key: depth} if batch.ids else {})
        for batch, end in zip(batches, ends, strict=True)
    ]


def push_batch(session: Session, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
    """Append one batch, or refuse it whole."""
    if not batch.messages:
        return PushOutcome([], {})
    if batch.audience is None and (queue := _plain_queue(session, batch.messages)) is not None:
        stored, depth = _append_plain(session, queue, batch, now)
        return PushOutcome(stored, {queue.key: depth})
    return _Batch(session, batch, now, create_queues).push()


def _plain_queue(session: Session, messages: list[NewMessage]) -> QueueRow | None:
    """The queue of plain messages, which are appended without a look at each; None when they are not plain."""
    if not messages:
        return None
    key = messages[0].queue
    queue = session.find_queue(key)
    if queue is None or queue.settings.max_depth or not _is_plain(messages, key):
        return None
    return queue if not queue.settings.encryption_enabled or are_sealed(messages) else None


def _is_plain(messages: list[NewMessage], key: QueueKey) -> bool:
    # A list: a generator costs twice as much here.
    unusual = [
        m.transaction_id is not None
        or m.trace_id is not None
        or m.deliver_at is not None
        or (m.queue is not key and m.queue != key)
        for m in messages
    ]
    return True not in unusual


def _append_plain(session: Session, queue: QueueRow, batch: PushBatch, now: Instant) -> tuple[StoredRange, Depth]:
    ids = batch.ids
    at, first = next_place(queue, now)
    position = queue.base + first
    near = ids_are_near(ids, at)
    only = queue.only_partition
    rows = [
        (i, m.priority, id_, only or m.partition, None if near else id_, m.content_type, m.headers, m.payload)
        for i, m, id_ in zip(range(position, position + len(ids)), batch.messages, ids, strict=True)
    ]
    start = 0
    for size, statement in _APPEND_PLAIN.items():
        while len(rows) - start >= size and (size == 1 or _weight(rows, start, size) <= PIECE_BYTES):
            session.db.execute(statement, (queue.id, at, *chain.from_iterable(rows[start : start + size])))
            start += size
    advance(queue, len(ids), at)
    return StoredRange(Seq(first), ids), depth_of(session, queue)


def _weight(rows: list[tuple[Any, ...]], start: int, size: int) -> int:
    return sum([len(row[7]) for row in rows[start : start + size]])


def next_place(queue: QueueRow, now: Instant) -> tuple[int, int]:
    """The created_at and the seq of the next message; created_at never falls along the log."""
    return max(now, queue.last_at), queue.last_seq + 1


def advance(queue: QueueRow, count: int, at: int) -> None:
    """Note that ``count`` messages were appended."""
    queue.last_seq += count
    queue.last_at = at


def ids_are_near(ids: Sequence[Id], at: int) -> bool:
    """Whether all ids were minted so close to ``at`` that their millisecond finds them. Ids sort by their millisecond."""
    earliest = int.from_bytes(min(ids)[:_MS_BYTES], "big") * MICROS_PER_MS
    latest = int.from_bytes(max(ids)[:_MS_BYTES], "big") * MICROS_PER_MS
    return at - TRACE_SLACK_MICROS <= earliest and latest <= at + TRACE_SLACK_MICROS


def depth_of(session: Session, queue: QueueRow) -> Depth:
    """The depth of the queue, and the room that is left."""
    depth, limit = session.depth(queue), queue.settings.max_depth
    return Depth(depth, max(0, limit - depth) if limit else None)


class _Batch:
    """One batch that is not plain: it is planned without writes, then refused or stored."""

    def __init__(self, session: Session, batch: PushBatch, now: Instant, create_queues: bool) -> None:
        self.session = session
        self.messages = batch.messages
        self.ids = batch.ids
        self.audience = batch.audience
        self.now = now
        self.create_queues = create_queues
        self.plans: dict[QueueKey, _Planned] = {}
        self.results: list[PushResult | None] = [None] * len(batch.messages)
        self.repeats: list[tuple[int, int]] = []

    def push(self) -> PushOutcome:
        self._plan()
        self._check_depths()
        if any(plan.refusal is not None for plan in self.plans.values()):
            return self._refused()
        for plan in self.plans.values():
            self._store(plan)
        for index, first in self.repeats:
            result = self._result(first)
            self.results[index] = PushResult(
                PushStatus.DUPLICATE, result.id, result.seq, result.transaction_id, result.trace_id
            )
        return PushOutcome([self._result(index) for index in range(len(self.messages))], self._depths())

    def _result(self, index: int) -> PushResult:
        result = self.results[index]
        assert result is not None
        return result

    def _plan(self) -> None:
        first_of: dict[tuple[QueueKey, str, str], int] = {}
        for index, message in enumerate(self.messages):
            plan = self.plans.get(message.queue)
            if plan is None:
                plan = self.plans[message.queue] = self._plan_queue(message.queue)
            if plan.queue is not None and plan.queue.settings.encryption_enabled and not are_sealed((message,)):
                plan.refusal, plan.reason = Code.NOT_ENCRYPTED, not_encrypted_reason(message.queue.name)
            if message.transaction_id is not None and self._dedup_window(plan) > 0:
                partition = message.partition
                if plan.queue is not None:
                    partition = plan.queue.dedup_partition(plan.queue.stored_partition(partition))
                first = first_of.setdefault((message.queue, partition, message.transaction_id), index)
                if first != index:
                    self.repeats.append((index, first))
                    continue
                if self._is_duplicate(plan, index, partition, message.transaction_id):
                    # A further repeat in this batch gets the same result.
                    continue
            plan.fresh.append(index)

    def _plan_queue(self, key: QueueKey) -> _Planned:
        queue = self.session.find_queue(key)
        plan = _Planned(key, queue, [])
        if queue is None and not self.create_queues:
            plan.refusal, plan.reason = Code.QUEUE_NOT_FOUND, no_queue(key.name, makes_queues=False).message
        elif queue is None:
            try:
                check_rules(self.session, key, QueueSettings())
            except SkepError as error:
                plan.refusal, plan.reason = error.code, error.message
        return plan

    def _dedup_window(self, plan: _Planned) -> int:
        if self.audience is not None:
            return 0
        settings = QueueSettings() if plan.queue is None else plan.queue.settings
        return seconds(settings.dedup_window_seconds)

    def _is_duplicate(self, plan: _Planned, index: int, partition: str, transaction_id: str) -> bool:
        if plan.queue is None:
            return False
        found = self.session.row(SQL["find_key"], (plan.queue.id, transaction_id, partition, self.now))
        if found is None:
            return False
        id_, seq = found
        first = (
            self.session.row(SQL["trace_of_scheduled"], (id_,))
            if seq is None
            else self.session.row(SQL["trace_of"], (plan.queue.base | seq,))
        )
        trace_id = None if first is None else first[0]  # None when the first message is gone, or was cancelled
        self.results[index] = PushResult(PushStatus.DUPLICATE, id_, seq, transaction_id, trace_id)
        return True

    def _check_depths(self) -> None:
        for plan in self.plans.values():
            # NOT_ENCRYPTED goes first: the engine then encrypts the messages, and pushes them again.
            if plan.refusal is not None or plan.queue is None or not plan.queue.settings.max_depth or not plan.fresh:
                continue
            limit, depth = plan.queue.settings.max_depth, self.session.depth(plan.queue)
            if depth + len(plan.fresh) > limit:
                plan.refusal = Code.QUEUE_FULL
                plan.reason = queue_full_reason(plan.key.name, depth, limit, len(plan.fresh))

    def _refused(self) -> PushOutcome:
        results = []
        for index, message in enumerate(self.messages):
            plan = self.plans[message.queue]
            blamed = plan.refusal is not None
            code = plan.refusal if blamed else Code.BATCH_REFUSED
            reason = plan.reason if blamed else "another message of the batch was refused"
            results.append(
                PushResult(
                    PushStatus.REFUSED,
                    self.ids[index],
                    transaction_id=message.transaction_id,
                    trace_id=message.trace_id or self.ids[index],
                    code=code,
                    reason=reason,
                )
            )
        return PushOutcome(results, self._depths())

    def _depths(self) -> dict[QueueKey, Depth]:
        return {plan.key: depth_of(self.session, plan.queue) for plan in self.plans.values() if plan.queue is not None}

    def _store(self, plan: _Planned) -> None:
        if plan.queue is None:
            # An earlier queue of this batch may have made this one as its dead-letter queue.
            plan.queue = self.session.find_queue(plan.key) or make_queue(
                self.session, plan.key, QueueSettings(), self.now
            )
        queue = plan.queue
        audience = None if self.audience is None else self.session.group(queue, self.audience).id
        at, seq = next_place(queue, self.now)
        rows: list[tuple[Any, ...]] = []
        waiting: list[tuple[Any, ...]] = []
        keys: list[tuple[Any, ...]] = []
        expires_at = self.now + self._dedup_window(plan)
        for index in plan.fresh:
            m, id_ = self.messages[index], self.ids[index]
            trace_id = m.trace_id or id_
            partition = queue.stored_partition(m.partition)
            placed: int | None = None
            if m.deliver_at is not None and m.deliver_at > self.now:
                waiting.append(
                    (
                        queue.id,
                        m.deliver_at,
                        m.priority,
                        id_,
                        partition,
                        m.transaction_id,
                        trace_id,
                        m.content_type,
                        m.headers,
                        m.payload,
                    )
                )
                self.results[index] = PushResult(PushStatus.SCHEDULED, id_, None, m.transaction_id, trace_id)
            else:
                placed = seq + len(rows)
                kept = m.trace_id or (None if ids_are_near((id_,), at) else id_)
                rows.append(
                    (
                        queue.base | placed,
                        queue.id,
                        at,
                        m.priority,
                        audience,
                        id_,
                        partition,
                        m.transaction_id,
                        kept,
                        m.content_type,
                        m.headers,
                        m.payload,
                    )
                )
                self.results[index] = PushResult(_STORED, id_, Seq(placed), m.transaction_id, trace_id)
            if m.transaction_id is not None and expires_at > self.now:
                keys.append((queue.id, m.transaction_id, queue.dedup_partition(partition), id_, placed, expires_at))
        self._write(queue, rows, waiting, keys, at)

    def _write(
        self,
        queue: QueueRow,
        rows: list[tuple[Any, ...]],
        waiting: list[tuple[Any, ...]],
        keys: list[tuple[Any, ...]],
        at: int,
    ) -> None:
        db = self.session.db
        if rows:
            db.executemany(SQL["append"], rows)
            advance(queue, len(rows), at)
        if waiting:
            db.executemany(SQL["schedule"], waiting)
            queue.scheduled += len(waiting)
            self.session.touch_queue(queue)
        if keys:
            db.executemany(SQL["keep_key"], keys)
