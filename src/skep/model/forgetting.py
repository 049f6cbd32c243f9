"""Forgetting messages for good, as data: which messages, what became of them, and what is left of them: a tombstone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model.queue import QueueKey, Seq


class SeqRange(NamedTuple):
    """A range of seqs (offsets), both ends included."""

    first: int
    last: int


class ForgetFilter(Struct, frozen=True, kw_only=True):
    """The messages of one queue to forget: those that match all that is given.

    ``log`` names the log (`LogBounds.created_at`), so that seqs of a queue that was made anew since are not taken for others.
    """

    queue: QueueKey
    log: Instant | None = None
    ranges: list[SeqRange] | None = None
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: Id | None = None

    @property
    def names(self) -> list[str]:
        """By what the messages are chosen, without the values, which may be what is to be forgotten."""
        chosen = {
            "seq": self.ranges, "partition": self.partition, "transaction id": self.transaction_id, "trace": self.trace_id
        }  # fmt: skip
        return [name for name, value in chosen.items() if value is not None]


class ForgetStep(Struct):
    """The result of one bounded step: how many messages went out of the log, how many dead letters that stem from them, and how many
    messages that replays had made of those.

    ``queues`` have changed. ``after`` is the seq after which the next step begins; None when all is done.
    """

    messages: int
    queues: list[QueueKey]
    after: Seq | None
    letters: int = 0
    copies: int = 0


class LetterPlace(NamedTuple):
    """A place among the dead letters of one source: by source seq, then by the letter's queue and its seq there."""

    source_seq: int
    queue_id: int
    seq: int


FIRST_LETTER = LetterPlace(-1, 0, 0)


class FoundLetter(Struct, frozen=True):
    """A dead letter of some source. ``source_seq`` is 0 when its message never entered that queue's log."""

    queue: QueueKey
    seq: Seq
    source_seq: Seq


class FoundLetters(Struct, frozen=True):
    """The matches of one bounded look through the dead letters of a source. ``after``: where the next look begins, None at the end."""

    letters: list[FoundLetter]
    after: LetterPlace | None


class Tombstone(Struct, frozen=True):
    """A range of seqs whose messages were forgotten, and when. ``position`` rises with each tombstone of a log; ranges never overlap."""

    position: int
    first_seq: Seq
    last_seq: Seq
    forgotten_at: Instant


class Forgotten(Struct, frozen=True):
    """Tombstones of a log. ``log`` names it, as the queue may have been made anew."""

    log: Instant
    tombstones: list[Tombstone]


def merged(ranges: Iterable[tuple[int, int]]) -> list[SeqRange]:
    """The same seqs as ascending ranges that neither overlap nor touch."""
    found: list[SeqRange] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1].last + 1:
            found[-1] = SeqRange(found[-1].first, max(found[-1].last, last))
        else:
            found.append(SeqRange(first, last))
    return found


def runs_of(seqs: Iterable[int]) -> list[SeqRange]:
    """Seqs as ranges."""
    return merged((seq, seq) for seq in seqs)


def within(ranges: Iterable[SeqRange], after: int, through: int) -> list[SeqRange]:
    """The part of ranges beyond ``after`` and up to ``through``."""
    return [
        SeqRange(max(first, after + 1), min(last, through))
        for first, last in ranges
        if last > after and first <= through
    ]


def first_of(ranges: Sequence[SeqRange], count: int) -> list[SeqRange]:
    """The first of the ranges that have so many seqs together, at least one of them."""
    found: list[SeqRange] = []
    for one in ranges:
        found.append(one)
        count -= one.last - one.first + 1
        if count <= 0:
            break
    return found


def without(ranges: Sequence[SeqRange], known: Sequence[SeqRange]) -> Iterator[SeqRange]:
    """The part of ascending ranges that other ranges leave."""
    others = merged(known)
    for first, last in ranges:
        at = first
        for other in others:
            if other.last < at or other.first > last:
                continue
            if other.first > at:
                yield SeqRange(at, other.first - 1)
            at = other.last + 1
        if at <= last:
            yield SeqRange(at, last)


def check_log(queue: str, log: Instant | None, created_at: Instant) -> None:
    """Refuse seqs of another log."""
    if log is not None and log != created_at:
        raise SkepError(
            Code.LOG_REPLACED,
            f"the queue {queue!r} was deleted and made anew: these seqs are of its earlier log, which is gone",
            queue=queue,
            log=created_at,
        )


def check_ranges(queue: str, ranges: Sequence[SeqRange], last_seq: int) -> None:
    """Refuse seqs that no message has had yet: a message to come is not forgotten."""
    if ranges and ranges[-1].last > last_seq:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the log of {queue!r} ends at {last_seq}, so there was no message {ranges[-1].last}: was the queue made anew?",
            queue=queue,
            last_seq=last_seq,
        )
