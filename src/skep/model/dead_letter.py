"""Dead letters as data: the reason and the source of each, the filters, and the steps of a replay or purge."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model.queue import QueueKey, Seq


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
    """A filter of the dead letters of one dead-letter queue; a field that is None does not narrow it.

    ``up_to`` is the mark of a dry run: dead letters after that seq do not match.
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
    """The payload, content type and headers that replace those of a dead letter when it is replayed."""

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
    """The dead letters that one bounded replay moved. ``after``: the seq to go on from, None when the replay is done."""

    replayed: list[Replayed]
    after: Seq | None = None


class PurgeStep(Struct, frozen=True):
    """How many dead letters one bounded purge deleted. ``after``: the seq to go on from, None when the purge is done."""

    count: int
    after: Seq | None = None
