"""Operations as data: pushes and acks that were accepted while the store was too busy, and wait for their turn.

An operation belongs to one partition of one queue. It is stored with all its data, message ids and lease tokens included, so that
any server can perform it exactly as it was asked for, once. ``position`` gives the order of operations, never their ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model.lease import Token
from skep.model.message import PushBatch, PushOutcome, PushResult
from skep.model.packed import PackedMessage, packed, unpacked
from skep.model.queue import DEFAULT_PARTITION, QueueKey, Seq
from skep.model.record import Receipt
from skep.model.settlement import Outcome, Retry, Settlement, SettleResult

TIMEOUT_SECONDS = 30.0
"""How long a claim lasts: a server that has not performed its operation by then loses the claim."""
MAX_RETRIES = 3
"""The least number of retries of a failing operation before it is given up."""
GROWTHS = 6
"""How often the time of a lost claim doubles, so that an operation that kills its server does so ever less often."""
LOST = "the server that had it did not come back"
STUCK_TIMEOUTS = 2
"""An operation that lives longer than this many of its timeouts is stuck."""


class OperationKind(StrEnum):
    """The kind of a queued call."""

    PUSH = "push"
    ACK_BATCH = "ack_batch"
    ACK_SINGLE = "ack_single"


PRIORITY = {OperationKind.ACK_BATCH: 3, OperationKind.ACK_SINGLE: 4, OperationKind.PUSH: 5}
"""The order of operations of different partitions: a lower number comes first. Calls of other kinds are never queued."""


class OperationLane(StrEnum):
    """A partition has two ordered sequences of operations: its pushes, and its acks."""

    PUSH = "push"
    ACK = "ack"


def lane_of(kind: OperationKind) -> OperationLane:
    """The lane of a kind."""
    return OperationLane.PUSH if kind is OperationKind.PUSH else OperationLane.ACK


class OperationStatus(StrEnum):
    """The status of an operation. The first three are live: later pushes to the partition queue behind them.

    A blocked operation was tried and failed with ``code``; it will be tried again.
    """

    PENDING = "pending"
    PROCESSING = "processing"
    BLOCKED = "blocked"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


LIVE = (OperationStatus.PENDING, OperationStatus.PROCESSING, OperationStatus.BLOCKED)


class QueuedReason(StrEnum):
    """Why a call was queued."""

    SYSTEM_BUSY = "system_busy"
    MAINTAINING_ORDER = "maintaining_order"


class NewOperations(Struct, frozen=True):
    """One call to be queued, whole: a push to one partition, or acks. Acks become one operation per partition.

    ``ids`` has at least one id per operation.
    """

    kind: OperationKind
    ids: list[Id]
    push: PushBatch | None = None
    settlements: list[Settlement] | None = None
    timeout_seconds: float = TIMEOUT_SECONDS
    max_retries: int = MAX_RETRIES


class NewOperation(Struct, frozen=True):
    """One operation to store. ``indexes`` are the places of its items in the call."""

    id: Id
    kind: OperationKind
    queue: QueueKey
    partition: str
    payload: bytes
    messages: int
    indexes: list[int]
    timeout_seconds: float
    max_retries: int


class Enqueued(Struct, frozen=True):
    """A stored operation. ``indexes`` are the places of its items in the call."""

    id: Id
    kind: OperationKind
    queue: QueueKey
    partition: str
    position: int
    indexes: list[int]


class ClaimLimits(Struct, frozen=True):
    """How much one claim takes; always at least one operation."""

    operations: int = 500
    messages: int = 5_000
    bytes: int = 8 * 1024 * 1024


class Claimed(Struct, frozen=True):
    """An operation that this server may perform until its claim runs out. ``tries`` counts this try, too.

    ``code`` and ``error`` are those of its last failure; ``blocked_at`` is when it first failed with that code.
    """

    position: int
    id: Id
    kind: OperationKind
    queue: QueueKey
    partition: str
    payload: bytes
    messages: int
    tries: int
    max_retries: int
    timeout_seconds: float
    created_at: Instant
    blocked_at: Instant | None = None
    code: Code | None = None
    error: str | None = None

    @property
    def exhausted(self) -> bool:
        """Whether all tries are used up, and the last server never reported back."""
        return self.tries > self.max_retries + 1 and self.error == LOST

    def blocked_since(self, code: Code, now: Instant) -> Instant:
        """When the operation began to fail with this code. A time in the future (the clock was put back) counts as now."""
        return min(self.blocked_at, now) if self.blocked_at is not None and self.code is code else now

    @property
    def batch(self) -> PushBatch:
        """The batch of a push."""
        return decode_push(self.payload, self.queue)

    @property
    def settlements(self) -> list[Settlement]:
        """The settlements of an ack."""
        return decode_settlements(self.payload, self.queue)


class ClaimedOperations(Struct, frozen=True):
    """The operations that a claim took. ``more``: it took none and did not look at all of them; the next claim goes on."""

    operations: list[Claimed]
    more: bool = False


class Performed(Struct, frozen=True):
    """The outcome of performing claimed operations: results by position, operations whose claim was lost, and refusals.

    With a refusal, none of the operations was performed.
    """

    done: dict[int, bytes]
    lost: list[int]
    refused: dict[int, tuple[Code, str]]


class GivenBack(Struct, frozen=True):
    """An operation that was not performed. It is tried again at ``retry_at``, or given up when ``retry_at`` is None.

    An ``untried`` operation does not lose a try: it was not tried, or the store could not take it. ``blocked_at`` is when it first
    failed with this code; None when it was not tried. ``payload`` is buried in place of the queued one: the same messages, encrypted.
    """

    position: int
    retry_at: Instant | None
    error: str | None = None
    code: Code | None = None
    untried: bool = False
    blocked_at: Instant | None = None
    payload: bytes | None = None


class Operation(Struct, frozen=True, kw_only=True):
    """An operation for display. ``result`` is set once the operation is completed (`decode_result`)."""

    position: int
    id: Id
    kind: OperationKind
    queue: QueueKey
    partition: str
    priority: int
    status: OperationStatus
    size_bytes: int
    messages: int
    created_at: Instant
    started_at: Instant | None
    processed_at: Instant | None
    ready_at: Instant | None
    """When the operation is tried again, or when the claim on it runs out."""
    blocked_at: Instant | None
    """When the operation first failed with ``code``."""
    error_at: Instant | None
    """When the operation failed last."""
    worker: str | None
    timeout_seconds: float
    tries: int
    max_retries: int
    error: str | None
    code: Code | None
    dead_letter_queue: str | None
    result: bytes | None

    @property
    def live(self) -> bool:
        """Whether the operation is not yet completed, failed or cancelled."""
        return self.processed_at is None

    def stuck(self, now: Instant) -> bool:
        """Whether the operation is live for `STUCK_TIMEOUTS` of its timeouts or longer."""
        return self.live and self.created_at + STUCK_TIMEOUTS * seconds(self.timeout_seconds) <= now


class OperationFilter(Struct, frozen=True, kw_only=True):
    """A filter of operations; a field that is None does not narrow it."""

    tenant: str
    status: OperationStatus | None = None
    kind: OperationKind | None = None
    queue: str | None = None
    partition: str | None = None


class OperationPage(Struct, frozen=True):
    """A page of operations, newest first. It may be short, as a walk is bounded; ``after`` is where the next page begins."""

    operations: list[Operation]
    after: int | None


class WaitingOperations(Struct, frozen=True):
    """The number of live operations by kind, the time of the oldest, and how many are stuck and blocked."""

    depth: dict[OperationKind, int]
    oldest_at: Instant | None = None
    stuck: int = 0
    blocked: int = 0

    @property
    def total(self) -> int:
        """The number of all live operations."""
        return sum(self.depth.values())


class OperationFigures(Struct, frozen=True):
    """Operations of one kind and status: how many, the oldest and newest, and how long they took on average."""

    kind: OperationKind
    priority: int
    status: OperationStatus
    count: int
    oldest_at: Instant
    newest_at: Instant
    average_seconds: float | None


def groups_of(keys: Iterable[tuple[QueueKey, str]]) -> dict[tuple[QueueKey, str], list[int]]:
    """The indexes of each (queue, partition) in a call; the keys are in the order of their first appearance."""
    groups: dict[tuple[QueueKey, str], list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    return groups


def push_groups(batch: PushBatch) -> int:
    """The number of partitions of a push. Only a push to a single partition can be queued."""
    return len({(message.queue, message.partition) for message in batch.messages})


def settle_groups(settlements: Sequence[Settlement]) -> int:
    """How many operations an ack may become."""
    return len({(settlement.queue, settlement.partition) for settlement in settlements})


def split(request: NewOperations, is_fifo: dict[QueueKey, bool]) -> list[NewOperation]:
    """The operations of one call: one for a push, and one per partition for acks. A fifo queue has just one partition.

    Raises OPERATIONS_AHEAD for a push to several partitions: a batch is stored whole (I15), and operations of different partitions
    are performed apart.
    """
    if request.push is not None:
        batch = request.push
        if push_groups(batch) > 1:
            raise operations_ahead()
        groups = groups_of(
            (m.queue, DEFAULT_PARTITION if is_fifo.get(m.queue) else m.partition) for m in batch.messages
        )
        payloads = [encode_push(batch, indexes) for indexes in groups.values()]
    else:
        settlements = request.settlements or []
        groups = groups_of((s.queue, s.partition) for s in settlements)
        payloads = [encode_settlements([settlements[i] for i in indexes]) for indexes in groups.values()]
    return [
        NewOperation(
            id_, request.kind, queue, partition, payload, len(indexes), indexes, request.timeout_seconds,
            request.max_retries,
        )
        for id_, ((queue, partition), indexes), payload in zip(request.ids, groups.items(), payloads, strict=False)
    ]  # fmt: skip


def operations_ahead() -> SkepError:
    """The error for a call that cannot be queued and would overtake a queued push."""
    return SkepError(
        Code.OPERATIONS_AHEAD,
        "a push to the same partition is queued, and this cannot wait behind it: try again when that is done",
        retry_after_seconds=1,
    )


class _Push(Struct, frozen=True, array_like=True):
    ids: list[bytes]
    messages: list[PackedMessage]
    receipt: Receipt | None


class _Settled(Struct, frozen=True, array_like=True, gc=False):
    partition: str
    seq: int
    token: bytes
    group: str
    outcome: Outcome
    error: str | None
    retry: Retry
    retry_at: int | None
    jitter: float


class OperationResult(Struct, frozen=True):
    """The answer of the queued call: results in the order of its items, or the recorded answer of a receipt."""

    pushed: list[PushResult] | None = None
    recorded: bytes | None = None
    settled: list[SettleResult] | None = None
    seqs: list[int | None] | None = None
    """The seq of each settlement in ``settled``; None for an ACK_THROUGH, which settles a lease."""


_encode = msgspec.msgpack.Encoder().encode
_decode_push = msgspec.msgpack.Decoder(_Push).decode
_decode_settlements = msgspec.msgpack.Decoder(list[_Settled]).decode
_decode_result = msgspec.msgpack.Decoder(OperationResult).decode


def encode_push(batch: PushBatch, indexes: Sequence[int]) -> bytes:
    """Pack the messages of a batch that one operation pushes. The queue is stored in a column of its own."""
    messages = [packed(batch.messages[index]) for index in indexes]
    return _encode(_Push([batch.ids[index] for index in indexes], messages, batch.receipt))


def decode_push(payload: bytes, queue: QueueKey) -> PushBatch:
    """The batch that an operation pushes."""
    push = _decode_push(payload)
    messages = [unpacked(message, queue) for message in push.messages]
    return PushBatch(messages, [Id(id_) for id_ in push.ids], push.receipt)


def encode_settlements(settlements: Sequence[Settlement]) -> bytes:
    """Pack the settlements of one operation."""
    return _encode(
        [
            _Settled(s.partition, s.seq, s.token, s.group, s.outcome, s.error, s.retry, s.retry_at, s.jitter)
            for s in settlements
        ]
    )


def decode_settlements(payload: bytes, queue: QueueKey) -> list[Settlement]:
    """The settlements of an operation."""
    return [
        Settlement(
            queue=queue, partition=s.partition, seq=Seq(s.seq), token=Token(s.token), group=s.group, outcome=s.outcome,
            error=s.error, retry=s.retry, retry_at=None if s.retry_at is None else Instant(s.retry_at), jitter=s.jitter,
        )
        for s in _decode_settlements(payload)
    ]  # fmt: skip


def refusal(outcome: PushOutcome) -> tuple[Code, str]:
    """Why a push was refused: the code of the first message at fault, not the BATCH_REFUSED of its neighbours."""
    first = next((r for r in outcome.results if r.code is not Code.BATCH_REFUSED), outcome.results[0])
    return first.code or Code.INTERNAL, first.reason or "refused"


def encode_pushed(outcome: PushOutcome) -> bytes:
    """The result of a push."""
    return _encode(OperationResult(pushed=list(outcome.results), recorded=outcome.recorded))


def encode_settled(settlements: Sequence[Settlement], results: list[SettleResult]) -> bytes:
    """The result of an ack."""
    seqs: list[int | None] = [None if one.outcome is Outcome.ACK_THROUGH else one.seq for one in settlements]
    return _encode(OperationResult(settled=results, seqs=seqs))


def decode_result(result: bytes) -> OperationResult:
    """Unpack the result of an operation."""
    return _decode_result(result)
