"""Popping from the reference model: what is ready is claimed by looking at everything."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.model import (
    DeadLetter,
    DeadLetterOrigin,
    Delivery,
    PopRequest,
    PopResult,
    Seq,
)
from tests.support.copies import copied
from tests.support.reference import Group, Lease, Log
from tests.support.reference_views import ReferenceViews


class ReferenceClaims(ReferenceViews):
    """The verb that leases messages."""

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
        if group.external:
            raise SkepError(Code.GROUP_EXTERNAL, "nobody pops for an external group")
        group.used(now)
        if log.settings.paused:
            return PopResult([])
        if discover is None:
            discover = self._ready_count(log, group, request, now) < request.batch
        if discover or log.settings.window_buffer_seconds:
            self.discover(log, group, now)
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
        if own is not None:
            return own
        return self.counts_from(log, group, seq) + seconds(log.settings.delayed_processing_seconds)

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
            dead_letter=_origin(log.dead.get(seq)),
        )

    def _deadline(self, log: Log, request: PopRequest, now: Instant) -> Instant:
        given = request.lease_seconds
        return Instant(now + seconds(log.settings.lease_seconds if given is None else given))

    def _ready_count(self, log: Log, group: Group, request: PopRequest, now: Instant) -> int:
        """How many a claim would take of what is discovered: found out by trying it on a copy."""
        trial = copied(self)
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
            found = self._claim_partition(log, group, partition, request.batch - len(taken), now)
            seqs = self._fitting(log, request, [*taken, *found])[len(taken) :]
            if seqs:
                used += 1
                self._lease(log, group, partition, seqs, request, now)
                taken += seqs
            if len(seqs) < len(found):
                break
        return taken

    def _fitting(self, log: Log, request: PopRequest, seqs: list[int]) -> list[int]:
        """The first of them, and those after it that do not make it too much to carry."""
        sizes = [len(log.entries[seq].payload) + len(log.entries[seq].headers or b"") for seq in seqs]
        return [seq for n, seq in enumerate(seqs) if not n or sum(sizes[: n + 1]) <= request.max_bytes]

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
            if log.entries[seq].created_at + delay <= now or log.entries[seq].created_at > now + seconds(5)
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
        chosen = self._fitting(log, request, self._choose(log, request, [seq for _, seq in ready], alone))
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
            consumer=request.consumer,
        )
        group.leases.append(lease)


def _origin(letter: DeadLetter | None) -> DeadLetterOrigin | None:
    if letter is None:
        return None
    return DeadLetterOrigin(
        letter.source_queue, letter.source_seq, letter.partition, letter.group, letter.reason, letter.error,
        letter.attempts, letter.failed_at,
    )  # fmt: skip
