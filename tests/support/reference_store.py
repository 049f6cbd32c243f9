"""The reference model with the face of a store: the verbs that change things.

Popping is in `reference_claims`, settling in `reference_settling`, expiry and retention in `reference_chores`, what only looks in
`reference_views`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

import msgspec
import pyarrow as pa
from msgspec import UNSET

from skep.arrow.log import LogPiece, LogRange, NewRows
from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DEFAULT_PARTITION,
    FROM_BEGINNING,
    NO_DEAD_LETTER_QUEUE,
    NO_GROUP,
    SEALED_TYPE,
    Appended,
    Cleared,
    ClearScope,
    DeadLetterFilter,
    DeletedMessage,
    Depth,
    Edited,
    GroupStats,
    LogBounds,
    NewMessage,
    Ordering,
    PopRequest,
    PopResult,
    PurgeStep,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Replayed,
    ReplayStep,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
    Start,
    StartMode,
    Token,
)
from skep.model.chores import Chore, Connections
from skep.model.group import no_group
from skep.model.operation import operations_ahead
from skep.model.system_event import EventPosition, SystemEvents
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.rules import check_sealed
from skep.wire.times import to_datetime
from tests.support.copies import copied
from tests.support.reference import UNSETTLED, ClosedLogs, Entry, Group, Log, Scheduled
from tests.support.reference_access import ReferenceAccess
from tests.support.reference_chores import ReferenceChores
from tests.support.reference_clock import ReferenceClock
from tests.support.reference_data_keys import ReferenceDataKeys
from tests.support.reference_forgetting import ReferenceForgetting
from tests.support.reference_operations import ReferenceOperations
from tests.support.reference_past import ReferencePast, replay_record
from tests.support.reference_refusals import ReferenceRefusals
from tests.support.reference_reports import ReferenceReports
from tests.support.reference_scheduled import ReferenceScheduled
from tests.support.reference_settling import ReferenceSettling


class ReferenceStore(
    ReferenceChores,
    ReferenceSettling,
    ReferenceClock,
    ReferenceOperations,
    ReferencePast,
    ReferenceDataKeys,
    ReferenceForgetting,
    ReferenceReports,
):
    """A store in memory, naive and slow, that the real ones are compared with."""

    def __init__(self) -> None:
        super().__init__()
        self.access = ReferenceAccess()
        self.refusals = ReferenceRefusals()
        self.records = self
        self.scheduled = ReferenceScheduled(self)
        self.wrapped = []
        self.seals = {}
        self.passes = []

    async def open(self) -> None:
        """Nothing to connect to."""

    async def close(self) -> None:
        """Forget everything."""
        self.logs = ClosedLogs()

    def connections(self) -> Connections:
        """None."""
        return Connections()

    session = ""

    async def probe(self) -> None:
        """There is nothing to be cut off from."""

    def waited_seconds(self) -> float:
        """Nobody waits."""
        return 0.0

    def suspend(self) -> None:
        """There are no sessions."""

    async def resume(self) -> None:
        """There are no sessions."""

    async def fence(self, sessions: Sequence[str]) -> None:
        """There are no sessions."""

    async def maintain(self) -> None:
        """Nothing to keep up."""

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        """There is no other server that could change anything."""
        return SystemEvents(after or EventPosition(), [])

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        """There are no other servers."""

    def on_news(self, callback: Callable[[QueueKey], None], missed: Callable[[], None]) -> None:
        """There are no other servers."""

    def announce_operations(self) -> None:
        """There are no other servers."""

    def on_operations(self, callback: Callable[[], None]) -> None:
        """There are no other servers."""

    async def sample(self, now: Instant) -> None:
        """Note the counters of every group."""
        for log in self.logs.values():
            for group in log.groups.values():
                group.samples.append((now, self.counters(log, group)))
        self.note_past(now)

    async def sweep(self, now: Instant, limit: int) -> Chore:
        """Deleted queues are gone at once; keys that ran out are dropped."""
        for log in self.logs.values():
            log.dedup = {key: entry for key, entry in log.dedup.items() if entry[2] > now}
        self.chunks = {at: chunk for at, chunk in self.chunks.items() if chunk.expires_at > now}
        self.receipts_kept = {key: kept for key, kept in self.receipts_kept.items() if kept.expires_at > now}
        self.access.sweep(now)
        return Chore()

    # queues

    async def create_queue(self, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
        if key in self.logs:
            raise SkepError(Code.QUEUE_EXISTS, f"there is a queue {key.name} already")
        self.check_dead_letter_rules(key, settings.dead_letter_queue)
        self._make_named(key, settings, now)
        return self.make(key, settings, now, holds_dead_letters=self.is_used(key)).queue

    async def update_queue(self, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
        log = self.log(key)
        settings = changes.apply(log.settings)
        if changes.dead_letter_queue is not UNSET:
            self.check_dead_letter_rules(key, settings.dead_letter_queue)
        if settings.ordering is not log.settings.ordering and log.depth > len(log.scheduled):
            raise SkepError(Code.INVALID_SETTING, "ordering changes only while nothing is unsettled")
        if settings.ordering is not log.settings.ordering and any(
            kept.asked.queue == key for kept in self.living_operations
        ):
            raise SkepError(Code.INVALID_SETTING, "ordering changes only while no operation waits")
        is_archived = all(entry.seq <= (log.archived or 0) for entry in log.logical)
        if settings.ordering is not log.settings.ordering and settings.retention_requires_archive and not is_archived:
            raise SkepError(Code.INVALID_SETTING, "ordering changes only when all is in a lake")
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
        if (user := self.user_of(key)) is not None:
            raise SkepError(Code.DEAD_LETTER_QUEUE_IN_USE, f"{key.name} is in use as a dead-letter queue", used_by=user)
        del self.logs[key]
        self.end_operations(key, now)
        return True

    # push

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        behind: set[tuple[QueueKey, str]] = set()
        return [self._push_behind(behind, batch, now, create_queues) for batch in batches]

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        outcomes = await self.push(batches, now, create_queues)
        try:
            return outcomes, list(await self.pop(requests, now))
        except SkepError:  # who waits in vain finds out by itself
            return outcomes, [None] * len(requests)

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        results = await self.settle(settlements, now)
        try:
            return results, list(await self.pop(requests, now))
        except SkepError:
            return results, [None] * len(requests)

    def _push_behind(
        self, behind: set[tuple[QueueKey, str]], batch: PushBatch, now: Instant, create_queues: bool
    ) -> PushOutcome:
        """Push a batch unless it would overtake an operation, or an earlier batch of the same call that waits for one."""
        places = {self.stored_place((m.queue, m.partition)) for m in batch.messages}
        recorded = batch.receipt is not None and self.living(batch.receipt.key, now) is not None
        if not recorded and (self.would_overtake(places) or not behind.isdisjoint(places)):
            behind |= places
            return PushOutcome([], {}, held=True)
        return self._push_once(batch, now, create_queues)

    def _push_once(self, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
        known = None if batch.receipt is None else self.living(batch.receipt.key, now)
        if known is not None:
            return PushOutcome([], {}, known.answer)
        if batch.tried is not None and self._is_stored(batch):
            if batch.receipt is not None:
                self.receipts_kept[batch.receipt.key] = batch.receipt
            return PushOutcome([], {}, b"" if batch.receipt is None else batch.receipt.answer)
        outcome = self._push(batch, now, create_queues)
        if batch.receipt is not None and not outcome.refused:
            answer = batch.receipt.answer
            for id_, result in zip(batch.ids, outcome.results, strict=True):
                answer = answer.replace(str(UUID(bytes=id_)).encode(), str(UUID(bytes=result.id)).encode())
            self.receipts_kept[batch.receipt.key] = msgspec.structs.replace(batch.receipt, answer=answer)
        return outcome

    def _is_stored(self, batch: PushBatch) -> bool:
        logs = [self.logs[key] for key in {message.queue for message in batch.messages} if key in self.logs]
        there = {entry.id for log in logs for entry in log.entries.values()}
        there |= {waiting.id for log in logs for waiting in log.scheduled}
        return not there.isdisjoint(batch.ids)

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        ids = [Id(bytes(id_)) for id_ in rows.ids()]
        messages = [
            NewMessage(key, payload.as_py(), partition.as_py().decode(), headers=rows.headers)
            for partition, payload in zip(rows.partition, rows.payload, strict=True)
        ]
        self.check_order(PushBatch(messages, ids))
        outcome = self._push(PushBatch(messages, ids), now, create_queue)
        first, last = outcome.results[0], outcome.results[-1]
        if first.code is not None:
            raise SkepError(first.code, first.reason or "refused")
        assert first.seq is not None
        assert last.seq is not None
        return Appended(first.seq, last.seq, outcome.depths[key])

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        log = self.log(key)
        rows, used, through = list[dict[str, object]](), 0, min(wanted.last, log.last_seq)
        if max(wanted.first, log.first_seq) > through:
            through = wanted.last
        for m in (
            log.entries[seq] for seq in sorted(log.entries) if max(wanted.first, log.first_seq) <= seq <= through
        ):
            if wanted.partitions is not None and m.partition not in wanted.partitions:
                continue
            used += len(m.payload)
            rows.append(
                {
                    "partition": m.partition, "seq": m.seq, "message_id": m.id, "transaction_id": m.transaction_id,
                    "trace_id": m.trace_id, "payload": m.payload, "content_type": m.content_type,
                    "headers": m.headers and m.headers.decode(), "created_at": to_datetime(m.created_at),
                }
            )  # fmt: skip
            if len(rows) == wanted.max_rows or used >= wanted.max_bytes:
                through = m.seq
                break
        return LogPiece(pa.RecordBatch.from_pylist(rows, schema=wanted.schema), Seq(through))

    async def first_seqs_at(self, tenant: str, queues: Sequence[str], at: Instant) -> dict[str, Seq]:
        start = Start(StartMode.TIME, at)
        return {name: Seq(self.position(log, start)) for name, log in self.those_of(tenant, queues).items()}

    async def last_seqs_within(
        self, tenant: str, firsts: Mapping[str, Seq], max_bytes: int, max_rows: int
    ) -> dict[str, Seq]:
        found = self.those_of(tenant, firsts)
        return {name: self.last_within(log, firsts[name], max_bytes, max_rows) for name, log in found.items()}

    async def progress_of_logs(self, tenant: str, queues: Sequence[str], group: str) -> dict[str, Seq]:
        found = {name: log for name, log in self.those_of(tenant, queues).items() if group in log.groups}
        return {name: self.group_stats(log, log.groups[group], Instant(0)).progress_seq for name, log in found.items()}

    def last_within(self, log: Log, first: Seq, max_bytes: int, max_rows: int) -> Seq:
        low = max(first, log.first_seq)
        last, used = low, 0
        for seq in range(low, min(log.last_seq, low + max_rows - 1) + 1):
            if seq in log.entries:
                if used and used + len(log.entries[seq].payload) > max_bytes:
                    return Seq(last)
                used += len(log.entries[seq].payload)
            last = seq
        return Seq(min(last, log.last_seq))

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        stats = await self.queue_stats(key, Instant(0))
        at = Instant(self.log(key).last_created_at)
        log = self.log(key)
        return LogBounds(stats.first_seq, stats.last_seq, at or None, log.queue.created_at, len(log.tombstones))

    async def bounds_of_logs(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        keys = [QueueKey(name, tenant) for name in queues]
        return {key.name: await self.log_bounds(key) for key in keys if key in self.logs}

    def _push(self, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
        before = copied(self.logs)
        results: list[PushResult] = []
        refused: dict[QueueKey, Code] = {}
        for message, id_ in zip(batch.messages, batch.ids, strict=True):
            if message.queue not in self.logs:
                if not create_queues:
                    refused[message.queue] = Code.QUEUE_NOT_FOUND
                    continue
                self.make(message.queue, QueueSettings(), now)
            log = self.logs[message.queue]
            if batch.audience is None:
                results.append(self._push_one(log, message, id_, now))
                continue
            group = log.groups.get(batch.audience)
            if group is None:
                raise no_group(message.queue.name, batch.audience)
            seq = Seq(self.append(log, message, id_, now, group.id).seq)
            trace_id = message.trace_id or id_
            results.append(PushResult(PushStatus.STORED, id_, seq, message.transaction_id, trace_id))
        for message in batch.messages:
            known = self.logs.get(message.queue)
            if known is not None and known.settings.encryption_enabled and message.content_type != SEALED_TYPE:
                refused[message.queue] = Code.NOT_ENCRYPTED
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
        queues = dict.fromkeys(message.queue for message in batch.messages)
        return PushOutcome(results, {key: self._depth(key) for key in queues if key in self.logs})

    def _same_size(self, before: Log | None, after: Log) -> bool:
        was = (before.last_seq, len(before.scheduled)) if before else (0, 0)
        return was == (after.last_seq, len(after.scheduled))

    def _depth(self, key: QueueKey) -> Depth:
        log = self.logs[key]
        limit = log.settings.max_depth
        return Depth(log.depth, max(0, limit - log.depth) if limit else None)

    def _push_one(self, log: Log, message: NewMessage, id_: Id, now: Instant) -> PushResult:
        partition = DEFAULT_PARTITION if log.settings.ordering is Ordering.FIFO else message.partition
        counts_in = "" if log.settings.dedup_across_partitions else partition
        known = log.dedup.get((message.transaction_id, counts_in)) if message.transaction_id is not None else None
        if known is not None and known[2] > now:
            seq = Seq(known[1]) if known[1] is not None else None
            return PushResult(
                PushStatus.DUPLICATE, known[0], seq, message.transaction_id, self._trace_of(log, *known[:2])
            )
        seq = None
        if message.deliver_at is not None and message.deliver_at > now:
            kept = msgspec.structs.replace(message, partition=partition)
            log.scheduled.append(Scheduled(message.deliver_at, kept, id_, self.scheduled.arrive()))
        else:
            seq = Seq(self.append(log, message, id_, now).seq)
        if message.transaction_id is not None:
            expires_at = Instant(now + seconds(log.settings.dedup_window_seconds))
            log.dedup[message.transaction_id, counts_in] = (id_, seq, expires_at)
        status = PushStatus.SCHEDULED if seq is None else PushStatus.STORED
        return PushResult(status, id_, seq, message.transaction_id, message.trace_id or id_)

    def _trace_of(self, log: Log, id_: Id, seq: int | None) -> Id | None:
        """The trace of a message that is in the log or scheduled; one that is neither any more has none."""
        if seq is not None:
            return log.entries[seq].trace_id if seq in log.entries else None
        return next((one.message.trace_id or id_ for one in log.scheduled if one.id == id_), None)

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        return self.scheduled.promote(key, now, limit)

    async def transact(
        self, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
    ) -> list[TransactionOutcome]:
        return [self._transact(transaction, now, create_queues) for transaction in transactions]

    def _transact(self, transaction: Transaction, now: Instant, create_queues: bool) -> TransactionOutcome:
        repeat = self._committed_before(transaction, now)
        if repeat is not None:
            return repeat
        self.check_order(transaction.push)
        before = copied(self.logs), self.recorded()
        conflict = self.record(transaction.effects, transaction.receipts, now)
        settled = self.settle_new(transaction.settlements, now)
        pushed = self._push(transaction.push, now, create_queues)
        refused = pushed.refused or any(r.status is SettleStatus.REFUSED for r in settled)
        outcome = TransactionOutcome(not refused, settled, pushed)
        if refused or conflict is not None:
            self.logs = before[0]
            self.restore(before[1])
        else:
            for one, result in zip(transaction.settlements, settled, strict=True):
                self.remember(one, result, now, transaction.fingerprint, outcome)
        return outcome if conflict is None else self._in_conflict(transaction, *conflict)

    def _committed_before(self, transaction: Transaction, now: Instant) -> TransactionOutcome | None:
        if not transaction.settlements or not transaction.fingerprint:
            return None
        for answer in self.answers_of(transaction.settlements[0], now):
            if answer.fingerprint == transaction.fingerprint and answer.outcome is not None:
                return msgspec.structs.replace(answer.outcome, repeated=True)
        return None

    def _in_conflict(self, transaction: Transaction, code: Code, index: int) -> TransactionOutcome:
        settled = [SettleResult(SettleStatus.REFUSED, Code.BATCH_REFUSED) for _ in transaction.settlements]
        pushed = [PushResult(PushStatus.REFUSED, id_, code=Code.BATCH_REFUSED) for id_ in transaction.push.ids]
        return TransactionOutcome(False, settled, PushOutcome(pushed, {}), code, index)

    # dead letters

    async def replay(
        self,
        wanted: DeadLetterFilter,
        ids: Sequence[Id],
        until: Seq,
        now: Instant,
        edited: Edited | None = None,
        after: Seq | None = None,
    ) -> ReplayStep:
        grave = self.log(wanted.queue)
        letters = [letter for letter in self._matching(wanted) if (after or 0) < letter.seq <= until][: len(ids)]
        for letter in letters:
            source = self.log(QueueKey(letter.source_queue, wanted.queue.tenant))
            if edited is not None:
                check_sealed(letter.source_queue, source.settings.encryption_enabled, edited.content_type)
        if self.would_overtake((QueueKey(x.source_queue, wanted.queue.tenant), x.partition) for x in letters):
            raise operations_ahead()
        replayed = []
        for letter, id_ in zip(letters, ids, strict=False):
            log = self.log(QueueKey(letter.source_queue, wanted.queue.tenant))
            group = None if letter.group == NO_GROUP else self.group(log, letter.group, FROM_BEGINNING, now)
            message = NewMessage(
                queue=log.queue.key,
                payload=letter.payload if edited is None else edited.payload,
                partition=letter.partition,
                transaction_id=letter.transaction_id,
                trace_id=letter.trace_id,
                headers=letter.headers if edited is None else edited.headers,
                content_type=letter.content_type if edited is None else edited.content_type,
            )
            entry = self.append(log, message, id_, now, audience=None if group is None else group.id)
            self.take_away(grave, int(letter.seq), now)
            grave.replays.append(replay_record(letter, log.queue.key.name, entry.seq, id_, now))
            replayed.append(Replayed(letter.seq, log.queue.key, id_, Seq(entry.seq)))
        return ReplayStep(replayed, letters[-1].seq if letters and len(letters) == len(ids) else None)

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None) -> PurgeStep:
        letters = [letter for letter in self._matching(wanted) if letter.seq > (after or 0)][:limit]
        for letter in letters:
            self.take_away(self.log(wanted.queue), int(letter.seq), now)
        return PurgeStep(len(letters), letters[-1].seq if letters and len(letters) == limit else None)

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
            external=found is not None and found.external,
            archived=None if found is None or found.archived is None else min(found.archived, at),
            active_at=now,
        )
        self.pass_over_gone(log, log.groups[group])
        return self.group_stats(log, log.groups[group], now)

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:
        return self.log(key).groups.pop(group, None) is not None

    async def end_leases(self, key: QueueKey, group: str, partition: str, now: Instant) -> int:
        found = self.log(key).groups.get(group)
        live = [
            lease for lease in (found.leases if found else []) if lease.partition == partition and lease.deadline > now
        ]
        for lease in live:
            lease.deadline = now
        return len(live)

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
        found = self.log(key).groups.get(group)
        held = [
            lease for lease in (found.leases if found else []) if (lease.partition, lease.token) == (partition, token)
        ]
        for lease in held:
            lease.deadline, lease.token = min(lease.deadline, now), Token(b"nobody has this")
        return len(held)

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
    ) -> DeletedMessage:
        log = self.log(key)
        entry = log.entries.get(seq)
        if entry is None or id_ not in (None, entry.id):
            raise SkepError(Code.MESSAGE_NOT_FOUND, f"there is no message {seq}")
        waiting = [group for group in log.groups.values() if self._waits_for(group, entry)]
        if not waiting and (log.groups or seq < log.first_seq):
            raise SkepError(Code.MESSAGE_SETTLED, f"message {seq} is settled in every group")
        held = [(group, lease) for group in waiting if (lease := group.lease_of(seq)) is not None]
        names = sorted(group.name for group in waiting)
        deleted = DeletedMessage(seq, entry.id, entry.partition, entry.transaction_id, names, len(held))
        if not dry_run:
            for group, lease in held:
                await self.release_lease(key, group.name, lease.partition, lease.token, now)
            self.take_away(log, seq, now)
            log.failures = [failure for failure in log.failures if failure.seq != seq]
        return deleted

    def _waits_for(self, group: Group, entry: Entry) -> bool:
        if entry.seq > group.scan_seq:
            return group.external or entry.audience in (None, group.id)
        mark = group.marks.get(entry.seq)
        return mark is not None and mark.state in UNSETTLED

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        log = self.log(key)
        taken = 0 if log.groups else len(log.logical)
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
        self.discover(log, group, now)
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
