"""What one can see of the reference model: queues, stats, leases, messages, dead letters, histories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from skep.clock import MICROS_PER_SECOND, Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DEFAULT_PARTITION,
    ArchiveStats,
    DeadLetter,
    DeadLetterFilter,
    GroupStats,
    LeasedMessage,
    LeaseFilter,
    LeaseInfo,
    MessageFilter,
    MessagePage,
    MessageState,
    Ordering,
    PartitionStats,
    Queue,
    QueueKey,
    QueueStats,
    Rates,
    Seq,
    StoredMessage,
)
from skep.model.history import FinishedLease, RetentionPass
from skep.model.record import MAX_BYTES
from tests.support.reference import Entry, Group, Log, Reference

NEVER = Instant(0)
"""For those who ask for no group, and so not who holds a message now."""


class ReferenceViews(Reference):
    """The verbs of a store that change nothing."""

    async def get_queue(self, key: QueueKey) -> Queue | None:
        return self.logs[key].queue if key in self.logs else None

    async def list_queues(
        self,
        tenant: str,
        after: str = "",
        limit: int = 100,
        namespace: str | None = None,
        task: str | None = None,
    ) -> list[Queue]:
        queues = [log.queue for log in self.logs.values() if log.queue.key.tenant == tenant]
        wanted = [
            queue
            for queue in queues
            if queue.key.name > after
            and namespace in (None, queue.settings.namespace)
            and task in (None, queue.settings.task)
        ]
        return sorted(wanted, key=lambda queue: queue.key.name)[:limit]

    async def sqs_note(self, key: QueueKey) -> bytes | None:
        return self.logs[key].sqs_note if key in self.logs else None

    async def keep_sqs_note(self, key: QueueKey, note: bytes, before: bytes | None, now: Instant) -> bool:
        log = self.log(key)
        if log.sqs_note != before:
            return False
        log.sqs_note = note
        return True

    async def tenants(self, after: str = "", limit: int = 100) -> list[str]:
        return sorted({key.tenant for key in self.logs if key.tenant > after})[:limit]

    # stats

    def group_stats(self, log: Log, group: Group, now: Instant) -> GroupStats:
        live = [lease for lease in group.leases if lease.deadline > now]
        in_flight = sum(len(lease.held) for lease in live)
        leased = {lease.partition for lease in live}
        waiting = [log.written[seq] for seq in group.unsettled()]
        waiting += [
            entry
            for entry in log.entries.values()
            if entry.seq > group.scan_seq and (group.external or entry.audience in (None, group.id))
        ]
        oldest_at = min((entry.created_at for entry in waiting), default=None)
        return GroupStats(
            queue=log.queue.key,
            group=group.name,
            progress_seq=Seq(self.progress(group)),
            start_seq=Seq(group.start_seq),
            pushed=log.pushed(group),
            completed=group.count("completed"),
            pending=log.backlog(group) - in_flight,
            in_flight=in_flight,
            dead=group.count("dead"),
            expired=group.expired,
            retried=group.retried,
            partitions_pending=len(set(self.partitions(log, group)) - leased),
            partitions_leased=len(leased),
            oldest_at=oldest_at,
            lag_seconds=(now - oldest_at) / MICROS_PER_SECOND if oldest_at is not None else 0.0,
            rates=self.rates(log, group, now),
            created_at=group.created_at,
            external=group.external,
            active_at=Instant(group.active_at),
            inactive_seconds=max(0, now - group.active_at) / MICROS_PER_SECOND,
            idle=group.idle,
            archived_seq=None if group.archived is None else Seq(group.archived),
        )

    def counters(self, log: Log, group: Group) -> tuple[int, int, int, int]:
        return (log.pushed(group), group.count("completed"), group.retried, group.count("dead"))

    def rates(self, log: Log, group: Group, now: Instant) -> Rates:
        """Return the growth since the latest sample that is a minute old, or else since the first."""
        old = [sample for sample in group.samples if sample[0] <= now - seconds(60)] or group.samples[:1]
        if not old or old[-1][0] >= now:
            return Rates()
        at, before = old[-1]
        elapsed = (now - at) / MICROS_PER_SECOND
        return Rates(*((b - a) / elapsed for a, b in zip(before, self.counters(log, group), strict=True)))

    async def queue_stats(self, key: QueueKey, now: Instant) -> QueueStats:
        log = self.log(key)
        groups = [self.group_stats(log, group, now) for _, group in sorted(log.groups.items())]
        ages = [group.lag_seconds for group in groups]
        if not groups:
            ages = [(now - e.created_at) / MICROS_PER_SECOND for e in log.entries.values() if e.seq >= log.first_seq]
        return QueueStats(
            queue=key,
            first_seq=Seq(log.first_seq),
            last_seq=Seq(log.last_seq),
            depth=log.depth,
            scheduled=len(log.scheduled),
            dead_letters=len(log.dead) + self._dead_letters_from(key),
            in_flight=sum(group.in_flight for group in groups),
            oldest_age_seconds=max(ages, default=0.0),
            rates=Rates(),
            groups=groups,
            gaps=log.last_seq - log.first_seq + 1 - len(log.logical),
            archive=self._archive(log, now) if log.settings.retention_requires_archive else None,
        )

    def _archive(self, log: Log, now: Instant) -> ArchiveStats:
        left = [entry for entry in log.logical if entry.seq > (log.archived or 0)]
        age = max(0, now - min((entry.created_at for entry in left), default=now)) / MICROS_PER_SECOND
        return ArchiveStats(None if log.archived is None else Seq(log.archived), len(left), age)

    async def stats_of(self, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
        return [await self.queue_stats(one.key, now) if one.key in self.logs else None for one in queues]

    def _dead_letters_from(self, key: QueueKey) -> int:
        graves = [log for log in self.logs.values() if log.queue.key.tenant == key.tenant]
        return sum(letter.source_queue == key.name for grave in graves for letter in grave.dead.values())

    async def partition_stats(
        self, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
    ) -> list[PartitionStats]:
        log = self.log(key)
        found = log.groups.get(group)
        partitions = self.partitions(log, found) if found else []
        return [
            self._partition_stats(log, found, partition, now) for partition in partitions if found and partition > after
        ][:limit]

    def _partition_stats(self, log: Log, group: Group, partition: str, now: Instant) -> PartitionStats:
        seqs = self.of_partition(log, group, partition, "open", "pending")
        lease = self.lease_in(group, partition)
        lease = lease if lease is not None and lease.deadline > now else None
        held = lease.held if lease else []
        return PartitionStats(
            queue=log.queue.key,
            group=group.name,
            partition=partition,
            pending=len(seqs) - len(held),
            in_flight=len(held),
            attempts=group.marks[seqs[0]].attempts,
            oldest_at=log.written[seqs[0]].created_at,
            ready_at=Instant(self.ready_at(log, group, partition)),
            lease_deadline=lease.deadline if lease else None,
            last_error=group.marks[seqs[0]].error,
        )

    async def leases(
        self,
        tenant: str,
        now: Instant,
        key: QueueKey | None = None,
        expiring_before: Instant | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        infos = [
            LeaseInfo(
                queue=log.queue.key,
                group=group.name,
                partition=lease.partition,
                messages=len(lease.held),
                first_seq=Seq(lease.held[0]),
                last_seq=Seq(lease.held[-1]),
                leased_at=lease.leased_at,
                deadline=lease.deadline,
                attempts=group.marks[lease.held[0]].attempts,
                consumer=lease.consumer,
            )
            for log in self.logs.values()
            for group in log.groups.values()
            for lease in group.leases
            if log.queue.key.tenant == tenant and key in (None, log.queue.key) and lease.deadline > now
        ]
        soon = [info for info in infos if expiring_before is None or info.deadline < expiring_before]
        return sorted(soon, key=lambda info: (info.deadline, info.partition))[:limit]

    async def leased_messages(self, wanted: Sequence[LeaseFilter], now: Instant) -> list[list[LeasedMessage]]:
        return [sorted(self._leased(one, now), key=lambda m: (m.partition, m.seq)) for one in wanted]

    def _leased(self, wanted: LeaseFilter, now: Instant) -> Iterator[LeasedMessage]:
        log = self.logs.get(wanted.queue)
        group = None if log is None else log.groups.get(wanted.group)
        if log is None or group is None:
            return
        partition = wanted.partition
        if partition is not None and log.settings.ordering is Ordering.FIFO:
            partition = DEFAULT_PARTITION
        for lease in group.leases:
            if lease.deadline <= now or wanted.token not in (None, lease.token):
                continue
            for seq in lease.held:
                if seq in log.entries and partition in (None, lease.partition):
                    entry = log.entries[seq]
                    yield LeasedMessage(
                        partition=lease.partition, seq=Seq(seq), id=entry.id, transaction_id=entry.transaction_id,
                        token=lease.token, deadline=lease.deadline,
                    )  # fmt: skip

    # messages

    async def messages(self, wanted: MessageFilter, now: Instant) -> MessagePage:
        log = self.log(wanted.queue)
        group = log.groups.get(wanted.group) if wanted.group is not None else None
        entries = [
            entry
            for entry in log.entries.values()
            if entry.seq >= log.first_seq or wanted.state is not None or wanted.cleared
        ]
        found = sorted((e for e in entries if self._is_wanted(log, group, e, wanted, now)), key=lambda e: e.seq)
        if wanted.descending:
            found.reverse()
        page = found[: wanted.limit]
        after = Seq(page[-1].seq) if len(found) > len(page) else None
        return MessagePage([self._stored(log, group, e, wanted.preview_bytes, now) for e in page], after)

    def _is_wanted(self, log: Log, group: Group | None, entry: Entry, wanted: MessageFilter, now: Instant) -> bool:
        passed = True
        if wanted.after is not None:
            passed = entry.seq < wanted.after if wanted.descending else entry.seq > wanted.after
        return (
            passed
            and wanted.partition in (None, entry.partition)
            and wanted.transaction_id in (None, entry.transaction_id)
            and wanted.trace_id in (None, entry.trace_id)
            and (wanted.since is None or entry.created_at >= wanted.since)
            and (wanted.until is None or entry.created_at < wanted.until)
            and (wanted.state is None or wanted.state is self._state(group, entry, now))
        )

    def _state(self, group: Group | None, entry: Entry, now: Instant) -> MessageState | None:
        if group is None or (entry.audience not in (None, group.id) and not group.external):
            return None
        if entry.seq > group.scan_seq:
            return MessageState.PENDING
        mark = group.marks.get(entry.seq)
        if mark is None or mark.state in ("completed", "expired"):
            return MessageState.SETTLED
        if mark.state == "dead":
            return MessageState.DEAD
        lease = group.lease_of(entry.seq)
        return MessageState.PENDING if lease is None or lease.deadline <= now else MessageState.IN_FLIGHT

    def _stored(
        self, log: Log, group: Group | None, entry: Entry, preview_bytes: int | None, now: Instant
    ) -> StoredMessage:
        return StoredMessage(
            queue=log.queue.key,
            seq=Seq(entry.seq),
            partition=entry.partition,
            id=entry.id,
            transaction_id=entry.transaction_id,
            trace_id=entry.trace_id,
            headers=entry.headers,
            content_type=entry.content_type,
            payload=entry.payload if preview_bytes is None else entry.payload[:preview_bytes],
            payload_bytes=len(entry.payload),
            priority=entry.priority,
            created_at=entry.created_at,
            state=self._state(group, entry, now),
        )

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage | None:
        log = self.log(key)
        return self._stored(log, None, log.entries[seq], None, NEVER) if seq in log.entries else None

    async def trace(
        self, tenant: str, trace_id: Id, limit: int = 1000, max_bytes: int = MAX_BYTES
    ) -> list[StoredMessage]:
        found = [
            self._stored(log, None, entry, None, NEVER)
            for log in self.logs.values()
            for entry in log.entries.values()
            if log.queue.key.tenant == tenant and entry.trace_id == trace_id
        ]
        found = sorted(found, key=lambda m: (m.created_at, m.queue, m.seq))[:limit]
        totals = accumulate(len(one.payload) for one in found)
        return [
            one if total <= max_bytes else msgspec.structs.replace(one, payload=b"")
            for one, total in zip(found, totals, strict=True)
        ]

    async def with_transaction_id(self, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
        found = [
            self._stored(log, None, entry, 0, NEVER)
            for log in self.logs.values()
            for entry in log.entries.values()
            if log.queue.key.tenant == tenant and entry.transaction_id == transaction_id
        ]
        return sorted(found, key=lambda m: (m.created_at, m.queue, m.seq), reverse=True)[:limit]

    # dead letters

    def _matching(self, wanted: DeadLetterFilter) -> list[DeadLetter]:
        if not (self.log(wanted.queue).queue.holds_dead_letters or self.is_used(wanted.queue)):
            raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"{wanted.queue.name} is no dead-letter queue")
        return [letter for _, letter in sorted(self.log(wanted.queue).dead.items()) if _letter_matches(letter, wanted)]

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        found, room = [], max_bytes
        for letter in [letter for letter in self._matching(wanted) if after is None or letter.seq > after][:limit]:
            if room > 0:
                found.append(letter)
            room -= len(letter.payload)
        return found

    async def count_dead_letters(self, wanted: DeadLetterFilter) -> int:
        return len(self._matching(wanted))

    # histories

    async def lease_history(
        self, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        numbered = list(enumerate(self.log(key).lease_history, 1))
        return [
            (number, lease)
            for number, lease in numbered
            if number > after and (since is None or lease.settled_at >= since)
        ][:limit]

    async def retention_history(self, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
        return self.log(key).retention_history[::-1][:limit]


def _letter_matches(letter: DeadLetter, wanted: DeadLetterFilter) -> bool:
    return (
        (wanted.ids is None or letter.id in wanted.ids)
        and (wanted.seqs is None or letter.seq in wanted.seqs)
        and wanted.source_queue in (None, letter.source_queue)
        and wanted.partition in (None, letter.partition)
        and wanted.group in (None, letter.group)
        and wanted.reason in (None, letter.reason)
        and (wanted.error_contains is None or wanted.error_contains in (letter.error or ""))
        and (wanted.since is None or letter.failed_at >= wanted.since)
        and (wanted.until is None or letter.failed_at < wanted.until)
        and (wanted.up_to is None or letter.seq <= wanted.up_to)
    )
