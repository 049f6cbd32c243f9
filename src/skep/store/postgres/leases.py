"""One lease row in hand: what settling, running out and expiring make of it.

Pure functions on a row of `partition_lease`, for the paths that are not hot; pop and ack of a whole lease are done in SQL
(functions/pop.sql, functions/settle.sql) and must agree with this. `docs/log.md` is the specification.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.model import DeadReason, Outcome, QueueSettings, Settlement, SettleResult, SettleStatus
from skep.store.postgres.dead import Burial
from skep.store.rules import is_exhausted, retry_time


class Lease(Struct):
    """A row of `partition_lease`, locked by us.

    ``changed`` says that it must be written back; ``resting`` that its ``ready_at`` is a retry's time and stays.
    """

    partition: str
    delivered_seq: int
    pending: int
    open: list[int]
    leased: int
    attempts: int
    token: bytes | None
    leased_at: int | None
    ready_at: int
    oldest_at: int
    newest_at: int
    last_error: str | None
    changed: bool = False
    resting: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do; such a row is deleted."""
        return not self.open and not self.pending


def lease_of(row: asyncpg.Record) -> Lease:
    """The lease that a row holds."""
    return Lease(
        partition=row["partition"],
        delivered_seq=row["delivered_seq"],
        pending=row["pending"],
        open=list(row["open"]),
        leased=row["leased"],
        attempts=row["attempts"],
        token=row["token"],
        leased_at=row["leased_at"],
        ready_at=row["ready_at"],
        oldest_at=row["oldest_at"],
        newest_at=row["newest_at"],
        last_error=row["last_error"],
    )


class Ending(Struct, frozen=True):
    """A row for the lease history."""

    partition: str
    first_seq: int
    last_seq: int
    messages: int
    completed: int
    attempt: int
    leased_at: int
    outcome: str


class Effects(Struct):
    """What settling adds up to, besides the changed rows."""

    completed: int = 0
    dead: int = 0
    expired: int = 0
    retried: int = 0
    burials: list[Burial] = []
    endings: list[Ending] = []


REFUSED_STALE = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
REFUSED_NOT_IN_LEASE = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)
COMPLETED = SettleResult(SettleStatus.COMPLETED)
BURIED = SettleResult(SettleStatus.DEAD)
"""Stands in until it is known where the message was buried."""


def settle_lease(
    lease: Lease, items: Sequence[Settlement], settings: QueueSettings, now: Instant, effects: Effects
) -> list[SettleResult]:
    """Apply one call's settlements to one lease: a result for each, the lease changed, the effects added."""
    held = lease.open[: lease.leased]
    left_over = set(held)
    unheard = set(held)
    completed = 0
    buried = False
    nacked: list[SettleResult] = []
    errors: dict[int, str | None] = {}
    results: list[SettleResult] = []
    for item in items:
        if item.seq not in unheard:
            results.append(REFUSED_NOT_IN_LEASE)
            continue
        unheard.discard(item.seq)
        result = _judge(lease, item, settings, now, effects)
        results.append(result)
        if result.status is SettleStatus.RETRYING:
            nacked.append(result)
            errors[item.seq] = item.error
            continue
        left_over.discard(item.seq)
        completed += result.status is SettleStatus.COMPLETED
        buried = buried or result.status is SettleStatus.DEAD
    touched = sorted(set(held) - unheard)
    if not touched:
        return results
    effects.completed += completed
    effects.retried += len(nacked)
    covered = held if nacked else touched
    outcome = "retried" if nacked else "dead" if buried else "completed"
    effects.endings.append(_ending(lease, covered, completed, outcome))
    left = [seq for seq in held if seq in left_over]
    head_stays = bool(left) and left[0] == held[0]
    lease.open = left + lease.open[lease.leased :]
    lease.leased = len(left)
    lease.changed = True
    if nacked:
        release(lease, head_stays)
        # The partition waits for the latest of them, so that is when each comes again.
        latest = Instant(max(result.retry_at or now for result in nacked))
        results = [SettleResult(r.status, None, latest) if r.status is SettleStatus.RETRYING else r for r in results]
        lease.ready_at = latest
        lease.last_error = errors.get(lease.open[0])
        lease.resting = True
    elif not left:
        release(lease, head_stays)
        lease.last_error = None
    return results


def _judge(lease: Lease, item: Settlement, settings: QueueSettings, now: Instant, effects: Effects) -> SettleResult:
    match item.outcome:
        case Outcome.ACK:
            return COMPLETED
        case Outcome.REJECT:
            effects.burials.append(Burial(item.seq, DeadReason.REJECTED, item.error, lease.attempts))
        case Outcome.NACK:
            if not is_exhausted(settings, lease.attempts):
                return SettleResult(SettleStatus.RETRYING, None, retry_time(settings, item, lease.attempts, now))
            effects.burials.append(Burial(item.seq, DeadReason.MAX_ATTEMPTS, item.error, lease.attempts))
    effects.dead += 1
    return BURIED


def release(lease: Lease, head_stays: bool) -> None:
    """End the lease: what is open comes again, one at a time."""
    lease.token = None
    lease.leased_at = None
    lease.leased = 0
    lease.changed = True
    if not lease.open:
        lease.attempts = 0
    elif not head_stays:
        lease.attempts = 1


def run_out(lease: Lease, settings: QueueSettings, effects: Effects, error: str) -> None:
    """A lease that nobody settled in time: note its end, and bury its head when that has used up its attempts."""
    effects.endings.append(_ending(lease, lease.open[: lease.leased], 0, "expired"))
    effects.retried += lease.leased
    release(lease, head_stays=True)
    lease.last_error = lease.last_error or error
    if lease.open and is_exhausted(settings, lease.attempts):
        # Only the head: of what else is open any may have been innocent.
        effects.burials.append(Burial(lease.open.pop(0), DeadReason.MAX_ATTEMPTS, lease.last_error, lease.attempts))
        effects.dead += 1
        effects.retried -= 1
        lease.attempts = 1 if lease.open else 0
        lease.last_error = None


def _ending(lease: Lease, seqs: Sequence[int], completed: int, outcome: str) -> Ending:
    return Ending(
        lease.partition, seqs[0], seqs[-1], len(seqs), completed, lease.attempts, lease.leased_at or 0, outcome
    )
