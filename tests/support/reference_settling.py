"""Settling and renewing in the reference model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import msgspec

from skep.clock import MICROS_PER_MS, Instant, seconds
from skep.errors import Code
from skep.model import (
    DeadReason,
    Outcome,
    QueueKey,
    Renewal,
    RenewResult,
    Retry,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.model.transaction import TransactionOutcome
from tests.support.reference import Answer, Group, Lease, Log
from tests.support.reference_views import ReferenceViews

JITTER_SHARE = 0.2
REMEMBERED_SECONDS = 300


def _same_words(first: Settlement, second: Settlement) -> bool:
    if first.outcome is not second.outcome or first.outcome is not Outcome.NACK:
        return first.outcome is second.outcome
    return first.retry is second.retry and (first.retry is not Retry.AT or first.retry_at == second.retry_at)


def _by_partition(log: Log, one: Settlement) -> bool:
    """Whether the partition tells a lease from others of its token: that of an unordered queue is found by the token alone."""
    return log.is_ordered or one.outcome is Outcome.ACK_THROUGH


class ReferenceSettling(ReferenceViews):
    """The verbs that end leases, or make them last."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        results = self.settle_new(settlements, now)
        for one, result in zip(settlements, results, strict=True):
            self.remember(one, result, now)
        return [
            result if result.code is None else self._answered(one, result, now)
            for one, result in zip(settlements, results, strict=True)
        ]

    def remember(
        self,
        one: Settlement,
        result: SettleResult,
        now: Instant,
        fingerprint: bytes = b"",
        outcome: TransactionOutcome | None = None,
    ) -> None:
        """Keep what a settlement was answered that changed something."""
        if result.code is None:
            log = self.logs[one.queue]
            group = log.groups[one.group].id
            log.answers.append(Answer(now, group, one, result, fingerprint, outcome))
            for single in log.swept.pop((group, one.token, one.partition, one.seq), []):
                log.answers.append(Answer(now, group, single, SettleResult(SettleStatus.COMPLETED)))

    def answers_of(self, one: Settlement, now: Instant) -> list[Answer]:
        """What was answered to settlements of that message under that token, not long ago."""
        log = self.logs.get(one.queue)
        group = log.groups.get(one.group) if log else None
        if log is None or group is None:
            return []
        return [
            answer
            for answer in log.answers
            if (answer.group, answer.settlement.token, answer.settlement.seq) == (group.id, one.token, one.seq)
            and (not _by_partition(log, one) or answer.settlement.partition == one.partition)
            and answer.at + seconds(REMEMBERED_SECONDS) > now
        ]

    def _answered(self, one: Settlement, refused: SettleResult, now: Instant) -> SettleResult:
        for answer in self.answers_of(one, now):
            if _same_words(answer.settlement, one):
                return msgspec.structs.replace(answer.result, repeated=True, frees=False)
        return refused

    def settle_new(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        """Settle what is under a lease, and refuse the rest."""
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
        group.used(now)
        leases = [lease for lease in group.leases if not log.is_ordered or lease.partition == partition]
        good: dict[int, tuple[Settlement, Lease]] = {}
        single = [(index, one) for index, one in items if one.outcome is not Outcome.ACK_THROUGH]
        whole = [(index, one) for index, one in items if one.outcome is Outcome.ACK_THROUGH]
        for index, one in single:
            own = [lease for lease in leases if lease.token == one.token]
            holding = [lease for lease in own if one.seq in lease.held]
            if not own:
                results[index] = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
            elif not holding or any(one.seq == other.seq for other, _ in good.values()):
                results[index] = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)
            else:
                good[index] = (one, holding[0])
        for index, one in whole:
            results[index] = self._sweep(log, group, one, good)
        good = self._undo_deliveries(log, group, good, results, now)
        for index, (one, lease) in sorted(good.items(), key=lambda item: item[1][0].outcome is Outcome.NACK):
            limit = log.settings.max_attempts
            worn_out = 0 < limit <= group.marks[one.seq].attempts
            if one.outcome is not Outcome.ACK:
                fate = "dead" if one.outcome is Outcome.REJECT or worn_out else "retried"
                self.fail(log, group, lease, one.seq, fate, one.error, now)
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
                mark.retry_at, mark.said_at = self._retry_time(log, one, mark.attempts, now), now
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
        self.drop_gone(log, group)
        return results

    def _sweep(
        self, log: Log, group: Group, one: Settlement, good: dict[int, tuple[Settlement, Lease]]
    ) -> SettleResult:
        """An ack of a lease is an ack of each of its messages that the call says nothing of."""
        own = [lease for lease in group.leases if (lease.token, lease.partition) == (one.token, one.partition)]
        if not own:
            return SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
        named = {(other.seq, owner.token) for other, owner in good.values()}
        singles = [
            (msgspec.structs.replace(one, seq=Seq(seq), outcome=Outcome.ACK), lease)
            for lease in own
            for seq in lease.held
            if seq <= one.seq and (seq, lease.token) not in named
        ]
        if not singles:
            return SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)
        good |= {-len(good) - number: single for number, single in enumerate(singles, 1)}
        log.swept[group.id, one.token, one.partition, one.seq] = [single for single, _ in singles]
        return SettleResult(SettleStatus.COMPLETED, messages=len(singles))

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
            mark.retry_at = mark.said_at = now
            mark.state = "open" if mark.attempts else "pending"
            if log.is_ordered and mark.state == "pending" and seq not in log.entries:
                mark.state = "expired"
        if log.is_ordered and lease.attempt > 1:
            group.rest_until[lease.partition] = group.rest_from[lease.partition] = now
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
            group.rest_from[lease.partition] = now
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
            if (lease.token, lease.partition) == (renewal.token, renewal.partition) and (
                renewal.seq is None or renewal.seq in lease.held
            ):
                assert group is not None
                assert log is not None
                if renewal.seq is not None and len(lease.held) > 1 and not log.is_ordered:
                    lease.held.remove(renewal.seq)
                    lease = dataclasses.replace(lease, held=[renewal.seq])
                    group.leases.append(lease)
                lease.leased_at = now if lease.deadline <= now else min(lease.leased_at, now)
                lease.deadline = Instant(now + seconds(renewal.lease_seconds))
                return RenewResult(lease.deadline)
        return RenewResult(None, Code.STALE_LEASE)
