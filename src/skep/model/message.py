"""Messages as data: as they are pushed, what became of a push, and as they are seen in the log."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.model.queue import DEFAULT_PARTITION, Depth, QueueKey, Seq
from skep.model.record import Receipt

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
    """The outcome of one pushed message."""

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
        """Whether the batch was refused. Then no message was stored, and every result says so."""
        return bool(self.results) and self.results[0].status is PushStatus.REFUSED


class Appended(Struct, frozen=True):
    """What a bulk push did: the seqs its messages got, in their order, and the queue's depth afterwards."""

    first_seq: Seq
    last_seq: Seq
    depth: Depth


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


class DeletedMessage(Struct, frozen=True):
    """A message that was deleted from its log, or would be: ``groups`` had not settled it, ``leases`` of them held it."""

    seq: Seq
    id: Id
    partition: str
    transaction_id: str | None
    groups: list[str]
    leases: int
