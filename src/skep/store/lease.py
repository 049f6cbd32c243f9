"""The lease state machine: how settling, giving back, running out and renewing change a lease. Both stores use it.

A store reads rows and writes them back. In between these functions decide, and collect in `Effects` the other rows to write: burials,
history, failed attempts, counters. Each store keeps set-based statements for the plain cases: claims of new messages, and acks alone.
The contract suite holds these statements to the same rules. `docs/log.md` is the specification.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from msgspec import Struct, field, structs

from skep.clock import Instant
from skep.errors import Code
from skep.model import DeadReason, Outcome, QueueSettings, Retry, Seq, Settlement, SettleResult, SettleStatus
from skep.store.outcomes import Mark, Swept
from skep.store.rules import LEASE_EXPIRED, LEASE_RAN_OUT, is_exhausted, kept_error, retry_time


class Lease(Struct):
    """The unsettled messages of a group in one partition, and their lease.

    ``open`` are the delivered, unsettled messages; the first ``leased`` of them are under the lease of ``token``. ``pending`` more
    messages are beyond ``delivered_seq``. ``ready_at`` is when the partition may be claimed: under a lease, that is the lease's deadline.
    While the partition waits for a retry, ``leased_at`` is the time of the nack or release; without a lease or retry it is 0.
    """

    partition: str
    delivered_seq: int
    pending: int
    open: list[int]
    leased: int
    attempts: int
    token: bytes | None
    leased_at: int
    ready_at: int
    oldest_at: int
    newest_at: int
    last_error: str | None
    consumer: str | None

    @property
    def held(self) -> list[int]:
        """The messages under the lease."""
        return self.open[: self.leased]

    @property
    def is_empty(self) -> bool:
        """Whether no message is open or pending; such a row is deleted."""
        return not self.open and self.pending <= 0

    @property
    def is_resting(self) -> bool:
        """Whether the partition waits for a retry, so that its ``ready_at`` stays."""
        return self.token is None and self.leased_at > 0

    def is_live(self, now: Instant) -> bool:
        """Whether a consumer holds the lease and its deadline has not passed."""
        return self.token is not None and self.ready_at > now

    def is_worn_out(self, settings: QueueSettings) -> bool:
        """Whether this is the last attempt of its head (the first open message)."""
        return self.token is not None and is_exhausted(settings, self.attempts)


class LeasedSet(Struct):
    """Messages of an unordered queue that were delivered together ``attempts`` times; ``token`` is their present lease."""

    partition: str
    seqs: list[int]
    attempts: int
    token: bytes | None
    leased_at: int
    last_error: str | None
    consumer: str | None

    def is_worn_out(self, settings: QueueSettings) -> bool:
        """Whether this is the last attempt of its messages."""
        return self.token is not None and is_exhausted(settings, self.attempts)


class Burial(Struct, frozen=True):
    """A message to give up, and the reason."""

    seq: int
    reason: DeadReason
    error: str | None
    attempts: int


class AttemptRow(Struct, frozen=True):
    """A new row of the failed attempts."""

    seq: int
    attempt: int
    leased_at: int
    outcome: str
    error: str | None
    consumer: str | None


class Ending(Struct, frozen=True):
    """A new row of the lease history. With a ``token`` a caller settled it, and ``answer`` keeps the caller's answer (`skep.store.outcomes`).

    ``swept`` are the messages that acks of the whole lease completed; it becomes part of the answer.
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
    """The effects of settling, besides the changed leases. ``dead`` counts burials, except those of expired messages."""

    completed: int = 0
    dead: int = 0
    expired: int = 0
    retried: int = 0
    burials: list[Burial] = []
    endings: list[Ending] = []
    failures: list[AttemptRow] = []


OUTCOMES = ("expired", "retried", "dead", "released", "completed")
"""The outcomes of a lease in the lease history; an earlier outcome overrides a later one."""

REFUSED_STALE = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
REFUSED_NOT_IN_LEASE = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)
COMPLETED = SettleResult(SettleStatus.COMPLETED)
COMPLETED_FREES_NONE = SettleResult(SettleStatus.COMPLETED, frees=False)
BURIED = SettleResult(SettleStatus.DEAD)
"""A placeholder until the dead-letter queue is known (`buried_in`)."""


def buried_in(dead_letter_queue: str | None) -> SettleResult:
    """The answer for a message that was given up; without a dead-letter queue it was discarded."""
    status = SettleStatus.DISCARDED if dead_letter_queue is None else SettleStatus.DEAD
    return SettleResult(status, dead_letter_queue=dead_letter_queue)


def settle_lease(
    lease: Lease, items: Sequence[Settlement], settings: QueueSettings, now: Instant, effects: Effects
) -> list[SettleResult]:
    """Apply one call's settlements to one lease: it changes the lease, adds to the effects, and returns a result for each.

    Of two settlements of one message the first counts. An ack of the whole lease is for the messages that the call does not name.
    """
    held = lease.held
    head = lease.open[0]
    unheard = set(held)
    fates: dict[int, str] = {}
    errors: dict[int, str | None] = {}
    results: list[SettleResult] = [REFUSED_NOT_IN_LEASE] * len(items)
    for place, item in enumerate(items):
        if item.outcome is Outcome.ACK_THROUGH or item.seq not in unheard:
            continue
        unheard.discard(item.seq)
        results[place], fates[item.seq] = _settle_one(lease, item, settings, now, effects)
        if results[place].status is SettleStatus.RETRYING:
            errors[item.seq] = item.error
    swept = Swept()
    for place, item in enumerate(items):
        if item.outcome is Outcome.ACK_THROUGH:
            results[place] = sweep(item, sorted(unheard), fates, swept, effects)
            unheard.difference_update(swept.seqs)
    if not fates:
        return results
    effects.endings.append(_ending(lease, held if errors else sorted(fates), fates, lease.token, swept))
    settled = {seq for seq in fates if seq not in errors}
    lease.open = [seq for seq in lease.open if seq not in settled]
    lease.leased -= len(settled)
    if errors or not lease.leased:
        release(lease, head_stays=bool(lease.open) and lease.open[0] == head)
        lease.last_error = None
    if errors:
        return _rest(lease, errors, results, now)
    return results if lease.leased == 0 and not lease.is_empty else list(map(_frees_none, results))


def _frees_none(result: SettleResult) -> SettleResult:
    """The answer to an ack while no pop may get the next message of the partition."""
    if result is COMPLETED:
        return COMPLETED_FREES_NONE
    return structs.replace(result, frees=False) if result.status is SettleStatus.COMPLETED else result


def _settle_one(
    lease: Lease, item: Settlement, settings: QueueSettings, now: Instant, effects: Effects
) -> tuple[SettleResult, str]:
    """The effect of a settlement on one message of a lease. A release of part of a lease counts as a nack."""
    if item.outcome is Outcome.RELEASE:
        item = structs.replace(item, outcome=Outcome.NACK, retry=Retry.NOW)
    result, fate = judge(item, lease.attempts, settings, now, effects)
    if fate != "completed":
        effects.failures.append(failure(lease, item.seq, fate, item.error))
    return result, fate


def judge(
    item: Settlement, attempts: int, settings: QueueSettings, now: Instant, effects: Effects
) -> tuple[SettleResult, str]:
    """The effect of one settlement on a message after its ``attempts``-th delivery: the answer, and the outcome for the history."""
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


def sweep(item: Settlement, left: Iterable[int], fates: dict[int, str], swept: Swept, effects: Effects) -> SettleResult:
    """The effect of an ack of a whole lease on its remaining messages: all up to a seq are completed."""
    done = [seq for seq in left if seq <= item.seq]
    if not done:
        return REFUSED_NOT_IN_LEASE
    fates.update(dict.fromkeys(done, "completed"))
    swept.seqs += done
    swept.marks.append(Mark(item.seq, len(done)))
    effects.completed += len(done)
    return SettleResult(SettleStatus.COMPLETED, messages=len(done))


def complete(lease: Lease | LeasedSet, seqs: Sequence[int], effects: Effects) -> None:
    """Settle messages of a lease with auto-ack: no caller settles them, so no answer is kept."""
    effects.completed += len(seqs)
    effects.endings.append(_ending(lease, seqs, dict.fromkeys(seqs, "completed")))


def _rest(lease: Lease, errors: dict[int, str | None], results: list[SettleResult], now: Instant) -> list[SettleResult]:
    """Let the partition wait for the latest retry of its nacks. All its nacks are answered with that time."""
    latest = Instant(max(result.retry_at for result in results if result.retry_at is not None))
    lease.ready_at = latest
    lease.leased_at = now
    lease.last_error = errors.get(lease.open[0])
    again = SettleResult(SettleStatus.RETRYING, None, latest)
    return [again if result.status is SettleStatus.RETRYING else result for result in results]


def release(lease: Lease, head_stays: bool) -> None:
    """End the lease: its open messages are delivered again, one at a time."""
    lease.token = None
    lease.leased_at = 0
    lease.leased = 0
    if not lease.open:
        lease.attempts = 0
    elif not head_stays:
        lease.attempts = 1


# giving back messages that reached nobody


def is_whole_release(lease: Lease, items: Sequence[Settlement]) -> bool:
    """Whether a call gives back all messages of a lease."""
    words = {item.seq: item.outcome for item in reversed(items) if item.outcome is not Outcome.ACK_THROUGH}
    return all(words.get(Seq(seq)) is Outcome.RELEASE for seq in lease.held)


def still_there(lease: Lease, delivered: Collection[int]) -> int | None:
    """How many messages of a lease are still in the log. ``delivered`` are the partition's messages in the log from its first on.

    None when a message behind the first was settled: the delivery can be undone only without such a gap.
    """
    return len(delivered) if set(delivered).issubset(lease.open) else None


def undo_delivery(
    lease: Lease, items: Sequence[Settlement], there: int, now: Instant, effects: Effects
) -> list[SettleResult]:
    """Undo a delivery that reached nobody: after a first delivery, the messages that are still ``there`` are pending again."""
    held = lease.held
    unheard = set(held)
    results = []
    for item in items:
        if item.outcome is Outcome.RELEASE and item.seq in unheard:
            unheard.discard(item.seq)
            results.append(SettleResult(SettleStatus.RETRYING, None, now))
        else:
            results.append(REFUSED_NOT_IN_LEASE)
    effects.endings.append(_ending(lease, held, dict.fromkeys(held, "released"), lease.token))
    if lease.attempts == 1:
        lease.delivered_seq = held[0] - 1
        lease.pending += there
        lease.open = []
        lease.last_error = None
        effects.expired += len(held) - there
        release(lease, head_stays=False)
        return results
    release(lease, head_stays=True)
    lease.attempts -= 1
    lease.ready_at = lease.leased_at = now
    return results


# deadlines


def run_out(lease: Lease, settings: QueueSettings, effects: Effects) -> None:
    """End a lease that was not settled in time, and bury its head if its attempts are used up."""
    left = lease.held
    is_over = is_exhausted(settings, lease.attempts)
    if is_over:
        # Only the head: the other messages may not be the cause.
        head = left.pop(0)
        effects.endings.append(_ending(lease, [head], {head: "dead"}))
        effects.failures.append(failure(lease, head, "dead", LEASE_RAN_OUT))
    if left:
        effects.endings.append(_ending(lease, left, dict.fromkeys(left, "expired")))
    effects.retried += len(left)
    effects.failures += [failure(lease, seq, "retried", LEASE_RAN_OUT) for seq in left]
    release(lease, head_stays=True)
    lease.last_error = lease.last_error or LEASE_EXPIRED
    if is_over:
        effects.burials.append(Burial(lease.open.pop(0), DeadReason.MAX_ATTEMPTS, lease.last_error, lease.attempts))
        effects.dead += 1
        lease.attempts = 1 if lease.open else 0
        lease.last_error = None


def lose(lease: Lease, there: Collection[int], effects: Effects) -> bool:
    """Remove messages that are no longer in the log from an ended lease; they count as expired. Returns whether the head was removed."""
    head, before = lease.open[0], len(lease.open)
    lease.open = [seq for seq in lease.open if seq in there]
    effects.expired += before - len(lease.open)
    if lease.open and lease.open[0] == head:
        return False
    lease.attempts = 1 if lease.open else 0
    lease.last_error = None
    if not lease.open:
        lease.leased_at = 0
    return True


def renew(lease: Lease, deadline: Instant, now: Instant) -> None:
    """Move the deadline. A lease that had run out begins now. ``leased_at`` is never after the renewal; `put_right` relies on that."""
    lease.leased_at = now if lease.ready_at <= now else min(lease.leased_at, now)
    lease.ready_at = deadline


# unordered queues

Set = TypeVar("Set", bound=LeasedSet)


class SettledSet(Struct, Generic[Set]):
    """A set, and the outcomes of its messages in one call. Each of the ``retries`` becomes a set of its own."""

    of: Set
    fates: dict[int, str] = {}
    retries: list[tuple[int, SettleResult, str | None]] = []
    swept: Swept = field(default_factory=Swept)

    @property
    def left(self) -> list[int]:
        """The messages that the call does not settle."""
        return [seq for seq in self.of.seqs if seq not in self.fates]

    @property
    def released(self) -> list[int]:
        """The messages that reached nobody, so that this delivery does not count."""
        return sorted(seq for seq, fate in self.fates.items() if fate == "released")


def settle_sets(
    sets: Sequence[Set], items: Sequence[Settlement], settings: QueueSettings, now: Instant, effects: Effects
) -> tuple[list[SettleResult], list[SettledSet[Set]]]:
    """Apply one call's settlements to the sets of their tokens: returns a result for each, and the changed sets.

    Every message is settled alone, so the others of its lease are not affected. ``sets`` are all sets of these tokens.
    """
    home = {(one.token, seq): place for place, one in enumerate(sets) for seq in one.seqs}
    tokens = {one.token for one in sets}
    settled = [SettledSet(one) for one in sets]
    results: list[SettleResult] = [REFUSED_STALE] * len(items)
    for place, item in enumerate(items):
        if item.outcome is Outcome.ACK_THROUGH or item.token not in tokens:
            continue
        found = home.pop((item.token, item.seq), None)
        if found is None:
            results[place] = REFUSED_NOT_IN_LEASE
            continue
        one = sets[found]
        result, fate = judge(item, one.attempts, settings, now, effects)
        results[place] = _frees_none(result)
        settled[found].fates[item.seq] = fate
        if fate == "retried":
            settled[found].retries.append((item.seq, result, item.error))
        if fate in ("retried", "dead"):
            effects.failures.append(failure(one, item.seq, fate, item.error))
    for place, item in enumerate(items):
        if item.outcome is Outcome.ACK_THROUGH:
            results[place] = _sweep_sets(settled, item, effects)
    touched = [one for one in settled if one.fates]
    effects.endings += [_ending(one.of, sorted(one.fates), one.fates, one.of.token, one.swept) for one in touched]
    return results, touched


def _sweep_sets(settled: Sequence[SettledSet[Set]], item: Settlement, effects: Effects) -> SettleResult:
    """Ack the messages of one lease up to a seq that the call does not name."""
    own = [one for one in settled if (one.of.token, one.of.partition) == (item.token, item.partition)]
    if not own:
        return REFUSED_STALE
    swept = [sweep(item, one.left, one.fates, one.swept, effects) for one in own]
    messages = sum(result.messages for result in swept if result.code is None)
    if not messages:
        return REFUSED_NOT_IN_LEASE
    return SettleResult(SettleStatus.COMPLETED, frees=False, messages=messages)


def run_out_set(one: LeasedSet, settings: QueueSettings, effects: Effects) -> bool:
    """End a set that was not settled in time. If its attempts are used up, bury all its messages and return True."""
    is_over = is_exhausted(settings, one.attempts)
    effects.endings.append(_ending(one, one.seqs, dict.fromkeys(one.seqs, "dead" if is_over else "expired")))
    fate = "dead" if is_over else "retried"
    effects.failures += [failure(one, seq, fate, LEASE_RAN_OUT) for seq in one.seqs]
    one.token = None
    one.last_error = one.last_error or LEASE_EXPIRED
    if is_over:
        effects.burials += [Burial(seq, DeadReason.MAX_ATTEMPTS, one.last_error, one.attempts) for seq in one.seqs]
        effects.dead += len(one.seqs)
        one.seqs = []
    else:
        effects.retried += len(one.seqs)
    return is_over


# for the history


def outcome_of(fates: Iterable[str]) -> str:
    """The one outcome for the lease history, from the outcomes of all messages."""
    return min(fates, key=OUTCOMES.index)


def failure(lease: Lease | LeasedSet, seq: int, outcome: str, error: str | None) -> AttemptRow:
    """The row of a failed attempt of one message of a lease."""
    return AttemptRow(seq, lease.attempts, lease.leased_at, outcome, kept_error(error), lease.consumer)


def _ending(
    lease: Lease | LeasedSet,
    seqs: Sequence[int],
    fates: Mapping[int, str],
    token: bytes | None = None,
    swept: Swept | None = None,
) -> Ending:
    completed = sum(fate == "completed" for fate in fates.values())
    return Ending(
        lease.partition, seqs[0], seqs[-1], len(seqs), completed, lease.attempts, lease.leased_at,
        outcome_of(fates.values()), token, swept=swept,
    )  # fmt: skip
