"""The words of Skep as data: queues, messages, deliveries, settlements, dead letters, and figures about them.

Plain structs that flow one way, from the edge to the store and back. They hold no logic beyond their defaults;
payloads and headers stay the bytes they came as. Instants are microseconds (`skep.clock`), ids 16 bytes (`skep.ids`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec
from msgspec import UNSET, Struct, UnsetType

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.records import DEFAULT_TENANT as DEFAULT_TENANT
from skep.records import Receipt

Seq = NewType("Seq", int)
Token = NewType("Token", bytes)

DEFAULT_PARTITION = "Default"
QUEUE_MODE_GROUP = "__QUEUE_MODE__"
NO_GROUP = ""
"""The group of a dead letter that none gave up, since it never was in its queue: a replay is for all groups."""
DEAD_LETTER_SUFFIX = ".dead"
NO_DEAD_LETTER_QUEUE = "none"
LOG_CHUNK = 5_000
"""Messages of a log that are read at once as columns, and begin at the same seqs for all readers where they are kept."""
WINDOW_CAP_FACTOR = 10
"""A window buffer holds a partition back for at most this many windows after its oldest message."""


class Ordering(StrEnum):
    """What is kept in order: each partition, the whole queue as one partition, or nothing."""

    PER_KEY = "per_key"
    FIFO = "fifo"
    UNORDERED = "unordered"


class QueueKey(Struct, frozen=True, order=True, array_like=True):
    """What a queue is known by; the tenant is part of its identity."""

    name: str
    tenant: str = DEFAULT_TENANT


class QueueSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a queue with their defaults. Zero means "no limit", "keep" or "off" where that makes sense."""

    namespace: str | None = None
    task: str | None = None
    priority: int = 0
    ordering: Ordering = Ordering.PER_KEY
    lease_seconds: float = 300.0
    max_attempts: int = 3
    initial_backoff_ms: int = 1000
    max_backoff_ms: int = 60_000
    dead_letter_queue: str | None = None
    max_depth: int = 0
    max_age_seconds: float = 0.0
    retention_seconds: float = 0.0
    completed_retention_seconds: float = 0.0
    retention_ignores_groups: bool = False
    group_idle_seconds: float = 0.0
    delayed_processing_seconds: float = 0.0
    window_buffer_seconds: float = 0.0
    max_wait_seconds: float = 0.0
    dedup_window_seconds: float = 86_400.0
    paused: bool = False
    encryption_enabled: bool = False


class QueueChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An update of settings: only what is given changes."""

    namespace: str | None | UnsetType = UNSET
    task: str | None | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    ordering: Ordering | UnsetType = UNSET
    lease_seconds: float | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    initial_backoff_ms: int | UnsetType = UNSET
    max_backoff_ms: int | UnsetType = UNSET
    dead_letter_queue: str | None | UnsetType = UNSET
    max_depth: int | UnsetType = UNSET
    max_age_seconds: float | UnsetType = UNSET
    retention_seconds: float | UnsetType = UNSET
    completed_retention_seconds: float | UnsetType = UNSET
    retention_ignores_groups: bool | UnsetType = UNSET
    group_idle_seconds: float | UnsetType = UNSET
    delayed_processing_seconds: float | UnsetType = UNSET
    window_buffer_seconds: float | UnsetType = UNSET
    max_wait_seconds: float | UnsetType = UNSET
    dedup_window_seconds: float | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    encryption_enabled: bool | UnsetType = UNSET

    def apply(self, settings: QueueSettings) -> QueueSettings:
        """The settings with these changes made."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}
        return msgspec.structs.replace(settings, **given)


class Queue(Struct, frozen=True, kw_only=True):
    """A queue as the store knows it. ``id`` is never used twice, even after the queue is deleted."""

    id: int
    key: QueueKey
    settings: QueueSettings
    holds_dead_letters: bool
    created_at: Instant
    updated_at: Instant


SEALED_TYPE = "application/vnd.skep.sealed"
"""The content type that says that a payload is encrypted (`skep.crypto.envelope`). Nobody may push it."""


SEALED_ERROR = "\x1fsealed:"
"""What the error of a message of an encrypted queue begins with where it is stored; an envelope in Base64 follows."""


class NewMessage(Struct, frozen=True, gc=False, array_like=True):
    """A message as it is pushed. ``content_type`` None is JSON; ``headers`` is a JSON object of strings, as bytes."""

    queue: QueueKey
    payload: bytes
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: Id | None = None
    headers: bytes | None = None
    content_type: str | None = None
    deliver_at: Instant | None = None
    priority: int = 0


class Tried(Struct, frozen=True):
    """That a push was tried, and nobody knows whether it was stored: between which instants, and by what session.

    A session that was fenced (`Store.fence`) stores nothing any more.
    """

    since: Instant
    until: Instant
    session: str


class PushBatch(Struct, frozen=True):
    """Messages that are stored whole or not at all, with the ids minted for them before the first try.

    With a receipt they are stored once: while a receipt with that key lives, nothing of the batch is. One that was tried
    before is looked for in the log by its ids, and not stored when it is there.
    """

    messages: list[NewMessage]
    ids: list[Id]
    receipt: Receipt | None = None
    tried: Tried | None = None


class PushStatus(StrEnum):
    """What became of one pushed message."""

    STORED = "stored"
    SCHEDULED = "scheduled"
    DUPLICATE = "duplicate"
    BUFFERED = "buffered"
    REFUSED = "refused"
    QUEUED = "queued"


class PushResult(Struct, frozen=True, gc=False):
    """The answer for one message: its own id and seq, or those of the first one when it is a duplicate."""

    status: PushStatus
    id: Id
    seq: Seq | None = None
    transaction_id: str | None = None
    trace_id: Id | None = None
    code: Code | None = None
    reason: str | None = None


class Depth(Struct, frozen=True):
    """How full a queue is: unsettled by its slowest group, plus scheduled. ``remaining`` is None without a limit."""

    depth: int
    remaining: int | None


class QueuedOperation(Struct, frozen=True):
    """An operation that a call became: what it is about, which items of the call it has, and how long it may take."""

    id: Id
    queue: QueueKey
    partition: str
    indexes: list[int]
    queue_position: int
    reason: str
    estimated_wait_seconds: float


class PushOutcome(Struct, frozen=True):
    """One result per message in order, and the depth afterwards of every queue that was pushed to.

    ``recorded`` is the answer of a receipt that was there before: then there are no results, and nothing was stored. ``held``
    says the same of a batch that would overtake a queued push to one of its partitions; the engine queues it behind that, and
    then ``operations`` says which.
    """

    results: list[PushResult]
    depths: dict[QueueKey, Depth]
    recorded: bytes | None = None
    held: bool = False
    operations: list[QueuedOperation] | None = None

    @property
    def refused(self) -> bool:
        """Whether the batch was refused: then nothing of it was stored, and every result says so."""
        return bool(self.results) and self.results[0].status is PushStatus.REFUSED


class Appended(Struct, frozen=True):
    """What a bulk push did: the seqs its messages got, in their order, and the queue's depth afterwards."""

    first_seq: Seq
    last_seq: Seq
    depth: Depth


class LogBounds(Struct, frozen=True):
    """The seqs a log holds, both inclusive, and when its last message was appended; empty when first is last + 1.

    ``created_at`` is the queue's: a queue that was deleted and made anew has another log, whose seqs mean other messages.
    """

    first_seq: Seq
    last_seq: Seq
    last_at: Instant | None
    created_at: Instant


class Outcome(StrEnum):
    """What is said of a message. RELEASE is the engine's own word: it reached nobody, so that delivery does not count.

    ACK_THROUGH is said of a lease: its messages up to a seq are done, unless the same call says something else of one of them.
    """

    ACK = "ack"
    ACK_THROUGH = "ack_through"
    NACK = "nack"
    REJECT = "reject"
    RELEASE = "release"


class Retry(StrEnum):
    """When a nacked message comes again."""

    BACKOFF = "backoff"
    NOW = "now"
    AT = "at"


class StartMode(StrEnum):
    """Where in the log a group starts, or is moved to."""

    ALL = "all"
    NEW = "new"
    TIME = "time"
    SEQ = "seq"


class Start(Struct, frozen=True):
    """A position: the beginning, the end, the first message at or after an instant, or a seq (inclusive)."""

    mode: StartMode = StartMode.ALL
    value: int = 0


FROM_BEGINNING = Start(StartMode.ALL)
FROM_NOW = Start(StartMode.NEW)


class PopRequest(Struct, frozen=True, kw_only=True):
    """A wish for messages of one queue. ``max_partitions`` 0 takes as many partitions as fill the batch.

    Payloads and headers together have at most ``max_bytes``, unless one message alone has more: what does not fit stays
    where it is and is not leased. ``consumer`` says who asks (`skep.consumers`); it is kept with the lease.
    """

    queue: QueueKey
    token: Token
    group: str = QUEUE_MODE_GROUP
    batch: int = 1
    max_bytes: int = 32 * 1024 * 1024
    partition: str | None = None
    max_partitions: int = 0
    lease_seconds: float | None = None
    auto_ack: bool = False
    start: Start = FROM_BEGINNING
    consumer: str | None = None


class DeadReason(StrEnum):
    """Why a message was given up on."""

    MAX_ATTEMPTS = "max_attempts"
    REJECTED = "rejected"
    EXPIRED = "expired"
    INVALID = "invalid"
    OPERATION_FAILED = "operation_failed"


class DeadLetterOrigin(Struct, frozen=True, gc=False):
    """Where a dead letter comes from, and why it died. ``group`` is empty when no group gave it up, and then ``source_seq`` may be 0."""

    source_queue: str
    source_seq: Seq
    partition: str
    group: str
    reason: DeadReason
    error: str | None
    attempts: int
    failed_at: Instant


class Delivery(Struct, frozen=True, gc=False, array_like=True):
    """A message handed out under a lease: settle it with its token before the deadline.

    ``dead_letter`` is there only when it died in another queue.
    """

    queue: QueueKey
    group: str
    partition: str
    seq: Seq
    id: Id
    transaction_id: str | None
    trace_id: Id
    headers: bytes | None
    content_type: str | None
    payload: bytes
    priority: int
    created_at: Instant
    attempt: int
    token: Token
    lease_deadline: Instant
    dead_letter: DeadLetterOrigin | None = None

    def settlement(
        self,
        outcome: Outcome = Outcome.ACK,
        *,
        error: str | None = None,
        retry: Retry = Retry.BACKOFF,
        retry_at: Instant | None = None,
    ) -> Settlement:
        """What to hand to `settle` to finish this message, or to give it back."""
        return Settlement(
            queue=self.queue, partition=self.partition, seq=self.seq, token=self.token, group=self.group,
            outcome=outcome, error=error, retry=retry, retry_at=retry_at,
        )  # fmt: skip


class PopResult(Struct, frozen=True):
    """What was handed out. ``next_ready_at`` is when something may next be had; ``more`` when that is at once."""

    deliveries: list[Delivery]
    next_ready_at: Instant | None = None
    more: bool = False


WHOLE_LEASE = Seq(2**63 - 1)
"""The seq of an ACK_THROUGH that means all messages of the lease: no message has a greater one."""


class Settlement(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """One message's outcome, fenced by its lease's token. ``jitter`` in [0, 1) shortens the backoff by up to a fifth.

    With ACK_THROUGH it is the outcome of all messages of the lease up to ``seq`` (`WHOLE_LEASE`: of all).
    """

    queue: QueueKey
    partition: str
    seq: Seq
    token: Token
    group: str = QUEUE_MODE_GROUP
    outcome: Outcome = Outcome.ACK
    error: str | None = None
    retry: Retry = Retry.BACKOFF
    retry_at: Instant | None = None
    jitter: float = 0.0


class SettleStatus(StrEnum):
    """What a settlement did."""

    COMPLETED = "completed"
    RETRYING = "retrying"
    DEAD = "dead"
    DISCARDED = "discarded"
    REFUSED = "refused"
    QUEUED = "queued"


class SettleResult(Struct, frozen=True, gc=False):
    """The answer for one settlement; REFUSED means that nothing changed (I6), ``repeated`` that it did when it was first made.

    ``frees`` is false when the store knows that no other message can be had for it. ``messages`` is how many an ACK_THROUGH completed;
    any other settlement is about one.
    """

    status: SettleStatus
    code: Code | None = None
    retry_at: Instant | None = None
    dead_letter_queue: str | None = None
    operation: QueuedOperation | None = None
    repeated: bool = False
    frees: bool = True
    messages: int = 1


class Renewal(Struct, frozen=True, kw_only=True):
    """A wish to keep a lease for longer, counted from now."""

    queue: QueueKey
    partition: str
    token: Token
    lease_seconds: float
    group: str = QUEUE_MODE_GROUP


class RenewResult(Struct, frozen=True):
    """The new deadline, or the code that says why there is none."""

    deadline: Instant | None
    code: Code | None = None


class DeadLetter(Struct, frozen=True, kw_only=True):
    """A message in a dead-letter queue with its history."""

    queue: QueueKey
    seq: Seq
    id: Id
    partition: str
    source_queue: str
    source_seq: Seq
    group: str
    reason: DeadReason
    error: str | None
    attempts: int
    transaction_id: str | None
    trace_id: Id
    headers: bytes | None
    content_type: str | None
    payload: bytes
    created_at: Instant
    failed_at: Instant


class DeadLetterFilter(Struct, frozen=True, kw_only=True):
    """Which dead letters of a dead-letter queue are meant; what is None does not narrow.

    ``up_to`` is the mark of a dry run: what came to the queue after that seq is not meant.
    """

    queue: QueueKey
    ids: list[Id] | None = None
    seqs: list[Seq] | None = None
    source_queue: str | None = None
    partition: str | None = None
    group: str | None = None
    reason: DeadReason | None = None
    error_contains: str | None = None
    since: Instant | None = None
    until: Instant | None = None
    up_to: Seq | None = None


class Edited(Struct, frozen=True):
    """What a dead letter goes back with instead of its own payload, of which type that is, and headers instead of its own."""

    payload: bytes
    content_type: str | None = None
    headers: bytes | None = None


class Replayed(Struct, frozen=True):
    """One dead letter that went back to its source queue as a new message."""

    dead_seq: Seq
    queue: QueueKey
    id: Id
    seq: Seq


class ReplayStep(Struct, frozen=True):
    """What one bounded replay moved, and behind which dead letter the next one looks; None when it looked at all."""

    replayed: list[Replayed]
    after: Seq | None = None


class PurgeStep(Struct, frozen=True):
    """How many dead letters one bounded purge deleted, and behind which one the next looks; None when it looked at all."""

    count: int
    after: Seq | None = None


class MessageState(StrEnum):
    """How far a group has come with one message."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    SETTLED = "settled"
    DEAD = "dead"


class MessageFilter(Struct, frozen=True, kw_only=True):
    """Which messages of a queue to browse. With ``state`` a group is meant; ``after`` is the seq of the last one seen."""

    queue: QueueKey
    partition: str | None = None
    group: str | None = None
    state: MessageState | None = None
    transaction_id: str | None = None
    trace_id: Id | None = None
    since: Instant | None = None
    until: Instant | None = None
    after: Seq | None = None
    descending: bool = False
    limit: int = 100
    preview_bytes: int | None = None


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message of the log as one sees it when browsing; ``payload`` is cut to the preview that was asked for."""

    queue: QueueKey
    seq: Seq
    partition: str
    id: Id
    transaction_id: str | None
    trace_id: Id
    headers: bytes | None
    content_type: str | None
    payload: bytes
    payload_bytes: int
    priority: int
    created_at: Instant
    state: MessageState | None = None


class MessagePage(Struct, frozen=True):
    """A page and where the next one starts; ``after`` None means there is no more."""

    messages: list[StoredMessage]
    after: Seq | None


class Rates(Struct, frozen=True):
    """Messages per second over the last minute."""

    pushed: float = 0.0
    completed: float = 0.0
    retried: float = 0.0
    dead: float = 0.0


class GroupStats(Struct, frozen=True, kw_only=True):
    """A group's account. I12: pushed = completed + pending + in_flight + dead + expired. Nobody pops for an external one.

    ``active_at`` is when somebody last used it, to the minute. An ``idle`` one holds back neither retention nor max_depth.
    """

    queue: QueueKey
    group: str
    progress_seq: Seq
    pushed: int
    completed: int
    pending: int
    in_flight: int
    dead: int
    expired: int
    retried: int
    partitions_pending: int
    partitions_leased: int
    oldest_at: Instant | None
    lag_seconds: float
    rates: Rates
    created_at: Instant
    external: bool = False
    active_at: Instant
    inactive_seconds: float
    idle: bool = False

    @property
    def lag_messages(self) -> int:
        """How many messages the group has yet to settle."""
        return self.pending + self.in_flight


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue's figures: its log, what waits to enter it, and every group's account. ``gaps`` are seqs without a message."""

    queue: QueueKey
    first_seq: Seq
    last_seq: Seq
    depth: int
    scheduled: int
    dead_letters: int
    in_flight: int
    oldest_age_seconds: float
    rates: Rates
    groups: list[GroupStats]
    gaps: int = 0


class PartitionStats(Struct, frozen=True, kw_only=True):
    """A partition with unsettled messages, as one group sees it. ``last_error`` is why its first one failed last."""

    queue: QueueKey
    group: str
    partition: str
    pending: int
    in_flight: int
    attempts: int
    oldest_at: Instant
    ready_at: Instant
    lease_deadline: Instant | None
    last_error: str | None = None


class LeaseInfo(Struct, frozen=True, kw_only=True):
    """A live lease. ``consumer`` is who holds it, as the pop said it; None when it did not say."""

    queue: QueueKey
    group: str
    partition: str
    messages: int
    first_seq: Seq
    last_seq: Seq
    leased_at: Instant
    deadline: Instant
    attempts: int
    consumer: str | None = None


class ClearScope(StrEnum):
    """What `clear` removes: what waits, what is scheduled, or everything with the leases too."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    ALL = "all"


class DeletedMessage(Struct, frozen=True):
    """A message that was deleted from its log, or would be: ``groups`` had not settled it, ``leases`` of them held it."""

    seq: Seq
    id: Id
    partition: str
    transaction_id: str | None
    groups: list[str]
    leases: int


class Cleared(Struct, frozen=True):
    """How many messages were taken away: from the log, and from the schedule."""

    pending: int
    scheduled: int
