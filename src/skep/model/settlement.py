"""Settlements as data: the outcome of a delivered message, and the store's answer."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code
from skep.model.group import QUEUE_MODE_GROUP
from skep.model.lease import Token
from skep.model.message import QueuedOperation
from skep.model.queue import QueueKey, Seq


class Outcome(StrEnum):
    """The outcome of a delivery. Only the engine uses RELEASE: the message reached nobody, so the delivery does not count.

    ACK_THROUGH acks a lease: its messages up to a seq are completed, unless the same call settles one of them otherwise.
    """

    ACK = "ack"
    ACK_THROUGH = "ack_through"
    NACK = "nack"
    REJECT = "reject"
    RELEASE = "release"


class Retry(StrEnum):
    """When a nacked message is delivered again."""

    BACKOFF = "backoff"
    NOW = "now"
    AT = "at"


class Settlement(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """One message's outcome, fenced by its lease's token. ``jitter`` in [0, 1) shortens the backoff by up to a fifth.

    With ACK_THROUGH the settlement is for all messages of the lease up to ``seq`` (`WHOLE_LEASE`: for all).
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
    """The effect of a settlement."""

    COMPLETED = "completed"
    RETRYING = "retrying"
    DEAD = "dead"
    DISCARDED = "discarded"
    REFUSED = "refused"
    QUEUED = "queued"


class SettleResult(Struct, frozen=True, gc=False):
    """The answer for one settlement. REFUSED: nothing changed (I6). ``repeated``: an earlier try of the call made the change.

    ``frees`` is false when the store knows that the settlement makes no other message ready. ``messages`` is how many messages an
    ACK_THROUGH completed; any other settlement is for one message.
    """

    status: SettleStatus
    code: Code | None = None
    retry_at: Instant | None = None
    dead_letter_queue: str | None = None
    operation: QueuedOperation | None = None
    repeated: bool = False
    frees: bool = True
    messages: int = 1
