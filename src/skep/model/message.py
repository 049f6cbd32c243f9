"""Messages as data: pushed messages, the outcomes of pushes, and messages of the log."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.model.queue import DEFAULT_PARTITION, Depth, QueueKey, Seq
from skep.model.record import Receipt

SEALED_TYPE = "application/vnd.skep.sealed"
"""The content type of an encrypted payload (`skep.crypto.envelope`). A push with this type is refused."""
SEALED_KEY = slice(1, 17)
"""Where an encrypted payload has the id of its data key."""
SealedPayloads = Literal["open", "keep", "blank"]
"""How sealed (encrypted) payloads of a log are read: opened, and one that cannot be opened is an error; as the store has them; or opened,
and one that cannot be opened is empty and has the content type of a sealed one."""
SEALED_ERROR = "\x1fsealed:"
"""The prefix of a stored error text of an encrypted queue; an envelope in Base64 follows."""


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
    """A push whose outcome is unknown: it was tried between these instants, by this session, and may be stored.

    A fenced session (`Store.fence`) stores nothing any more.
    """

    since: Instant
    until: Instant
    session: str


class PushBatch(Struct, frozen=True):
    """Messages that are stored whole or not at all, with the ids minted for them before the first try.

    With a receipt the batch is stored once: while a receipt with that key lives, it is not stored again. For a batch with ``tried``
    the store first looks for its ids in the log, and does not store a batch that it finds there. The messages of a batch with an
    ``audience`` are delivered to this group alone, and their transaction ids are not deduplicated: it has messages that were pushed
    before.
    """

    messages: list[NewMessage]
    ids: list[Id]
    receipt: Receipt | None = None
    tried: Tried | None = None
    audience: str | None = None


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


class StoredRange(Struct, frozen=True):
    """The results of messages that were stored one after the other, without transaction ids or traces of their own.

    Each result is made when somebody asks for it: the usual push of many messages needs none.
    """

    first_seq: Seq
    ids: list[Id]

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[PushResult]:
        return map(self.__getitem__, range(len(self.ids)))

    def __getitem__(self, index: int) -> PushResult:
        id_ = self.ids[index]
        seq = self.first_seq + index + (len(self.ids) if index < 0 else 0)
        return PushResult(PushStatus.STORED, id_, Seq(seq), None, id_)

    def part(self, start: int, end: int) -> StoredRange:
        """The results from one index up to another."""
        return StoredRange(Seq(self.first_seq + start), self.ids[start:end])


class QueuedOperation(Struct, frozen=True):
    """An operation that a call was queued as: its queue and partition, the items of the call, and the expected wait."""

    id: Id
    queue: QueueKey
    partition: str
    indexes: list[int]
    queue_position: int
    reason: str
    estimated_wait_seconds: float


class PushOutcome(Struct, frozen=True):
    """One result per message in order, and the depth afterwards of every queue that was pushed to.

    ``recorded`` is the answer of an earlier receipt: then there are no results, and nothing was stored. ``held``: nothing was
    stored either, as the batch would overtake a queued push to one of its partitions. The engine then queues the batch behind
    that push, as ``operations``.
    """

    results: list[PushResult] | StoredRange
    depths: dict[QueueKey, Depth]
    recorded: bytes | None = None
    held: bool = False
    operations: list[QueuedOperation] | None = None

    @property
    def refused(self) -> bool:
        """Whether the batch was refused. Then no message was stored, and every result says so."""
        results = self.results
        return type(results) is list and bool(results) and results[0].status is PushStatus.REFUSED


class Appended(Struct, frozen=True):
    """The outcome of a bulk push: the seqs of its messages, in their order, and the queue's depth afterwards."""

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
    """A filter of the messages to browse. ``state`` is the state for ``group``; ``after`` is the seq of the last message seen.

    With ``cleared`` also messages before the beginning of the log, which retention has not deleted yet.
    """

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
    cleared: bool = False


class StoredMessage(Struct, frozen=True, kw_only=True):
    """A message of the log, for browsing; ``payload`` is cut to ``preview_bytes`` of the filter."""

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
    """A page of messages, and the seq that the next page starts after; None on the last page."""

    messages: list[StoredMessage]
    after: Seq | None


class DeletedMessage(Struct, frozen=True):
    """A message that was deleted from its log, or would be. ``groups`` had not settled it; ``leases`` counts the leases on it."""

    seq: Seq
    id: Id
    partition: str
    transaction_id: str | None
    groups: list[str]
    leases: int
