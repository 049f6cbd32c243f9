"""One lease row in hand: what settling, running out and expiring make of it.

Pure functions on a row of `partition_lease`, for the paths that are not hot; pop and ack of a whole lease are done in SQL
(functions/pop.sql, functions/settle.sql) and must agree with this. `docs/log.md` is the specification.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import asyncpg
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.model import DeadReason, Outcome, QueueSettings, Seq, Settlement, SettleResult, SettleStatus
from skep.store.outcomes import Mark, Swept
from skep.store.postgres.dead_letters import Burial
from skep.store.rules import LEASE_RAN_OUT, is_exhausted, kept_error, retry_time


class Failure(Struct, frozen=True):
    """A row for the failed attempts."""

    seq: int
    attempt: int
    leased_at: int
    outcome: str
    error: str | None
    consumer: str | None


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
    consumer: str | None = None
    changed: bool = False
    resting: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left to do; such a row is deleted."""
        return not self.open and not self.pending

    def failure(self, seq: int, outcome: str, error: str | None) -> Failure:
        """That the attempt under this lease failed for one of its messages."""
        return Failure(seq, self.attempts, self.leased_at or 0, outcome, kept_error(error), self.consumer)


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
        consumer=row["consumer"],
    )


class Ending(Struct, frozen=True):
    """A row for the lease history. With a ``token`` somebody was answered, and ``answer`` keeps what (`skep.store.outcomes`).

    ``swept`` is what acks of the whole lease took, and becomes part of the answer.
    """

    partition: str
    first_seq: int
    last_seq: int
    messages: int
    completed: int
    attempt: int
    leased_at: int
    outcome: str
    token: bytes | None = None
    answer: bytes | None = None
    swept: Swept | None = None


class Effects(Struct):
    """What settling adds up to, besides the changed rows."""

    completed: int = 0
    dead: int = 0
    expired: int = 0
    retried: int = 0
    burials: list[Burial] = []
    endings: list[Ending] = []
    failures: list[Failure] = []


OUTCOMES = ("expired", "retried", "dead", "released", "completed")
"""What the lease history calls a lease, those that outdo others first."""

REFUSED_STALE = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
REFUSED_NOT_IN_LEASE = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)
COMPLETED = SettleResult(SettleStatus.COMPLETED)
COMPLETED_FREES_NONE = SettleResult(SettleStatus.COMPLETED, frees=False)
BURIED = SettleResult(SettleStatus.DEAD)
"""Stands in until it is known where the message was buried."""


def settle_lease(
    lease: Lease, items: Sequence[Settlement], settings: QueueSettings, now: Instant, effects: Effects
) -> list[SettleResult]:
    """Apply one call's settlements to one lease: a result for each, the lease changed, the effects added."""
    held = lease.open[: lease.leased]
    unheard = set(held)
    fates: dict[int, str] = {}
    errors: dict[int, str | None] = {}
    results: list[SettleResult] = [REFUSED_NOT_IN_LEASE] * len(items)
    for place, item in enumerate(items):
        if item.outcome is Outcome.ACK_THROUGH or item.seq not in unheard:
            continue
        unheard.discard(item.seq)
        result, fates[item.seq] = judge(item, lease.attempts, settings, now, effects)
        results[place] = result
        if result.status is SettleStatus.RETRYING:
            errors[item.seq] = item.error
        if fates[item.seq] != "completed":
            effects.failures.append(lease.failure(item.seq, fates[item.seq], item.error))
    swept = Swept()
    for place, item in enumerate(items):
        if item.outcome is Outcome.ACK_THROUGH:
            results[place] = sweep(item, sorted(unheard), fates, swept, effects)
            unheard.difference_update(swept.seqs)
    if not fates:
        return results
    effects.endings.append(_ending(lease, held if errors else sorted(fates), fates, lease.token, swept))
    _take_settled(lease, {seq for seq in fates if seq not in errors}, ends=bool(errors))
    return _rest(lease, errors, results, now) if errors else results


def sweep(item: Settlement, left: Iterable[int], fates: dict[int, str], swept: Swept, effects: Effects) -> SettleResult:
    """What an ack of a whole lease makes of what the call has left of it: all up to a seq is done."""
    done = [seq for seq in left if seq <= item.seq]
    if not done:
        return REFUSED_NOT_IN_LEASE
    fates.update(dict.fromkeys(done, "completed"))
    swept.seqs += done
    swept.marks.append(Mark(item.seq, len(done)))
    effects.completed += len(done)
    return SettleResult(SettleStatus.COMPLETED, messages=len(done))


def judge(
    item: Settlement, attempts: int, settings: QueueSettings, now: Instant, effects: Effects
) -> tuple[SettleResult, str]:
    """What one settlement makes of a message after its ``attempts``-th delivery: the answer, and its fate for the history."""
    match item.outcome:
        case Outcome.ACK:
            effects.completed += 1
            return COMPLETED, "completed"
        case Outcome.RELEASE:
            return SettleResult(SettleStatus.RETRYING, None, now), "released"
        case Outcome.NACK if not is_exhausted(settings, attempts):
            effects.retried += 1
            return SettleResult(SettleStatus.RETRYING, None, retry_time(settings, item, attempts, now)), "retried"
        case _:
            reason = DeadReason.REJECTED if item.outcome is Outcome.REJECT else DeadReason.MAX_ATTEMPTS
            effects.burials.append(Burial(item.seq, reason, item.error, attempts))
            effects.dead += 1
            return BURIED, "dead"


def outcome_of(fates: Iterable[str]) -> str:
    """What the lease history calls a call that did all this to one lease."""
    return min(fates, key=OUTCOMES.index)


def _take_settled(lease: Lease, settled: set[int], ends: bool) -> None:
    """Take what is settled out of the lease; ``ends`` when it is over though something is left."""
    head = lease.open[0]
    lease.open = [seq for seq in lease.open if seq not in settled]
    lease.leased -= len(settled)
    lease.changed = True
    if ends or not lease.leased:
        release(lease, head_stays=bool(lease.open) and lease.open[0] == head)
        lease.last_error = None


def _rest(lease: Lease, errors: dict[int, str | None], results: list[SettleResult], now: Instant) -> list[SettleResult]:
    """Let the partition wait for the latest of its nacks; that is when each of them comes again, and what it is told."""
    latest = Instant(max(result.retry_at for result in results if result.retry_at is not None))
    lease.ready_at = latest
    lease.leased_at = now
    lease.resting = True
    lease.last_error = errors.get(lease.open[0])
    again = SettleResult(SettleStatus.RETRYING, None, latest)
    return [again if result.status is SettleStatus.RETRYING else result for result in results]


def is_whole_release(lease: Lease, items: Sequence[Settlement]) -> bool:
    """Whether a call gives back all that a lease holds; of two words on one message the first counts."""
    words = {item.seq: item.outcome for item in reversed(items) if item.outcome is not Outcome.ACK_THROUGH}
    return all(words.get(Seq(seq)) is Outcome.RELEASE for seq in lease.open[: lease.leased])


def undo_delivery(
    lease: Lease, items: Sequence[Settlement], there: int, now: Instant, effects: Effects
) -> list[SettleResult]:
    """Give a lease back that reached nobody: what it delivered for the first time, and is still there, is pending again."""
    held = lease.open[: lease.leased]
    unheard = set(held)
    results = []
    for item in items:
        known = item.outcome is Outcome.RELEASE and item.seq in unheard
        unheard.discard(item.seq)
        results.append(SettleResult(SettleStatus.RETRYING, None, now) if known else REFUSED_NOT_IN_LEASE)
    effects.endings.append(_ending(lease, held, dict.fromkeys(held, "released"), lease.token))
    if lease.attempts == 1:
        lease.delivered_seq = held[0] - 1
        lease.pending += there
        effects.expired += len(held) - there
        lease.open = []
        lease.last_error = None
    else:
        lease.attempts -= 1
        lease.ready_at = now
        lease.resting = True
    release(lease, head_stays=True)
    if lease.resting:
        lease.leased_at = now
    return results


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
    left = lease.open[: lease.leased]
    is_over = is_exhausted(settings, lease.attempts)
    if is_over:
        # Only the head: of what else was in the lease any may have been innocent.
        head = left.pop(0)
        effects.endings.append(_ending(lease, [head], {head: "dead"}))
        effects.failures.append(lease.failure(head, "dead", LEASE_RAN_OUT))
    if left:
        effects.endings.append(_ending(lease, left, dict.fromkeys(left, "expired")))
    effects.retried += len(left)
    effects.failures += [lease.failure(seq, "retried", LEASE_RAN_OUT) for seq in left]
    release(lease, head_stays=True)
    lease.last_error = lease.last_error or error
    if is_over:
        effects.burials.append(Burial(lease.open.pop(0), DeadReason.MAX_ATTEMPTS, lease.last_error, lease.attempts))
        effects.dead += 1
        lease.attempts = 1 if lease.open else 0
        lease.last_error = None


def _ending(
    lease: Lease,
    seqs: Sequence[int],
    fates: Mapping[int, str],
    token: bytes | None = None,
    swept: Swept | None = None,
) -> Ending:
    completed = sum(fate == "completed" for fate in fates.values())
    return Ending(
        lease.partition, seqs[0], seqs[-1], len(seqs), completed, lease.attempts, lease.leased_at or 0,
        outcome_of(fates.values()), token, swept=swept,
    )  # fmt: skip
