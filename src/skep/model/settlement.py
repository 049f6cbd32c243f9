"""Settlements as data: what became of a delivered message, and what the store said to that."""

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
