"""The same semantics as the stores, written as naively as possible: what the stores are compared with.

A status per message and group, plain lists and dicts, everything by looking at everything. It shares no data structure
and no algorithm with the stores, only `docs/log.md`. `ReferenceStore` (in `reference_store`) gives it the face of a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DEAD_LETTER_SUFFIX,
    DEFAULT_PARTITION,
    NO_DEAD_LETTER_QUEUE,
    WINDOW_CAP_FACTOR,
    DeadLetter,
    DeadReason,
    NewMessage,
    Ordering,
    Queue,
    QueueKey,
    QueueSettings,
    Seq,
    Settlement,
    SettleResult,
    Start,
    StartMode,
    Token,
)
from skep.model.forgetting import Tombstone
from skep.model.history import FailedAttempt, FinishedLease, ReplayRecord, RetentionPass
from skep.model.transaction import TransactionOutcome

State = Literal["pending", "open", "completed", "dead", "expired"]
UNSETTLED: tuple[State, ...] = ("pending", "open")
EXPIRED_LEASE = "lease expired"


@dataclass
class Entry:
    """A message in the log."""

    seq: int
    partition: str
    id: Id
    transaction_id: str | None
    trace_id: Id
    headers: bytes | None
    content_type: str | None
    payload: bytes
    priority: int
    created_at: Instant
    audience: int | None = None


@dataclass
class Lease:
    """Some messages in somebody's hands. It lives until its last message is settled, whatever the time."""

    token: Token
    partition: str
    leased_at: Instant
    deadline: Instant
    held: list[int]
    attempt: int
    consumer: str | None = None


@dataclass
class Mark:
    """How far one group is with one message that it has discovered."""

    state: State = "pending"
    attempts: int = 0
    error: str | None = None
    retry_at: Instant | None = None
    said_at: int = 0  # when that was said
    found_at: int = 0


@dataclass
class Group:
    """A consumer group: where it started, what it has discovered, and a mark for each of those."""

    id: int
    name: str
    start_seq: int
    scan_seq: int
    created_at: Instant
    marks: dict[int, Mark] = field(default_factory=dict)
    leases: list[Lease] = field(default_factory=list)
    rest_until: dict[str, Instant] = field(default_factory=dict)
    rest_from: dict[str, Instant] = field(default_factory=dict)
    skipped: int = 0
    retried: int = 0
    lost: int = 0
    counted: set[int] = field(default_factory=set)  # beyond scan_seq, gone from the log, in the account already
    external: bool = False
    passed: int = 0  # by an external group, which has no marks
    active_at: int = 0
    idle: bool = False
    archived: int | None = None  # what it has reported as safe in its lake
    samples: list[tuple[Instant, tuple[int, int, int, int]]] = field(default_factory=list)

    def used(self, now: Instant) -> None:
        """Somebody uses it; that is known to the minute."""
        if self.idle or now - self.active_at >= seconds(60):
            self.active_at, self.idle = now, False

    def count(self, state: State) -> int:
        return sum(mark.state == state for mark in self.marks.values()) + (self.passed if state == "completed" else 0)

    def lease_of(self, seq: int) -> Lease | None:
        return next((lease for lease in self.leases if seq in lease.held), None)

    def unsettled(self) -> list[int]:
        return sorted(seq for seq, mark in self.marks.items() if mark.state in UNSETTLED)

    @property
    def expired(self) -> int:
        return self.count("expired") + self.lost


@dataclass
class Scheduled:
    """A message that waits for its time."""

    due_at: Instant
    message: NewMessage
    id: Id
    arrival: int = 0


@dataclass(frozen=True)
class Answer:
    """What a settlement was answered, and the transaction it was the first of, if any."""

    at: int
    group: int
    settlement: Settlement
    result: SettleResult
    fingerprint: bytes = b""
    outcome: TransactionOutcome | None = None


@dataclass
class Log:
    """A queue with all it holds."""

    queue: Queue
    sqs_note: bytes | None = None
    entries: dict[int, Entry] = field(default_factory=dict)
    written: dict[int, Entry] = field(default_factory=dict)  # all there ever were, also those deleted since
    last_seq: int = 0
    first_seq: int = 1
    last_created_at: int = 0
    dedup: dict[tuple[str, str], tuple[Id, int | None, Instant]] = field(default_factory=dict)
    scheduled: list[Scheduled] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)
    dead: dict[int, DeadLetter] = field(default_factory=dict)
    replays: list[ReplayRecord] = field(default_factory=list)
    lease_history: list[FinishedLease] = field(default_factory=list)
    failures: list[FailedAttempt] = field(default_factory=list)
    retention_history: list[RetentionPass] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    tombstones: list[Tombstone] = field(default_factory=list)
    # What an ack of a whole lease (group, token, partition, seq) has just acked, until its answer is kept.
    swept: dict[tuple[int, Token, str, int], list[Settlement]] = field(default_factory=dict)

    @property
    def settings(self) -> QueueSettings:
        return self.queue.settings

    @property
    def is_ordered(self) -> bool:
        return self.settings.ordering is not Ordering.UNORDERED

    def pushed(self, group: Group) -> int:
        return self.last_seq - group.start_seq - group.skipped

    def backlog(self, group: Group) -> int:
        return self.pushed(group) - group.count("completed") - group.count("dead") - group.expired

    @property
    def depth(self) -> int:
        backlogs = [self.backlog(group) for group in self.in_use]
        return max(backlogs, default=len(self.logical)) + len(self.scheduled)

    @property
    def in_use(self) -> list[Group]:
        return [group for group in self.groups.values() if not group.idle] or list(self.groups.values())

    @property
    def archived(self) -> int | None:
        """Up to which seq everything is in a lake; None when no archive has said so."""
        archives = {group.name: group for group in self.groups.values() if group.archived is not None}
        in_use = [group.archived for group in archives.values() if not group.idle and group.archived is not None]
        return min(in_use or [group.archived or 0 for group in archives.values()], default=None)

    def for_others(self, name: str) -> int:
        """How many messages a group has not come by yet that are for another one."""
        group = self.groups[name]
        ahead = [entry for seq, entry in self.entries.items() if seq > group.scan_seq and not group.external]
        return sum(entry.audience not in (None, group.id) for entry in ahead)

    @property
    def logical(self) -> list[Entry]:
        """What one who begins at the beginning would read."""
        return [entry for seq, entry in self.entries.items() if seq >= self.first_seq]


class ClosedLogs(dict[QueueKey, Log]):
    """What a closed reference has instead of queues."""

    def __contains__(self, key: object) -> bool:
        raise SkepError(Code.STORE_UNAVAILABLE, "the reference is closed")


class Reference:
    """All queues, and the rules by which they change."""

    def __init__(self) -> None:
        self.logs: dict[QueueKey, Log] = {}
        self.ids = 0
        self.mint: Callable[[], Id] = self._next_id

    def _next_id(self) -> Id:
        self.ids += 1
        return Id(self.ids.to_bytes(16, "big"))

    # queues

    def log(self, key: QueueKey) -> Log:
        if key not in self.logs:
            raise SkepError(Code.QUEUE_NOT_FOUND, f"there is no queue {key.name}")
        return self.logs[key]

    def make(self, key: QueueKey, settings: QueueSettings, now: Instant, holds_dead_letters: bool = False) -> Log:
        self.ids += 1
        queue = Queue(
            id=self.ids,
            key=key,
            settings=settings,
            holds_dead_letters=holds_dead_letters,
            created_at=now,
            updated_at=now,
        )
        self.logs[key] = Log(queue)
        return self.logs[key]

    def make_dead_letter_queue(self, name: str, tenant: str, now: Instant) -> Log:
        key = QueueKey(name, tenant)
        if key in self.logs:
            self.logs[key].queue = msgspec.structs.replace(self.logs[key].queue, holds_dead_letters=True)
            return self.logs[key]
        settings = QueueSettings(max_attempts=0, dead_letter_queue=NO_DEAD_LETTER_QUEUE)
        return self.make(key, settings, now, holds_dead_letters=True)

    def names_one(self, key: QueueKey) -> bool:
        return key in self.logs and self.logs[key].settings.dead_letter_queue not in (None, NO_DEAD_LETTER_QUEUE)

    def grave_name(self, key: QueueKey) -> str | None:
        """Return the name of the queue that takes this one's dead letters."""
        log = self.logs[key]
        given = log.settings.dead_letter_queue
        if given == NO_DEAD_LETTER_QUEUE:
            return None
        if given is not None:
            return given
        if log.queue.holds_dead_letters or self.is_used(key):
            return None
        return key.name + DEAD_LETTER_SUFFIX

    def is_used(self, key: QueueKey) -> bool:
        """Return whether a queue buries its dead here, by name or by default."""
        return self.user_of(key) is not None

    def user_of(self, key: QueueKey) -> str | None:
        """Return a queue that buries its dead here."""
        for other, log in self.logs.items():
            if other.tenant != key.tenant or other == key:
                continue
            by_name = log.settings.dead_letter_queue == key.name
            if by_name or (other.name + DEAD_LETTER_SUFFIX == key.name and self.grave_name(other) == key.name):
                return other.name
        return None

    def check_dead_letter_rules(self, key: QueueKey, wanted: str | None) -> None:
        if wanted in (None, NO_DEAD_LETTER_QUEUE):
            return
        if wanted == key.name:
            raise SkepError(Code.DEAD_LETTER_SELF, "a queue cannot hold its own dead letters")
        if self.is_used(key) or self.names_one(QueueKey(wanted or "", key.tenant)):
            raise SkepError(Code.DEAD_LETTER_CHAIN, "dead-letter queues do not chain")

    # the log

    def append(self, log: Log, message: NewMessage, id_: Id, now: Instant, audience: int | None = None) -> Entry:
        partition = DEFAULT_PARTITION if log.settings.ordering is Ordering.FIFO else message.partition
        log.last_seq += 1
        log.last_created_at = max(log.last_created_at, now)
        entry = Entry(
            seq=log.last_seq,
            partition=partition,
            id=id_,
            transaction_id=message.transaction_id,
            trace_id=message.trace_id or id_,
            headers=message.headers,
            content_type=message.content_type,
            payload=message.payload,
            priority=message.priority,
            created_at=Instant(log.last_created_at),
            audience=audience,
        )
        log.entries[entry.seq] = log.written[entry.seq] = entry
        return entry

    # groups

    def group(self, log: Log, name: str, start: Start, now: Instant) -> Group:
        if name not in log.groups:
            at = self.position(log, start) - 1
            self.ids += 1
            log.groups[name] = Group(id=self.ids, name=name, start_seq=at, scan_seq=at, created_at=now, active_at=now)
            self.pass_over_gone(log, log.groups[name])
        return log.groups[name]

    def pass_over_gone(self, log: Log, group: Group) -> None:
        """What is gone before a group begins was never there for it."""
        group.counted = set(range(group.start_seq + 1, log.last_seq + 1)) - set(log.entries)
        group.skipped = len(group.counted)

    def take_away(self, log: Log, seq: int, now: Instant) -> None:
        """Remove a message from the log, and from all who have not settled it, unless somebody holds it."""
        entry = log.entries.pop(seq)
        log.dead.pop(seq, None)
        for group in log.groups.values():
            if seq > group.scan_seq:
                group.counted.add(seq)
                if group.external or entry.audience in (None, group.id):
                    group.lost += 1
                else:
                    group.skipped += 1
            mark, lease = group.marks.get(seq), group.lease_of(seq)
            if mark is not None and mark.state in UNSETTLED and (lease is None or lease.deadline <= now):
                mark.state = "expired"
                if lease is not None:
                    lease.held.remove(seq)
                    if not lease.held:
                        group.leases.remove(lease)
                        if log.is_ordered:  # what was delivered with it waits for the same time
                            group.rest_until[lease.partition] = lease.deadline
                            group.rest_from[lease.partition] = lease.leased_at
            self.forget_rest(log, group, entry.partition)

    def drop_gone(self, log: Log, group: Group) -> None:
        """Settle what is no longer in the log and in nobody's hands."""
        for seq in group.unsettled():
            if seq not in log.entries and group.lease_of(seq) is None:
                group.marks[seq].state = "expired"
                self.forget_rest(log, group, log.written[seq].partition)

    def position(self, log: Log, start: Start) -> int:
        end = log.last_seq + 1
        match start.mode:
            case StartMode.ALL:
                return log.first_seq
            case StartMode.NEW:
                return end
            case StartMode.SEQ:
                return min(max(start.value, log.first_seq), end)
            case StartMode.TIME:
                later = [e.seq for e in log.entries.values() if e.created_at >= start.value and e.seq >= log.first_seq]
                return min(later, default=end)

    def discover(self, log: Log, group: Group, now: Instant) -> None:
        for seq in range(group.scan_seq + 1, log.last_seq + 1):
            entry = log.entries.get(seq)
            if entry is None:
                assert seq in group.counted, f"{seq} went without a word to {group.name}"
            elif entry.audience not in (None, group.id):
                group.skipped += 1
            else:
                group.marks[seq] = Mark(found_at=now)
        group.scan_seq = log.last_seq
        group.counted.clear()

    def of_partition(self, log: Log, group: Group, partition: str, *states: State) -> list[int]:
        return sorted(
            seq for seq, mark in group.marks.items() if mark.state in states and log.written[seq].partition == partition
        )

    def partitions(self, log: Log, group: Group) -> list[str]:
        return sorted({log.written[seq].partition for seq in group.unsettled()})

    def lease_in(self, group: Group, partition: str) -> Lease | None:
        return next((lease for lease in group.leases if lease.partition == partition), None)

    def counts_from(self, log: Log, group: Group, seq: int) -> int:
        """Return when a message was created, or found, should its created_at lie ahead even of that."""
        return min(log.written[seq].created_at, group.marks[seq].found_at)

    def ready_at(self, log: Log, group: Group, partition: str) -> int:
        """Return when an ordered partition may be claimed."""
        lease = self.lease_in(group, partition)
        if lease is not None:
            return lease.deadline
        if partition in group.rest_until:
            return group.rest_until[partition]
        delay = seconds(log.settings.delayed_processing_seconds)
        created = [
            self.counts_from(log, group, seq) for seq in self.of_partition(log, group, partition, "open", "pending")
        ]
        if self.of_partition(log, group, partition, "open"):
            return created[0]
        window = seconds(log.settings.window_buffer_seconds)
        return max(created[0] + delay, min(created[-1] + window, created[0] + WINDOW_CAP_FACTOR * window))

    # the end of messages and leases

    def bury(self, log: Log, group: Group, seq: int, reason: DeadReason, error: str | None, now: Instant) -> str | None:
        """Give a message up for a group; the name of the queue that took it, or None when it was discarded, or has left the log."""
        mark = group.marks[seq]
        if seq not in log.entries:
            mark.state = "expired"
            return None
        mark.state = "expired" if reason is DeadReason.EXPIRED else "dead"
        entry = log.written[seq]
        name = self.grave_name(log.queue.key)
        if name is None:
            return None
        grave = self.make_dead_letter_queue(name, log.queue.key.tenant, now)
        message = NewMessage(
            queue=grave.queue.key,
            payload=entry.payload,
            partition=entry.partition,
            transaction_id=entry.transaction_id,
            trace_id=entry.trace_id,
            headers=entry.headers,
            content_type=entry.content_type,
            priority=entry.priority,
        )
        copy = self.append(grave, message, entry.id, now)
        grave.dead[copy.seq] = DeadLetter(
            queue=grave.queue.key,
            seq=Seq(copy.seq),
            id=entry.id,
            partition=entry.partition,
            source_queue=log.queue.key.name,
            source_seq=Seq(seq),
            group=group.name,
            reason=reason,
            error=error,
            attempts=mark.attempts,
            transaction_id=entry.transaction_id,
            trace_id=entry.trace_id,
            headers=entry.headers,
            content_type=entry.content_type,
            payload=entry.payload,
            created_at=entry.created_at,
            failed_at=now,
        )
        return name

    def note(
        self, log: Log, group: Group, lease: Lease, seqs: list[int], completed: int, outcome: str, now: Instant
    ) -> None:
        """Write down what became of these messages of a lease."""
        log.lease_history.append(
            FinishedLease(
                queue=log.queue.key,
                group=group.name,
                partition=lease.partition,
                first_seq=Seq(min(seqs)),
                last_seq=Seq(max(seqs)),
                messages=len(seqs),
                completed=completed,
                attempt=lease.attempt,
                leased_at=lease.leased_at,
                settled_at=now,
                outcome=outcome,
            )
        )

    def fail(
        self, log: Log, group: Group, lease: Lease, seq: int, outcome: str, error: str | None, now: Instant
    ) -> None:
        """Write down why an attempt failed; the latest 32 of a message and group are kept."""
        if any(stone.first_seq <= seq <= stone.last_seq for stone in log.tombstones):
            return
        text = None if error is None else error.encode()[:4096].decode(errors="ignore")
        log.failures.append(
            FailedAttempt(
                queue=log.queue.key, seq=Seq(seq), group=group.name, attempt=lease.attempt, leased_at=lease.leased_at,
                failed_at=now, outcome=outcome, error=text, consumer=lease.consumer,
            )
        )  # fmt: skip
        log.failures = [
            one for one in log.failures if (one.seq, one.group) != (seq, group.name) or one.attempt > lease.attempt - 32
        ]

    def reclaim(self, log: Log, group: Group, lease: Lease, now: Instant) -> None:
        """End a lease that ran out: its token is stale from here on, and the worn out are buried."""
        group.leases.remove(lease)
        limit = log.settings.max_attempts
        worn_out = lease.held if 0 < limit <= lease.attempt else []
        # In an ordered partition only the head may have been the one that broke its consumer.
        dying = worn_out[:1] if log.is_ordered else worn_out
        for outcome, seqs in (("dead", dying), ("expired", lease.held[len(dying) :])):
            if seqs:
                self.note(log, group, lease, seqs, 0, outcome, now)
            for seq in seqs:
                self.fail(log, group, lease, seq, "dead" if outcome == "dead" else "retried", "lease ran out", now)
        for seq in lease.held:
            mark = group.marks[seq]
            if seq in log.entries and seq in dying:
                self.bury(log, group, seq, DeadReason.MAX_ATTEMPTS, mark.error or EXPIRED_LEASE, now)
            else:
                mark.error = mark.error or EXPIRED_LEASE
                mark.retry_at, mark.said_at = lease.deadline, lease.leased_at
                group.retried += 1
        head_stays = group.marks[lease.held[0]].state == "open"
        lease.held.clear()
        if log.is_ordered and head_stays:
            group.rest_until[lease.partition] = lease.deadline
            group.rest_from[lease.partition] = lease.leased_at

    def is_old(self, log: Log, seq: int, now: Instant) -> bool:
        limits = (log.settings.max_wait_seconds, log.settings.max_age_seconds)
        return any(0 < seconds(limit) <= now - log.written[seq].created_at for limit in limits)

    def expire_old(self, log: Log, group: Group, seqs: Iterable[int], now: Instant, limit: float = float("inf")) -> int:
        """Settle those of ``seqs`` that are too old, up to ``limit``, unless somebody holds them."""
        done = 0
        for seq in seqs:
            if done == limit:
                break
            if group.lease_of(seq) is not None:
                continue
            if seq not in log.entries:
                group.marks[seq].state = "expired"
                continue
            age = now - log.entries[seq].created_at
            if 0 < seconds(log.settings.max_age_seconds) <= age:
                self.bury(log, group, seq, DeadReason.EXPIRED, group.marks[seq].error, now)
            elif 0 < seconds(log.settings.max_wait_seconds) <= age:
                group.marks[seq].state = "expired"
            else:
                continue
            done += 1
            # What follows has not failed, so it waits for nothing.
            group.rest_until.pop(log.entries[seq].partition, None)
        return done

    def renumber(self, grave: Log, order: list[int]) -> None:
        """Put the latest dead letters into another order: where several are buried at once, it is the store's choice."""
        seqs = sorted(order)
        moved = [(grave.entries[seq], grave.dead[seq]) for seq in order]
        for seq, (entry, letter) in zip(seqs, moved, strict=True):
            grave.entries[seq] = grave.written[seq] = replace(entry, seq=seq)
            grave.dead[seq] = msgspec.structs.replace(letter, seq=Seq(seq))

    def forget_rest(self, log: Log, group: Group, partition: str) -> None:
        if not self.of_partition(log, group, partition, "open"):
            group.rest_until.pop(partition, None)

    def progress(self, group: Group) -> int:
        return min([seq - 1 for seq in group.unsettled()] + [group.scan_seq])
