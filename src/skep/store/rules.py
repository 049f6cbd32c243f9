"""Rules and limits that both stores share: retries, ready partitions, expiry, dead-letter targets, turns of operations, answers, errors.

They read no clock and no database. `docs/log.md` is their specification.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec
from msgspec import Struct

from skep.clock import MICROS_PER_MS, STEP_BACK_MICROS, Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id, id_text
from skep.model import (
    DEAD_LETTER_SUFFIX,
    NO_DEAD_LETTER_QUEUE,
    SEALED_ERROR,
    SEALED_TYPE,
    WINDOW_CAP_FACTOR,
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    Retry,
    Settlement,
    SettleResult,
    SettleStatus,
    StoredMessage,
)
from skep.model.record import DeliveryEndpoint, Receipt, Report
from skep.model.transaction import Transaction, TransactionOutcome

JITTER_SHARE = 0.2
"""The largest share of a backoff that jitter takes away."""

TRACE_ROWS = 10_000
"""How many messages of a trace are put in order, at most."""
TRACE_SLACK_MICROS = 1_000_000
"""A trace is found by its id's millisecond when the message's created_at differs from that by at most this."""

TRIED_BEFORE_MICROS = 10_000_000
TRIED_AFTER_MICROS = 60_000_000
"""How far around the time of an attempt its messages are searched: created_at is never before that of an earlier message, and
clocks of servers may be corrected."""

LEASE_EXPIRED = "lease expired"
"""The error of a message whose consumer neither settled nor renewed it in time."""

LEASE_RAN_OUT = "lease ran out"
"""The error of an attempt whose lease ran out."""
FAILURES_KEPT = 32
"""How many failed attempts of a message are kept for each group: the latest."""
FAILURES_MOST = 100_000
"""How many failed attempts a sweep keeps in all: the latest."""
FAILURES_SHOWN = 100
"""How many failed attempts of one message are shown, over all groups: the latest."""
FAILURE_BYTES = 4_096
"""The most bytes of an attempt's error text; a longer text is cut."""

PIECE_BYTES = 4 * 1024 * 1024
"""A transaction writes its rows in pieces of about this many bytes; one row may have more."""

SEQ_MAX = 2**63 - 1
"""The greatest seq that the databases can hold."""

PARTITION_WALK_SEQS = 100_000
"""How many seqs one read looks at for messages of several partitions, as these may be far apart and are put in order."""

PAST_SECONDS = 2 * 86_400
"""How long figures by the minute are kept."""
SAMPLE_EVERY_SECONDS = 10
"""How often counters are sampled, by default. Only changed counters are written."""
RATE_SECONDS = 60
"""Rates are computed over this time."""
KEPT_SAMPLES_SECONDS = 90
"""How long single samples are kept: the time that rates need, and a little more. Before that there are figures by the minute."""
KEYFRAME_SECONDS = 86_400
"""An unchanged figure is written again after this time, so its newest row is always younger than the removed rows."""
NEW_SECONDS = 120
"""How long a queue counts as new: its first sample also notes that it began with zero."""
TRACE_EVENTS_SECONDS = 7 * 86_400
"""How long events of traces are kept."""
TRACE_EVENTS = 1_000_000
"""How many events of traces a sweep keeps at most: the latest ones."""
HISTORY_DISORDER_SECONDS = 60
"""By how much the lease history may be out of order: a lease ends before its commit, and servers' clocks differ a little."""
TIMED_LEASES = 2_000
"""How many of a queue's newest leases are used for its wait and handler times."""
SEARCHED_LEASES = 1_000
"""How many rows of the lease history are read for a message's deliveries: from its creation on, and from the end back."""

AHEAD_MICROS = 5_000_000
"""A stamp that lies further ahead of the clock than this was written before the clock was put back. Servers' clocks differ by less."""
NOTICED_MICROS = STEP_BACK_MICROS + 5_000_000
"""A clock that shows this much less than was last noted was put back. Servers that slew differ by less."""
LONGEST_WAIT_MICROS = 60_000_000
"""When the clock is put back, waits of operations up to this long are not moved."""
PROVEN_MICROS = 600 * 1_000_000
"""How long a clock that was put back must run on before stamps are corrected: the new time may be the wrong one."""
OLDEST_CLOCK = 1_735_689_600 * 1_000_000
"""The year 2025: an earlier clock was never set, so nothing is corrected by it."""
RECEIPT_MICROS_MAX = 366 * 86_400 * 1_000_000
"""No receipt and no staged chunk is kept for longer."""

PIPELINE_RUNS = 1_000
"""How many runs of pipelines are kept per tenant: the latest."""

QUEUE_DELETED = "the queue was deleted while this waited"
"""The error of operations whose queue was deleted."""

ACTIVE_EVERY_MICROS = 60_000_000
"""How precisely the last use of a group is known."""

ATTENDANCE_MICROS = 3_600_000_000
"""How long after a start no group counts as idle."""

ATTENDANCE_BREAK_MICROS = 2 * ATTENDANCE_MICROS
"""A longer time between two passes of retention means that no server ran in between."""

LOOK_FOR_IDLE_MICROS = ATTENDANCE_MICROS // 2
"""How often a queue whose groups may be idle gets a pass, at least."""

_MAX_DOUBLINGS = 40

DEAD_LETTER_SETTINGS = QueueSettings(max_attempts=0, dead_letter_queue=NO_DEAD_LETTER_QUEUE)
"""The settings of a dead-letter queue that is made on demand."""


def is_seq(number: int) -> bool:
    """Whether the databases can hold this seq; other numbers are not looked up."""
    return 0 < number <= SEQ_MAX


class Sought(Struct):
    """Messages of one queue that an earlier attempt may have stored: the time when they entered the log, and their ids.

    ``scheduled`` messages are in the schedule, or entered the log later: when they were due, or earlier by hand.
    """

    since: int
    until: int
    ids: set[Id]
    scheduled: set[Id]


def most_seqs(max_rows: int, partitions: Sequence[str] | None) -> int:
    """How many seqs one read of a log looks at. A range holds no more messages than seqs; a limit on messages would cost more.

    Those of one partition come in the order of the log by an index, so that none is looked at in vain.
    """
    if partitions is None:
        return max_rows
    return SEQ_MAX if len(partitions) == 1 else PARTITION_WALK_SEQS


def sought_of(batches: Sequence[PushBatch], now: Instant) -> dict[QueueKey, Sought]:
    """The messages to search for, by queue, before batches with an earlier attempt are stored."""
    found: dict[QueueKey, Sought] = {}
    for batch in batches:
        if batch.tried is None:
            continue
        since, until = batch.tried.since - TRIED_BEFORE_MICROS, batch.tried.until + TRIED_AFTER_MICROS
        if since > now:  # the clock was put back since the attempt, and its stamps may have been corrected
            since, until = 0, SEQ_MAX
        for message, id_ in zip(batch.messages, batch.ids, strict=True):
            one = found.setdefault(message.queue, Sought(since, until, set(), set()))
            one.since, one.until = min(one.since, since), max(one.until, until)
            one.ids.add(id_)
            if message.deliver_at is not None and message.deliver_at > since:
                one.scheduled.add(id_)
                # The message may have entered the log at any time.
                one.until = SEQ_MAX
    return found


def was_stored(batch: PushBatch, stored: Container[Id]) -> bool:
    """Whether an earlier attempt stored the batch: one of its messages is there, and a batch is stored whole."""
    return batch.tried is not None and any(id_ in stored for id_ in batch.ids)


def stored_before(batch: PushBatch) -> PushOutcome:
    """The outcome of a batch that an earlier attempt stored."""
    return PushOutcome([], {}, b"" if batch.receipt is None else batch.receipt.answer)


def whole_payloads(found: Sequence[StoredMessage], max_bytes: int) -> int:
    """How many of these messages are shown with their payloads, which are so many bytes together at the most."""
    return sum(total <= max_bytes for total in accumulate(message.payload_bytes for message in found))


def backoff_micros(settings: QueueSettings, attempts: int, jitter: float) -> int:
    """How long a message waits after its ``attempts``-th delivery failed."""
    doublings = min(max(attempts - 1, 0), _MAX_DOUBLINGS)
    wait_ms = min(settings.max_backoff_ms, settings.initial_backoff_ms << doublings)
    return round(wait_ms * MICROS_PER_MS * (1 - JITTER_SHARE * jitter))


def retry_time(settings: QueueSettings, settlement: Settlement, attempts: int, now: Instant) -> Instant:
    """When a nacked message may be delivered again; a time in the past means now."""
    if settlement.retry is Retry.NOW:
        return now
    if settlement.retry is Retry.AT:
        return now if settlement.retry_at is None else max(now, settlement.retry_at)
    return Instant(now + backoff_micros(settings, attempts, settlement.jitter))


def ready_at(settings: QueueSettings, oldest_at: int, newest_at: int) -> Instant:
    """When a partition without a lease and without open messages may be claimed."""
    window = seconds(settings.window_buffer_seconds)
    buffered = min(newest_at + window, oldest_at + WINDOW_CAP_FACTOR * window)
    return Instant(max(oldest_at + seconds(settings.delayed_processing_seconds), buffered))


def is_visible(created_at: int, delay: int, now: Instant) -> bool:
    """Whether a message has waited for its delay.

    Without a delay every message is visible, also one that a clock a little ahead of this one has stamped. If the clock was put back
    since, the message's age is unknown. It is delivered with the first message of its partition or set, whose own wait began when it
    was discovered.
    """
    return delay == 0 or created_at + delay <= now or created_at > now + AHEAD_MICROS


def is_exhausted(settings: QueueSettings, attempts: int) -> bool:
    """Whether a message is given up after its ``attempts``-th delivery failed."""
    return 0 < settings.max_attempts <= attempts


def comes_alone(settings: QueueSettings, attempts: int) -> bool:
    """Whether a message of an unordered queue is delivered alone, as it may have killed its consumer.

    Each neighbour would lose an attempt. So messages are delivered together only the first time, and only if there is a second attempt.
    """
    return attempts > 0 or settings.max_attempts == 1


def lifetime_micros(settings: QueueSettings) -> int | None:
    """How old an unsettled message may get: the lesser of max_wait and max_age, or None without either."""
    limits = [seconds(value) for value in (settings.max_wait_seconds, settings.max_age_seconds) if value > 0]
    return min(limits, default=None)


def is_too_old(settings: QueueSettings, created_at: int, now: Instant) -> bool:
    """Whether max_age has passed: such a message is expired with a dead letter, also when max_wait has passed."""
    return 0 < seconds(settings.max_age_seconds) <= now - created_at


def removal_age(settings: QueueSettings, holds_dead_letters: bool) -> int | None:
    """The age at which a message leaves the log, also unread: max_age of a dead-letter queue. None: at no age.

    In any other queue max_age settles unsettled messages, and retention decides when they leave the log.
    """
    return seconds(settings.max_age_seconds) if holds_dead_letters and settings.max_age_seconds > 0 else None


LOOK_AGAIN_SECONDS = 60.0
"""How long a pass of retention waits for messages past their age that must be buried first."""


def settles_unread(name: str, settings: QueueSettings, holds_dead_letters: bool) -> bool:
    """Whether expired messages must be settled first. Retention of a dead-letter queue without a target deletes them directly."""
    removed = removal_age(settings, holds_dead_letters) is not None
    return not removed or dead_letter_target(name, settings, holds_dead_letters) is not None


def may_lose_messages(settings: QueueSettings, holds_dead_letters: bool) -> bool:
    """Whether messages may leave the log before every group has settled them, even while they are leased."""
    return holds_dead_letters or settings.retention_ignores_groups or settings.group_idle_seconds > 0


def idle_micros(settings: QueueSettings) -> int | None:
    """How long a group may be unused before it is idle; None when it never is."""
    limit = seconds(settings.group_idle_seconds)
    return max(limit, 2 * ACTIVE_EVERY_MICROS) if limit else None


class Attendance(Struct):
    """How long servers have run without a break, by the passes of retention.

    While no server runs, groups cannot be used. So after a start, or a long break, no group counts as idle for an hour.
    """

    since: int | None = None
    latest: int = 0

    def may_mark_idle(self, now: Instant) -> bool:
        """Note a pass of retention. True when passes have run for an hour without a break."""
        if self.since is None or not 0 <= now - self.latest <= ATTENDANCE_BREAK_MICROS:
            self.since = now
        self.latest = now
        return now - self.since >= ATTENDANCE_MICROS


def wants_mark(active_at: int, idle: bool, now: Instant) -> bool:
    """Whether a call must note its use of a group: once a minute, so that not every call writes."""
    return idle or now - active_at >= ACTIVE_EVERY_MICROS


def dead_letter_target(name: str, settings: QueueSettings, holds_dead_letters: bool) -> str | None:
    """The dead-letter queue of the queue ``name``; None when dead letters are discarded."""
    if settings.dead_letter_queue == NO_DEAD_LETTER_QUEUE:
        return None
    if settings.dead_letter_queue is not None:
        return settings.dead_letter_queue
    return None if holds_dead_letters else name + DEAD_LETTER_SUFFIX


def names_one(dead_letter_queue: str | None) -> bool:
    """Whether the setting names a queue, rather than leaving it to the default or to none."""
    return dead_letter_queue is not None and dead_letter_queue != NO_DEAD_LETTER_QUEUE


class DeadLetterUse(Struct, frozen=True):
    """The facts for the dead-letter rules when a queue is made or changed."""

    name: str
    dead_letter_queue: str | None
    in_use: bool
    """Whether another queue buries here, by name or by default."""
    target_names_one: bool
    """Whether the queue this one would bury in exists and names a dead-letter queue itself."""


def check_dead_letter_rules(use: DeadLetterUse) -> None:
    """Raise DEAD_LETTER_SELF or DEAD_LETTER_CHAIN when the rules forbid the setting."""
    if use.dead_letter_queue == use.name:
        raise SkepError(Code.DEAD_LETTER_SELF, f"queue {use.name!r} cannot be its own dead-letter queue")
    if use.in_use and names_one(use.dead_letter_queue):
        raise SkepError(
            Code.DEAD_LETTER_CHAIN,
            f"queue {use.name!r} is a dead-letter queue, so it cannot name {use.dead_letter_queue!r} as its own",
        )
    if use.target_names_one and not (use.in_use and use.dead_letter_queue is None):
        target = use.dead_letter_queue or use.name + DEAD_LETTER_SUFFIX
        raise SkepError(
            Code.DEAD_LETTER_CHAIN,
            f"queue {target!r} names a dead-letter queue itself, so {use.name!r} cannot bury there",
        )


_UNDONE = SettleResult(SettleStatus.REFUSED, Code.BATCH_REFUSED)


def queue_full_reason(name: str, depth: int, limit: int, fresh: int) -> str:
    """The error text for a push beyond max_depth."""
    return f"queue {name!r} holds {depth} of at most {limit} messages; {fresh} more {'does' if fresh == 1 else 'do'} not fit"


def holds(waiting: set[tuple[QueueKey, str]], batch: PushBatch) -> bool:
    """Whether a batch must queue behind an operation. If so, its partitions are added to ``waiting``, for later batches."""
    places = {(message.queue, message.partition) for message in batch.messages}
    if waiting.isdisjoint(places):
        return False
    waiting |= places
    return True


Head = tuple[str, str, str, str]
"""The key of a sequence of operations: tenant, queue, lane, partition."""
FIRST_HEAD: Head = ("", "", "", "")
CLAIM_PASSED = 500
"""How many waiting operations a claim skips before it looks by partition."""
CLAIM_HEADS = 1_000
"""How many partitions one look by partition reads; the next look goes on from there."""
CLAIM_LOOKS = 4
"""How many looks by partition one claim makes at most."""


def ready_heads(rows: Sequence[tuple[Any, ...]], now: int, most: int) -> tuple[list[int], Head]:
    """The first operations of partitions that may be claimed together, all of one lane; and the partition where the look ended.

    The look after the last partition starts with the first again.
    """
    ready: list[int] = []
    lane = None
    for row in rows:
        if row[5] <= now and lane in (None, row[2]):
            lane = row[2]
            ready.append(row[4])
            if len(ready) == most:
                return ready, row[:4]
    return ready, rows[-1][:4] if len(rows) == CLAIM_HEADS else FIRST_HEAD


class HeadWalk:
    """Looks by partition, over several claims: the end of the last look, and whether all partitions were looked at in vain.

    Looks that begin in the middle have seen all partitions once they have come to the end twice.
    """

    def __init__(self) -> None:
        self.after = FIRST_HEAD
        self._ends_ahead = 1

    def go_on(self, after: Head) -> bool:
        """Note the end of a look that found nothing; returns whether partitions are left to look at."""
        self.after = after
        self._ends_ahead -= after == FIRST_HEAD
        if self._ends_ahead:
            return True
        self._ends_ahead = 1
        return False

    def found(self, after: Head) -> None:
        """Note that a look found operations: the next round begins after this partition."""
        self.after = after
        self._ends_ahead = 1 if after == FIRST_HEAD else 2


def in_turn(before: dict[int, int | None]) -> set[int]:
    """The positions with no live operation ahead in their partition except each other. ``before`` maps each to the one ahead."""
    free: set[int] = set()
    for position in sorted(before):
        ahead = before[position]
        if ahead is None or ahead in free:
            free.add(position)
    return free


def in_conflict(transaction: Transaction, conflict: Code, index: int) -> TransactionOutcome:
    """The answer for a transaction in conflict with a receipt or an entity's version."""
    settled = [_UNDONE] * len(transaction.settlements)
    return TransactionOutcome(False, settled, undone_push(transaction.push), conflict, index)


def receipt_after(batch: PushBatch, outcome: PushOutcome) -> Receipt | None:
    """The receipt of a stored batch. In its answer, the id of a duplicate is replaced by the id of the first message."""
    receipt = batch.receipt
    if receipt is None:
        return None
    answer = receipt.answer
    for id_, result in zip(batch.ids, outcome.results, strict=True):
        if result.status is PushStatus.DUPLICATE:
            answer = answer.replace(id_text(id_).encode(), id_text(result.id).encode())
    return receipt if answer == receipt.answer else Receipt(receipt.key, answer, receipt.expires_at)


def too_much_at_once(max_bytes: int) -> SkepError:
    """The error for a read of entities that are too large for one answer."""
    return SkepError(
        Code.PAYLOAD_TOO_LARGE, f"these entities have more than {max_bytes} bytes together; read fewer at once"
    )


def undone(transaction: Transaction, settled: list[SettleResult], pushed: PushOutcome) -> TransactionOutcome:
    """The answer for a transaction with a refused part: the part has its own refusal, the rest BATCH_REFUSED."""
    return TransactionOutcome(
        False,
        [result if result.status is SettleStatus.REFUSED else _UNDONE for result in settled],
        PushOutcome(pushed.results, {}) if pushed.refused else undone_push(transaction.push),
    )


def undone_push(batch: PushBatch) -> PushOutcome:
    """The answer for the pushes of a transaction that was undone because of another part."""
    reason = (Code.BATCH_REFUSED, "another part of the transaction was refused")
    results = [
        PushResult(PushStatus.REFUSED, id_, None, m.transaction_id, m.trace_id or id_, *reason)
        for m, id_ in zip(batch.messages, batch.ids, strict=True)
    ]
    return PushOutcome(results, {})


def not_quarantined(message: NewMessage, id_: Id, full: str | None = None) -> PushOutcome:
    """The answer for an invalid message that is not kept: its queue has no dead-letter queue, or that queue is ``full``.

    max_depth counts here, as the message was not accepted yet, and its sender can wait. An accepted message is always buried.
    """
    reason = full or f"queue {message.queue.name!r} keeps no dead letters, so the invalid message is not kept"
    trace_id = message.trace_id or id_
    code = Code.QUEUE_FULL if full else Code.MESSAGE_INVALID
    return PushOutcome([PushResult(PushStatus.REFUSED, id_, None, message.transaction_id, trace_id, code, reason)], {})


def group_is_external(queue: str, group: str) -> SkepError:
    """The error for a pop of an external group."""
    return SkepError(
        Code.GROUP_EXTERNAL,
        f"group {group!r} of {queue!r} is external: it reads the raw log and tells its progress; pop in another group",
        queue=queue,
        group=group,
    )


def group_is_not_external(queue: str, group: str) -> SkepError:
    """The error for a progress report of a group that pops."""
    return SkepError(
        Code.GROUP_NOT_EXTERNAL,
        f"group {group!r} of {queue!r} pops its messages: report the progress of another group, or delete this one",
        queue=queue,
        group=group,
    )


def message_not_found(queue: str, seq: int) -> SkepError:
    """The error for a message that is not in the log."""
    return SkepError(Code.MESSAGE_NOT_FOUND, f"there is no message {seq} in {queue!r}", queue=queue, seq=seq)


def message_settled(queue: str, seq: int) -> SkepError:
    """The error for deleting a message that all groups have settled."""
    return SkepError(
        Code.MESSAGE_SETTLED,
        f"message {seq} of {queue!r} is settled in every group: nobody will get it again, and retention removes it",
        queue=queue,
        seq=seq,
    )


def unarchived(queue: str) -> SkepError:
    """The error for a change of ordering that would end the log before the archive has read it."""
    return SkepError(
        Code.INVALID_SETTING,
        f"the ordering of {queue!r} can change only when an archive has all of its messages, as retention_requires_archive is on: "
        "run skep pipeline run archive",
        setting="ordering",
    )


def check_reported(queue: str, seq: int, last_seq: int) -> None:
    """Refuse progress beyond the log: such a reader has read another log."""
    if seq > last_seq:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the log of {queue!r} ends at {last_seq}, so nobody is done with {seq}: was the queue made anew?",
            queue=queue,
            last_seq=last_seq,
        )


def after_report(
    known: DeliveryEndpoint | None,
    fresh: DeliveryEndpoint,
    report: Report,
    threshold: int,
    open_seconds: float,
    reason: str | None,
) -> DeliveryEndpoint:
    """The state of an endpoint after a delivery; ``known`` itself when nothing changes.

    From ``threshold`` failures in a row on, each failure opens the circuit breaker for a while: no deliveries. A gone endpoint stays so.
    """
    before = fresh if known is None else known
    now = fresh.updated_at
    match report:
        case Report.DELIVERED:
            if not before.failures and before.open_until is None:
                return before
            return msgspec.structs.replace(before, failures=0, open_until=None, updated_at=now)
        case Report.FAILED:
            failures = before.failures + 1
            until = Instant(now + seconds(open_seconds)) if failures >= threshold else before.open_until
            return msgspec.structs.replace(before, failures=failures, open_until=until, reason=reason, updated_at=now)
        case Report.GONE:
            return msgspec.structs.replace(before, stopped_at=before.stopped_at or now, reason=reason, updated_at=now)


def are_sealed(messages: Iterable[NewMessage]) -> bool:
    """Whether all messages are sealed (encrypted)."""
    return all(message.content_type == SEALED_TYPE for message in messages)


def not_encrypted_reason(queue: str) -> str:
    """The error text for a plain payload of an encrypted queue: a server that cannot seal must not store it."""
    return f"the queue {queue!r} is encrypted, and this payload is not"


def check_sealed(queue: str, is_encrypted: bool, content_type: str | None) -> None:
    """Refuse a plain payload for an encrypted queue, or for its dead letters."""
    if is_encrypted and content_type != SEALED_TYPE:
        raise SkepError(Code.NOT_ENCRYPTED, not_encrypted_reason(queue), queue=queue)


def kept_error(error: str | None) -> str | None:
    """The error text of a failed attempt, cut to `FAILURE_BYTES` in whole characters. A sealed text was cut before sealing."""
    if error is None or error.startswith(SEALED_ERROR) or len(error.encode()) <= FAILURE_BYTES:
        return error
    return error.encode()[:FAILURE_BYTES].decode(errors="ignore")


def is_new(created_at: int, now: Instant) -> bool:
    """Whether a queue or group is so new that this or the last sample is its first."""
    return now - seconds(NEW_SECONDS) < created_at <= now


def birth(created_at: int, sampled_at: int) -> tuple[int, int]:
    """The minute and the instant of a zero sample for a new queue or group, clearly before its first real sample."""
    return created_at // seconds(60) - 1, min(created_at, sampled_at - seconds(SAMPLE_EVERY_SECONDS))


ALL_PARTITIONS = ""
"""The partition of a transaction id that counts in the whole queue: no partition has this name."""
