"""The reference model with the face of a store: the verbs that change things. What only looks is in `reference_views`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence

import msgspec
import pyarrow as pa
from msgspec import UNSET

from skep.clock import MICROS_PER_MS, Instant, seconds
from skep.columns import LOG_SCHEMA, NewRows
from skep.errors import Code, SkepError
from skep.ids import Id, id_text
from skep.model import (
    DEFAULT_PARTITION,
    FROM_NOW,
    NO_DEAD_LETTER_QUEUE,
    Appended,
    Chore,
    Cleared,
    ClearScope,
    Connections,
    DeadLetter,
    DeadLetterFilter,
    DeadReason,
    Delivery,
    Depth,
    GroupStats,
    LogBounds,
    MessageFilter,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Renewal,
    RenewResult,
    Replayed,
    RetentionPass,
    Retry,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
    Start,
)
from skep.transactions import Transaction, TransactionOutcome
from skep.wire.times import to_datetime
from tests.support.reference import EXPIRED_LEASE, ClosedLogs, Group, Lease, Log, Scheduled
from tests.support.reference_views import ReferenceViews

JITTER_SHARE = 0.2


class ReferenceStore(ReferenceViews):
    """A store in memory, naive and slow, that the real ones are compared with."""

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Forget everything."""
        self.logs = ClosedLogs()

    def connections(self) -> Connections:
        """None."""
        return Connections()

    async def maintain(self) -> None:
        """Nothing to keep up."""

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        """There are no other servers."""

    def on_news(self, callback: Callable[[QueueKey], None]) -> None:
        """There are no other servers."""

    async def sample(self, now: Instant) -> None:
        """Note the counters of every group."""
        for log in self.logs.values():
            for group in log.groups.values():
                group.samples.append((now, self.counters(log, group)))

    async def sweep(self, now: Instant, limit: int) -> Chore:
        """Deleted queues are gone at once; keys that ran out are dropped."""
        for log in self.logs.values():
            log.dedup = {key: entry for key, entry in log.dedup.items() if entry[2] > now}
        return Chore()

    # queues

    async def create_queue(self, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
        if key in self.logs:
            raise SkepError(Code.QUEUE_EXISTS, f"there is a queue {key.name} already")
        self.check_dead_letter_rules(key, settings.dead_letter_queue)
        self._make_named(key, settings, now)
        return self.make(key, settings, now).queue

    async def update_queue(self, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
        log = self.log(key)
        settings = changes.apply(log.settings)
        if changes.dead_letter_queue is not UNSET:
            self.check_dead_letter_rules(key, settings.dead_letter_queue)
        if settings.ordering is not log.settings.ordering and log.depth > len(log.scheduled):
            raise SkepError(Code.INVALID_SETTING, "ordering changes only while nothing is unsettled")
        if settings.ordering is not log.settings.ordering:
            log.first_seq = log.last_seq + 1
        self._make_named(key, settings, now)
        log.queue = msgspec.structs.replace(log.queue, settings=settings, updated_at=now)
        return log.queue

    def _make_named(self, key: QueueKey, settings: QueueSettings, now: Instant) -> None:
        if settings.dead_letter_queue not in (None, NO_DEAD_LETTER_QUEUE):
            self.make_dead_letter_queue(settings.dead_letter_queue or "", key.tenant, now)

    async def delete_queue(self, key: QueueKey, now: Instant) -> bool:
        if key not in self.logs:
            return False
        if self.is_used(key):
            raise SkepError(Code.DEAD_LETTER_QUEUE_IN_USE, f"{key.name} is in use as a dead-letter queue")
        del self.logs[key]
        return True

    # push

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        return [self._push(batch, now, create_queues) for batch in batches]

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        ids = [Id(bytes(id_)) for id_ in rows.ids()]
        messages = [
            NewMessage(key, payload.as_py(), partition.as_py().decode())
            for partition, payload in zip(rows.partition, rows.payload, strict=True)
        ]
        outcome = self._push(PushBatch(messages, ids), now, create_queue)
        first, last = outcome.results[0], outcome.results[-1]
        if first.code is not None:
            raise SkepError(first.code, first.reason or "refused")
        assert first.seq is not None
        assert last.seq is not None
        return Appended(first.seq, last.seq, outcome.depths[key])

    async def read_log(self, key: QueueKey, first: Seq, last: Seq, max_rows: int, max_bytes: int) -> pa.RecordBatch:
        page = await self.messages(MessageFilter(queue=key, after=Seq(first - 1), limit=max_rows), Instant(0))
        rows, used = [], 0
        for m in page.messages:
            if m.seq > last or used >= max_bytes:
                break
            used += len(m.payload)
            rows.append(
                {
                    "queue": key.name, "partition": m.partition, "seq": m.seq, "message_id": id_text(m.id),
                    "transaction_id": m.transaction_id, "trace_id": id_text(m.trace_id), "payload": m.payload,
                    "content_type": m.content_type, "headers": m.headers and m.headers.decode(),
                    "created_at": to_datetime(m.created_at),
                }
            )  # fmt: skip
        return pa.RecordBatch.from_pylist(rows, schema=LOG_SCHEMA)

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        stats = await self.queue_stats(key, Instant(0))
        at = Instant(self.log(key).last_created_at)
        return LogBounds(stats.first_seq, stats.last_seq, at or None)

    def _push(self, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
        before = copy.deepcopy(self.logs)
        results: list[PushResult] = []
        refused: dict[QueueKey, Code] = {}
        for message, id_ in zip(batch.messages, batch.ids, strict=True):
            if message.queue not in self.logs:
                if not create_queues:
                    refused[message.queue] = Code.QUEUE_NOT_FOUND
                    continue
                self.make(message.queue, QueueSettings(), now)
            results.append(self._push_one(self.logs[message.queue], message, id_, now))
        for key in {message.queue for message in batch.messages} - set(refused):
            log = self.logs[key]
            grew = not self._same_size(before.get(key), log)
            if log.settings.max_depth and grew and log.depth > log.settings.max_depth:
                refused[key] = Code.QUEUE_FULL
        if refused:
            self.logs = before
            results = [
                PushResult(
                    PushStatus.REFUSED,
                    id_,
                    transaction_id=message.transaction_id,
                    code=refused.get(message.queue, Code.BATCH_REFUSED),
                )
                for message, id_ in zip(batch.messages, batch.ids, strict=True)
            ]
        return PushOutcome(results, {m.queue: self._depth(m.queue) for m in batch.messages if m.queue in self.logs})

    def _same_size(self, before: Log | None, after: Log) -> bool:
        was = (before.last_seq, len(before.scheduled)) if before else (0, 0)
        return was == (after.last_seq, len(after.scheduled))

    def _depth(self, key: QueueKey) -> Depth:
        log = self.logs[key]
        limit = log.settings.max_depth
        return Depth(log.depth, max(0, limit - log.depth) if limit else None)

    def _push_one(self, log: Log, message: NewMessage, id_: Id, now: Instant) -> PushResult:
        partition = DEFAULT_PARTITION if log.settings.ordering is Ordering.FIFO else message.partition
        known = log.dedup.get((message.transaction_id, partition)) if message.transaction_id is not None else None
        if known is not None and known[2] > now:
            seq = Seq(known[1]) if known[1] is not None else None
            return PushResult(PushStatus.DUPLICATE, known[0], seq, message.transaction_id)
        seq = None
        if message.deliver_at is not None and message.deliver_at > now:
            log.scheduled.append(Scheduled(message.deliver_at, message, id_))
        else:
            seq = Seq(self.append(log, message, id_, now).seq)
        if message.transaction_id is not None:
            expires_at = Instant(now + seconds(log.settings.dedup_window_seconds))
            log.dedup[message.transaction_id, partition] = (id_, seq, expires_at)
        status = PushStatus.SCHEDULED if seq is None else PushStatus.STORED
        return PushResult(status, id_, seq, message.transaction_id, message.trace_id or id_)

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        log = self.log(key)
        due = sorted((s for s in log.scheduled if s.due_at <= now), key=lambda s: s.due_at)
        for entry in due[:limit]:
            log.scheduled.remove(entry)
            seq = self.append(log, entry.message, entry.id, now).seq
            for dedup_key, (id_, _, expires_at) in log.dedup.items():
                if id_ == entry.id:
                    log.dedup[dedup_key] = (id_, seq, expires_at)
        next_at = min((s.due_at for s in log.scheduled), default=None)
        return Chore(len(due[:limit]), len(due) > limit, next_at)

    # pop

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        for request in requests:
            self.log(request.queue)
        return [self._pop(request, now) for request in requests]

    def _pop(
        self, request: PopRequest, now: Instant, discover: bool | None = None, follow: Sequence[int] | None = None
    ) -> PopResult:
        """One pop. Whether it discovers, and what it takes of an unordered queue, can be told as another store did it."""
        log = self.log(request.queue)
        group = self.group(log, request.group, request.start, now)
        if log.settings.paused:
            return PopResult([])
        if discover is None:
            discover = self._ready_count(log, group, request, now) < request.batch
        if discover or log.settings.window_buffer_seconds:
            self.discover(log, group)
        if log.is_ordered:
            taken = self._claim_ordered(log, group, request, now)
        else:
            taken = self._claim_unordered(log, group, request, now, follow)
        deliveries = [self._delivery(log, group, request, seq, now) for seq in taken]
        if request.auto_ack:
            for lease in [lease for lease in group.leases if lease.token == request.token]:
                self.note(log, group, lease, lease.held, len(lease.held), "completed", now)
                for seq in lease.held:
                    group.marks[seq].state = "completed"
                group.leases.remove(lease)
        ready = [self._ready_of(log, group, seq) for seq in group.unsettled()]
        undiscovered = group.scan_seq < log.last_seq
        return PopResult(
            deliveries,
            Instant(min(ready)) if ready else None,
            more=undiscovered or any(at <= now for at in ready),
        )

    def _ready_of(self, log: Log, group: Group, seq: int) -> int:
        if log.is_ordered:
            return self.ready_at(log, group, log.written[seq].partition)
        lease = group.lease_of(seq)
        if lease is not None:
            return lease.deadline
        own = group.marks[seq].retry_at
        return (
            own if own is not None else log.written[seq].created_at + seconds(log.settings.delayed_processing_seconds)
        )

    def _delivery(self, log: Log, group: Group, request: PopRequest, seq: int, now: Instant) -> Delivery:
        entry = log.entries[seq]
        return Delivery(
            queue=request.queue,
            group=group.name,
            partition=entry.partition,
            seq=Seq(seq),
            id=entry.id,
            transaction_id=entry.transaction_id,
            trace_id=entry.trace_id,
            headers=entry.headers,
            content_type=entry.content_type,
            payload=entry.payload,
            priority=entry.priority,
            created_at=entry.created_at,
            attempt=group.marks[seq].attempts,
            token=request.token,
            lease_deadline=self._deadline(log, request, now),
        )

    def _deadline(self, log: Log, request: PopRequest, now: Instant) -> Instant:
        given = request.lease_seconds
        return Instant(now + seconds(log.settings.lease_seconds if given is None else given))

    def _ready_count(self, log: Log, group: Group, request: PopRequest, now: Instant) -> int:
        """How many a claim would take of what is discovered: found out by trying it on a copy."""
        trial = copy.deepcopy(self)
        trial_log = trial.log(log.queue.key)
        trial_group = trial_log.groups[group.name]
        claim = trial._claim_ordered if log.is_ordered else trial._claim_unordered
        return len(claim(trial_log, trial_group, request, now))

    def _claim_ordered(self, log: Log, group: Group, request: PopRequest, now: Instant) -> list[int]:
        wanted = [p for p in self.partitions(log, group) if request.partition in (None, p)]
        order = sorted((self.ready_at(log, group, p), p) for p in wanted)
        taken: list[int] = []
        used = 0
        for ready_at, partition in order:
            full = len(taken) == request.batch or (request.max_partitions and used == request.max_partitions)
            if ready_at > now or full:
                break
            seqs = self._claim_partition(log, group, partition, request.batch - len(taken), now)
            if seqs:
                used += 1
                self._lease(log, group, partition, seqs, request, now)
                taken += seqs
        return taken

    def _claim_partition(self, log: Log, group: Group, partition: str, wanted: int, now: Instant) -> list[int]:
        old = self.lease_in(group, partition)
        if old is not None:
            self.reclaim(log, group, old, now)
        self.expire_old(log, group, self.of_partition(log, group, partition, "open", "pending"), now)
        self.forget_rest(log, group, partition)
        opened = self.of_partition(log, group, partition, "open")
        if opened:
            return opened[:1]
        delay = seconds(log.settings.delayed_processing_seconds)
        fresh = [
            seq
            for seq in self.of_partition(log, group, partition, "pending")
            if log.entries[seq].created_at + delay <= now
        ]
        return fresh[: 1 if log.settings.max_attempts == 1 else wanted]

    def _claim_unordered(
        self, log: Log, group: Group, request: PopRequest, now: Instant, follow: Sequence[int] | None = None
    ) -> list[int]:
        for lease in [lease for lease in group.leases if lease.deadline <= now]:
            self.reclaim(log, group, lease, now)
        self.expire_old(log, group, group.unsettled(), now)
        free = [
            (-log.entries[seq].priority, self._ready_of(log, group, seq), seq)
            for seq in group.unsettled()
            if group.lease_of(seq) is None and request.partition in (None, log.entries[seq].partition)
        ]
        ready = [(priority, seq) for priority, ready_at, seq in sorted(free) if ready_at <= now]
        alone = {seq for _, seq in ready if group.marks[seq].attempts or log.settings.max_attempts == 1}
        chosen = self._choose(log, request, [seq for _, seq in ready], alone)
        if follow is not None:
            self._check_choice({seq: priority for priority, seq in ready}, request, chosen, follow, alone)
            chosen = list(follow)
        by_partition: dict[str, list[int]] = {}
        for seq in chosen:
            by_partition.setdefault(log.entries[seq].partition, []).append(seq)
        for partition, seqs in by_partition.items():
            self._lease(log, group, partition, seqs, request, now)
        return chosen

    def _choose(self, log: Log, request: PopRequest, ready: list[int], alone: set[int]) -> list[int]:
        """In order, as many as are wanted; one that comes alone is the only one or stays where it is."""
        taken: list[int] = []
        partitions: set[str] = set()
        for seq in ready:
            if alone & {seq, *taken[:1]} and taken:
                break
            partition = log.entries[seq].partition
            is_full = 0 < request.max_partitions <= len(partitions) and partition not in partitions
            if not is_full and len(taken) < request.batch:
                partitions.add(partition)
                taken.append(seq)
        return taken

    def _check_choice(
        self,
        priorities: dict[int, int],
        request: PopRequest,
        chosen: list[int],
        follow: Sequence[int],
        alone: set[int],
    ) -> None:
        """Whatever an unordered queue gives: it is ready, it is as much as may be had, and the urgent come first."""
        assert set(follow) <= set(priorities), f"{follow} are not all of {priorities}"
        assert bool(follow) == bool(chosen)
        assert len(follow) == 1 or not alone & set(follow), f"{alone} come alone, not as {follow}"
        if not request.max_partitions:
            # How many there are before the first that comes alone depends on the order within a priority.
            assert len(follow) == len(chosen) or alone
            assert [priorities[seq] for seq in follow] == sorted(priorities.values())[: len(follow)]

    def _lease(
        self, log: Log, group: Group, partition: str, seqs: list[int], request: PopRequest, now: Instant
    ) -> None:
        for seq in seqs:
            mark = group.marks[seq]
            mark.state, mark.attempts, mark.retry_at = "open", mark.attempts + 1, None
        group.rest_until.pop(partition, None)
        lease = Lease(
            token=request.token,
            partition=partition,
            leased_at=now,
            deadline=self._deadline(log, request, now),
            held=sorted(seqs),
            attempt=group.marks[seqs[0]].attempts,
        )
        group.leases.append(lease)

    # settle

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        results: dict[int, SettleResult] = {}
        indexed = list(enumerate(settlements))
        rows: dict[tuple[QueueKey, str, str], list[tuple[int, Settlement]]] = {}
        for index, one in indexed:
            log = self.logs.get(one.queue)
            # A lease of an unordered queue is found by its token alone.
            partition = one.partition if log is None or log.is_ordered else ""
            rows.setdefault((one.queue, one.group, partition), []).append((index, one))
        for (key, group_name, partition), items in rows.items():
            results |= self._settle_row(key, group_name, partition, items, now)
        return [results[index] for index, _ in indexed]

    def _settle_row(
        self, key: QueueKey, group_name: str, partition: str, items: list[tuple[int, Settlement]], now: Instant
    ) -> dict[int, SettleResult]:
        log = self.logs.get(key)
        group = log.groups.get(group_name) if log else None
        results: dict[int, SettleResult] = {}
        if log is None or group is None:
            return {index: SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE) for index, _ in items}
        leases = [lease for lease in group.leases if not log.is_ordered or lease.partition == partition]
        good: dict[int, tuple[Settlement, Lease]] = {}
        for index, one in items:
            own = [lease for lease in leases if lease.token == one.token]
            holding = [lease for lease in own if one.seq in lease.held]
            if not own:
                results[index] = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
            elif not holding or any(one.seq == other.seq for other, _ in good.values()):
                results[index] = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)
            else:
                good[index] = (one, holding[0])
        good = self._undo_deliveries(log, group, good, results, now)
        for index, (one, _) in sorted(good.items(), key=lambda item: item[1][0].outcome is Outcome.NACK):
            limit = log.settings.max_attempts
            worn_out = 0 < limit <= group.marks[one.seq].attempts
            if one.outcome is Outcome.ACK:
                group.marks[one.seq].state = "completed"
                results[index] = SettleResult(SettleStatus.COMPLETED)
            elif one.outcome is Outcome.REJECT or worn_out:
                reason = DeadReason.REJECTED if one.outcome is Outcome.REJECT else DeadReason.MAX_ATTEMPTS
                name = self.bury(log, group, one.seq, reason, one.error, now)
                status = SettleStatus.DEAD if name else SettleStatus.DISCARDED
                results[index] = SettleResult(status, dead_letter_queue=name)
            else:
                mark = group.marks[one.seq]
                mark.retry_at = self._retry_time(log, one, mark.attempts, now)
                mark.error = one.error
                group.retried += 1
                results[index] = SettleResult(SettleStatus.RETRYING, retry_at=mark.retry_at)
        if log.is_ordered:
            # The partition waits for the latest of them, so that is when each comes again.
            latest = max((r.retry_at for r in results.values() if r.retry_at is not None), default=None)
            for index, result in results.items():
                if result.retry_at is not None:
                    results[index] = SettleResult(SettleStatus.RETRYING, retry_at=latest)
        for lease in list(group.leases):
            mine = {int(one.seq): results[index] for index, (one, owner) in good.items() if owner is lease}
            if mine:
                self._shrink_lease(log, group, lease, mine, now)
        return results

    def _undo_deliveries(
        self,
        log: Log,
        group: Group,
        good: dict[int, tuple[Settlement, Lease]],
        results: dict[int, SettleResult],
        now: Instant,
    ) -> dict[int, tuple[Settlement, Lease]]:
        """Take back what reached nobody; what is left to settle, among it releases that count as nacks."""
        left = {}
        for index, (one, lease) in good.items():
            words = [other for other, owner in good.values() if owner is lease]
            is_whole = len(words) == len(lease.held) and all(word.outcome is Outcome.RELEASE for word in words)
            if one.outcome is not Outcome.RELEASE:
                left[index] = (one, lease)
            elif log.is_ordered and not (is_whole and self._is_unseen(log, group, lease)):
                left[index] = (msgspec.structs.replace(one, outcome=Outcome.NACK, retry=Retry.NOW), lease)
            else:
                results[index] = SettleResult(SettleStatus.RETRYING, retry_at=now)
        for lease in list(group.leases):
            undone = [int(one.seq) for i, (one, owner) in good.items() if owner is lease and i not in left]
            if undone:
                others = any(owner is lease for _, owner in left.values())
                self._undo_delivery(log, group, lease, sorted(undone), now, told=not others)
        return left

    def _is_unseen(self, log: Log, group: Group, lease: Lease) -> bool:
        """Whether nothing behind the lease's first message was settled."""
        if lease.attempt > 1:
            return True
        settled = self.of_partition(log, group, lease.partition, "completed", "dead", "expired")
        return not any(seq > lease.held[0] and seq in log.entries for seq in settled)

    def _undo_delivery(self, log: Log, group: Group, lease: Lease, seqs: list[int], now: Instant, told: bool) -> None:
        if told:
            self.note(log, group, lease, seqs, 0, "released", now)
        for seq in seqs:
            mark = group.marks[seq]
            mark.attempts -= 1
            mark.retry_at = now
            mark.state = "open" if mark.attempts else "pending"
            if log.is_ordered and mark.state == "pending" and seq not in log.entries:
                mark.state = "expired"
        if log.is_ordered and lease.attempt > 1:
            group.rest_until[lease.partition] = now
        lease.held = [seq for seq in lease.held if seq not in seqs]
        if not lease.held:
            group.leases.remove(lease)

    def _shrink_lease(
        self, log: Log, group: Group, lease: Lease, results: Mapping[int, SettleResult], now: Instant
    ) -> None:
        """Take what a call settled or gave back out of its lease; a nack ends the lease of an ordered partition."""
        statuses = [result.status for result in results.values()]
        retry_times = [result.retry_at for result in results.values() if result.retry_at is not None]
        gone = list(results)
        if retry_times and log.is_ordered:
            gone = list(lease.held)
            group.rest_until[lease.partition] = max(retry_times)
        dead = SettleStatus.DEAD in statuses or SettleStatus.DISCARDED in statuses
        outcome = "retried" if retry_times else "dead" if dead else "completed"
        self.note(log, group, lease, gone, statuses.count(SettleStatus.COMPLETED), outcome, now)
        lease.held = [seq for seq in lease.held if seq not in gone]
        if not lease.held:
            group.leases.remove(lease)

    def _retry_time(self, log: Log, one: Settlement, attempts: int, now: Instant) -> Instant:
        match one.retry:
            case Retry.NOW:
                return now
            case Retry.AT:
                assert one.retry_at is not None
                return max(now, one.retry_at)
            case Retry.BACKOFF:
                wait_ms = min(log.settings.max_backoff_ms, log.settings.initial_backoff_ms * 2 ** (attempts - 1))
                return Instant(now + round(wait_ms * MICROS_PER_MS * (1 - JITTER_SHARE * one.jitter)))

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        return [self._renew(renewal, now) for renewal in renewals]

    def _renew(self, renewal: Renewal, now: Instant) -> RenewResult:
        log = self.logs.get(renewal.queue)
        group = log.groups.get(renewal.group) if log else None
        for lease in group.leases if group else []:
            if (lease.token, lease.partition) == (renewal.token, renewal.partition):
                lease.deadline = Instant(now + seconds(renewal.lease_seconds))
                return RenewResult(lease.deadline)
        return RenewResult(None, Code.STALE_LEASE)

    async def transact(
        self, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
    ) -> list[TransactionOutcome]:
        outcomes = []
        for transaction in transactions:
            before = copy.deepcopy(self.logs)
            settled = await self.settle(transaction.settlements, now)
            pushed = self._push(transaction.push, now, create_queues)
            committed = not pushed.refused and all(r.status is not SettleStatus.REFUSED for r in settled)
            if not committed:
                self.logs = before
            outcomes.append(TransactionOutcome(committed, settled, pushed))
        return outcomes

    # dead letters

    async def replay(self, wanted: DeadLetterFilter, ids: Sequence[Id], until: Seq, now: Instant) -> list[Replayed]:
        grave = self.log(wanted.queue)
        letters = [letter for letter in self._matching(wanted) if letter.seq <= until][: len(ids)]
        for letter in letters:
            self.log(QueueKey(letter.source_queue, wanted.queue.tenant))
        replayed = []
        for letter, id_ in zip(letters, ids, strict=False):
            log = self.log(QueueKey(letter.source_queue, wanted.queue.tenant))
            group = self.group(log, letter.group, FROM_NOW, now)
            message = NewMessage(
                queue=log.queue.key,
                payload=letter.payload,
                partition=letter.partition,
                transaction_id=letter.transaction_id,
                trace_id=letter.trace_id,
                headers=letter.headers,
                content_type=letter.content_type,
            )
            entry = self.append(log, message, id_, now, audience=group.id)
            self._remove_letter(grave, letter, now)
            replayed.append(Replayed(letter.seq, log.queue.key, id_, Seq(entry.seq)))
        return replayed

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant) -> int:
        letters = self._matching(wanted)[:limit]
        for letter in letters:
            self._remove_letter(self.log(wanted.queue), letter, now)
        return len(letters)

    def _remove_letter(self, grave: Log, letter: DeadLetter, now: Instant) -> None:
        partition = grave.entries[letter.seq].partition
        for group in grave.groups.values():
            mark = group.marks.get(letter.seq)
            lease = group.lease_of(letter.seq)
            live = lease is not None and lease.deadline > now
            if mark is not None and mark.state in ("pending", "open") and not live:
                mark.state = "expired"
                if lease is not None:
                    lease.held.remove(letter.seq)
                    if not lease.held:
                        group.leases.remove(lease)
            self.forget_rest(grave, group, partition)
        del grave.entries[letter.seq]
        del grave.dead[letter.seq]

    # groups

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        log = self.log(key)
        at = self.position(log, start) - 1
        found = log.groups.get(group)
        self.ids += 1
        log.groups[group] = Group(
            id=found.id if found else self.ids,
            name=group,
            start_seq=at,
            scan_seq=at,
            created_at=found.created_at if found else now,
        )
        return self.group_stats(log, log.groups[group], now)

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:
        return self.log(key).groups.pop(group, None) is not None

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        log = self.log(key)
        taken = 0 if log.groups else log.last_seq - log.first_seq + 1
        dropped = 0
        if scope is not ClearScope.SCHEDULED:
            for group in log.groups.values():
                taken += self._clear_group(log, group, scope, now)
            log.first_seq = log.last_seq + 1
        else:
            taken = 0
        if scope is not ClearScope.PENDING:
            dropped = len(log.scheduled)
            log.scheduled.clear()
        return Cleared(taken, dropped)

    def _clear_group(self, log: Log, group: Group, scope: ClearScope, now: Instant) -> int:
        lost, skipped = group.lost, group.skipped
        self.discover(log, group)
        # What was not discovered is cleared without a look at whom it is for.
        group.lost += group.skipped - skipped
        group.skipped = skipped
        taken = group.lost - lost
        for lease in list(group.leases):
            if scope is ClearScope.ALL or lease.deadline <= now:
                group.leases.remove(lease)
        for seq in group.unsettled():
            if group.lease_of(seq) is None:
                group.marks[seq].state = "expired"
                taken += 1
        group.rest_until.clear()
        return taken

    # chores

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        log = self.log(key)
        done = 0
        for group in log.groups.values():
            for lease in [lease for lease in group.leases if lease.deadline <= now]:
                done += self._bury_worn_out(log, group, lease, now)
            if log.settings.max_age_seconds or log.settings.max_wait_seconds:
                self.discover(log, group)
                for lease in [lease for lease in group.leases if lease.deadline <= now]:
                    if any(self.is_old(log, seq, now) for seq in lease.held):
                        self.reclaim(log, group, lease, now)
                # Behind a live lease nothing of an ordered partition moves, so expiry waits there, too.
                leased = {lease.partition for lease in group.leases} if log.is_ordered else set()
                free = [seq for seq in group.unsettled() if log.written[seq].partition not in leased]
                done += self.expire_old(log, group, free, now, limit - done)
                for partition in list(group.rest_until):
                    self.forget_rest(log, group, partition)
        return Chore(done, done == limit, self._next_expiry(log))

    def _bury_worn_out(self, log: Log, group: Group, lease: Lease, now: Instant) -> int:
        limit = log.settings.max_attempts
        worn_out = [seq for seq in lease.held if 0 < limit <= group.marks[seq].attempts and seq in log.entries]
        if log.is_ordered:
            if lease.held[0] in worn_out:
                self.reclaim(log, group, lease, now)
            return int(lease.held == [])
        for seq in worn_out:
            self.bury(log, group, seq, DeadReason.MAX_ATTEMPTS, group.marks[seq].error or EXPIRED_LEASE, now)
            lease.held.remove(seq)
        if not lease.held:
            group.leases.remove(lease)
        return len(worn_out)

    def _next_expiry(self, log: Log) -> Instant | None:
        longest = seconds(max(log.settings.max_age_seconds, log.settings.max_wait_seconds))
        unsettled = {seq for group in log.groups.values() for seq in group.unsettled()}
        return Instant(log.written[min(unsettled)].created_at + longest) if longest and unsettled else None

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        log, settings = self.log(key), self.log(key).settings
        settled = min((self.progress(group) for group in log.groups.values()), default=0)
        old = {seq for seq, e in log.entries.items() if e.created_at < now - seconds(settings.retention_seconds)}
        done_before = max(
            (
                p.settled_seq
                for p in log.retention_history
                if p.at <= now - seconds(settings.completed_retention_seconds)
            ),
            default=0,
        )
        needed = {seq for group in log.groups.values() for seq in group.unsettled()}
        doomed = {seq for seq in log.entries if seq < log.first_seq and seq not in needed}
        if settings.retention_seconds:
            doomed |= old if settings.retention_ignores_groups else {seq for seq in old if seq <= settled}
        if settings.completed_retention_seconds:
            doomed |= {seq for seq in log.entries if seq <= done_before}
        victims = sorted(doomed)[:limit]
        self._delete(log, victims)
        if settings.retention_seconds or settings.completed_retention_seconds:
            settled_seq, first_seq = Seq(settled), Seq(log.first_seq)
            log.retention_history.append(
                RetentionPass(queue=key, at=now, deleted=len(victims), first_seq=first_seq, settled_seq=settled_seq)
            )
        return Chore(len(victims), len(doomed) > len(victims))

    def _delete(self, log: Log, victims: list[int]) -> None:
        for group in log.groups.values():
            for seq in victims:
                mark = group.marks.get(seq)
                lease = group.lease_of(seq)
                if mark is not None and mark.state in ("pending", "open"):
                    mark.state = "expired"
                if lease is not None:
                    lease.held.remove(seq)
                    if not lease.held:
                        group.leases.remove(lease)
        for seq in victims:
            for group in log.groups.values():
                self.forget_rest(log, group, log.entries[seq].partition)
            del log.entries[seq]
        if victims:
            log.first_seq = max(log.first_seq, victims[-1] + 1)
