"""Messages that are staged: kept, but in no log until all of an epoch are published together, once.

A Spark task writes what it has under (query, epoch, partition, attempt), in chunks; the driver's commit publishes one attempt of
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
"""The scope of the receipts that say that an epoch was published."""


class EpochKey(Struct, frozen=True, order=True):
    """What is published together: a query's (or a batch job's) unit of work, known by the same numbers when it is repeated."""

    query: str
    epoch: int
    tenant: str = DEFAULT_TENANT

    @property
    def receipt(self) -> ReceiptKey:
        """The key of the receipt that says that it was published."""
        return ReceiptKey(SCOPE, f"{self.query}/{self.epoch}", self.tenant)


class Chunk(Struct, frozen=True, kw_only=True):
    """Some of the messages of one attempt. ``data`` is what `skep.arrow.staged` makes of them, ``queues`` the names they are for."""

    epoch: EpochKey
    partition: int
    attempt: int
    number: int
    messages: int
    queues: list[str]
    data: bytes
    expires_at: Instant


class Attempt(Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One try of one partition, and how many messages it staged in all."""

    partition: int
    attempt: int
    messages: int


class Published(Struct, frozen=True):
    """The outcome of a publication; ``queues`` got messages just now: none if the epoch was published before."""

    answer: bytes
    queues: list[QueueKey]


class QueuePublished(Struct, rename="camel"):
    """What of an epoch went to one queue's log. The seqs are null when all were duplicates or are scheduled."""

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


class Tally:
    """Counts what is published, chunk by chunk."""

    def __init__(self, epoch: EpochKey) -> None:
        self._told = PublishedAnswer(epoch.query, epoch.epoch)
        self._tenant = epoch.tenant

    def appended(self, queue: str, messages: int, appended: Appended) -> None:
        """A chunk of one queue went to its log whole."""
        self._count(queue, messages, appended.first_seq, appended.last_seq)

    def pushed(self, queues: list[str], outcome: PushOutcome) -> None:
        """A chunk was pushed message by message; raises when it was refused."""
        for queue, result in zip(queues, outcome.results, strict=True):
            match result.status:
                case PushStatus.STORED:
                    self._count(queue, 1, result.seq, result.seq)
                case PushStatus.DUPLICATE:
                    self._told.duplicates += 1
                    self._count(queue, 0, None, None)
                case PushStatus.BUFFERED:  # Arrow pushes are not
                    raise AssertionError(result)
                case PushStatus.SCHEDULED:
                    self._told.scheduled += 1
                    self._count(queue, 0, None, None)
                case PushStatus.REFUSED if result.code is not Code.BATCH_REFUSED:
                    raise SkepError(result.code or Code.INTERNAL, result.reason or "refused", queue=queue)
                case PushStatus.REFUSED:
                    pass  # another one of this chunk is to blame

    def _count(self, queue: str, messages: int, first: int | None, last: int | None) -> None:
        told = self._told.queues.setdefault(queue, QueuePublished())
        told.messages += messages
        self._told.messages += messages
        if first is not None and last is not None:
            told.first_seq = first if told.first_seq is None else min(told.first_seq, first)
            told.last_seq = last if told.last_seq is None else max(told.last_seq, last)

    def published(self) -> Published:
        """The outcome of it all."""
        keys = [QueueKey(name, self._tenant) for name in self._told.queues]
        return Published(msgspec.json.encode(self._told), keys)


def check_staged(epoch: EpochKey, wanted: list[Attempt], staged: dict[tuple[int, int], int]) -> None:
    """Refuse to publish what is not there as it was staged: it was reaped, aborted, or never arrived."""
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
