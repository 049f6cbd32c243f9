"""Staged messages: the store keeps them outside the logs until all messages of an epoch are published together, once.

A Spark task stages its messages in chunks, under (query, epoch, partition, attempt). The driver's commit publishes one attempt of
each partition. Plain structs, as in `skep.model`.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model.message import Appended, PushOutcome, PushStatus
from skep.model.queue import QueueKey
from skep.model.record import DEFAULT_TENANT, ReceiptKey

SCOPE = "staging"
"""The scope of the receipts of published epochs."""


class EpochKey(Struct, frozen=True, order=True):
    """The identity of an epoch, a query's (or batch job's) unit of work that is published whole. A repeat has the same key."""

    query: str
    epoch: int
    tenant: str = DEFAULT_TENANT

    @property
    def receipt(self) -> ReceiptKey:
        """The key of the receipt of the epoch's publication."""
        return ReceiptKey(SCOPE, f"{self.query}/{self.epoch}", self.tenant)


class StagedChunk(Struct, frozen=True, kw_only=True):
    """Some messages of one attempt. ``data`` is packed by `skep.arrow.staged`; ``queues`` are the names of the target queues."""

    epoch: EpochKey
    partition: int
    attempt: int
    number: int
    messages: int
    queues: list[str]
    data: bytes
    expires_at: Instant


class Attempt(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One attempt of one partition, and how many messages it staged in all."""

    partition: int
    attempt: int
    messages: int


class Published(Struct, frozen=True):
    """The outcome of a publication; ``queues`` got messages just now: none if the epoch was published before."""

    answer: bytes
    queues: list[QueueKey]


class QueuePublished(Struct, rename="camel"):
    """The messages of an epoch that entered one queue's log. The seqs are null when all were duplicates or are scheduled."""

    messages: int = 0
    first_seq: int | None = None
    last_seq: int | None = None


class PublishedAnswer(Struct, rename="camel"):
    """The answer of a published epoch. A second publication gets the same answer."""

    query: str
    epoch: int
    messages: int = 0
    duplicates: int = 0
    scheduled: int = 0
    queues: dict[str, QueuePublished] = {}


class PublishTally:
    """Counts the published messages, chunk by chunk."""

    def __init__(self, epoch: EpochKey) -> None:
        self._told = PublishedAnswer(epoch.query, epoch.epoch)
        self._tenant = epoch.tenant

    def appended(self, queue: str, messages: int, appended: Appended) -> None:
        """Count a chunk of one queue that entered its log whole."""
        self._count(queue, messages, appended.first_seq, appended.last_seq)

    def pushed(self, queues: list[str], outcome: PushOutcome) -> None:
        """Count a chunk that was pushed message by message; raises when the store refused it."""
        for queue, result in zip(queues, outcome.results, strict=True):
            match result.status:
                case PushStatus.STORED:
                    self._count(queue, 1, result.seq, result.seq)
                case PushStatus.DUPLICATE:
                    self._told.duplicates += 1
                    self._count(queue, 0, None, None)
                case PushStatus.BUFFERED:  # staged messages are never buffered
                    raise AssertionError(result)
                case PushStatus.SCHEDULED:
                    self._told.scheduled += 1
                    self._count(queue, 0, None, None)
                case PushStatus.REFUSED if result.code is not Code.BATCH_REFUSED:
                    raise SkepError(result.code or Code.INTERNAL, result.reason or "refused", queue=queue)
                case PushStatus.REFUSED:
                    pass  # another message of this chunk is at fault

    def _count(self, queue: str, messages: int, first: int | None, last: int | None) -> None:
        told = self._told.queues.setdefault(queue, QueuePublished())
        told.messages += messages
        self._told.messages += messages
        if first is not None and last is not None:
            told.first_seq = first if told.first_seq is None else min(told.first_seq, first)
            told.last_seq = last if told.last_seq is None else max(told.last_seq, last)

    def published(self) -> Published:
        """The outcome of the whole publication."""
        keys = [QueueKey(name, self._tenant) for name in self._told.queues]
        return Published(msgspec.json.encode(self._told), keys)


def check_staged(epoch: EpochKey, wanted: list[Attempt], staged: dict[tuple[int, int], int]) -> None:
    """Raise when staged messages of an attempt are missing: they were reaped, aborted, or never arrived."""
    for attempt in wanted:
        found = staged.get((attempt.partition, attempt.attempt), 0)
        if found != attempt.messages:
            raise SkepError(
                Code.STAGING_INCOMPLETE,
                f"attempt {attempt.attempt} of partition {attempt.partition} has {found} staged messages, not "
                f"{attempt.messages}: stage it again under a new attempt",
                query=epoch.query, epoch=epoch.epoch, partition=attempt.partition, attempt=attempt.attempt,
            )  # fmt: skip


def already_published(epoch: EpochKey) -> SkepError:
    """The error for staging more messages for a published epoch."""
    return SkepError(
        Code.EPOCH_PUBLISHED,
        f"epoch {epoch.epoch} of {epoch.query!r} is published: there is nothing more to write for it",
        query=epoch.query, epoch=epoch.epoch,
    )  # fmt: skip
