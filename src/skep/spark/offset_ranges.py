"""The range of offsets that a query reads: the queues of its options, the start and end of each, and whether the log still has all of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec
import re2

from skep.errors import Code, SkepError
from skep.spark.lake.united import LakeIndex
from skep.spark.link import Link
from skep.spark.offsets import Offsets, noted, parted
from skep.spark.options import EARLIEST, LATEST, SourceOptions
from skep.spark.options import Offsets as Place
from skep.spark.push_down import Pinned
from skep.wire.log import LogBoundsResponse as Bounds

log = logging.getLogger("skep.spark")


def subscribed(link: Link, options: SourceOptions) -> tuple[str, ...]:
    """The queues to read, sorted by name: those of the option, or those that match the pattern now."""
    if options.pattern is None:
        return tuple(sorted(options.queues))
    return tuple(filter(matching(options.pattern), sorted(link.queue_names())))


def matching(pattern: str) -> Callable[[str], bool]:
    """Whether a queue's whole name matches a pattern."""
    matches = re2.compile(pattern).fullmatch
    return lambda name: matches(name) is not None


def looked(link: Link, options: SourceOptions) -> tuple[SourceOptions, dict[str, Bounds]]:
    """The bounds of the queues to read. With failOnDataLoss=false, deleted queues and their offsets are left out."""
    queues = subscribed(link, options)
    found = link.bounds_of(queues)
    for queue in queues:
        if queue not in found:
            if options.fail_on_data_loss:
                raise gone(queue)
            lose(options, deleted(queue))
    if queues and not found:
        raise gone(queues[0])
    lost = set(queues) - found.keys()
    return msgspec.structs.replace(
        options, starting=_without(options.starting, lost), ending=_without(options.ending, lost)
    ), found


def _without(place: Place, lost: set[str]) -> Place:
    return {queue: seq for queue, seq in place.items() if queue not in lost} if isinstance(place, dict) else place


def gone(queue: str) -> SkepError:
    """The error for a queue that does not exist."""
    return SkepError(
        Code.QUEUE_NOT_FOUND,
        f"there is no queue {queue!r}. Make it first (a push does), correct the option subscribe, or look whether url and "
        "tenant are the right ones. A stream whose queue was deleted goes on without it with failOnDataLoss=false.",
    )


def whole(
    link: Link, options: SourceOptions, all_bounds: Mapping[str, Bounds], lake: LakeIndex | None
) -> tuple[Offsets, Offsets]:
    """The start and the end of a batch read; of a frame that was read before, those of then."""
    pinned = options.push_down.pinned
    if pinned is None:
        return starting(link, options, all_bounds, lake), ending(link, options, all_bounds, lake)
    last, logs = parted(pinned.ends)
    for queue in sorted(last):
        if queue not in all_bounds:
            lose(options, deleted(queue))
        elif logs[queue] != all_bounds[queue].log or last[queue] > all_bounds[queue].last_seq:
            lose(options, remade(queue, last[queue]))
        else:
            continue
        del last[queue]
    first = starting(link, options, all_bounds, lake) if pinned.starts is None else pinned.starts
    return {queue: first[queue] for queue in last}, last


def pin(link: Link, options: SourceOptions, lake: LakeIndex | None) -> Pinned:
    """The range of a batch read as it is now. The start is left open where it can only move with the log's beginning."""
    options, bounds = looked(link, options)
    moves = options.starting == "group"
    ends = noted(ending(link, options, bounds, lake), {queue: found.log for queue, found in bounds.items()})
    return Pinned(ends, starting(link, options, bounds, lake) if moves else None)


def starting(
    link: Link, options: SourceOptions, all_bounds: Mapping[str, Bounds], lake: LakeIndex | None = None
) -> Offsets:
    """The offset after which each queue is read."""
    _check_named(options.starting, all_bounds, "startingOffsets")
    earliest = {queue: bounds.first_seq - 1 for queue, bounds in all_bounds.items()}
    if options.starting_at is not None:
        found = first_seqs_at(link, all_bounds, options.starting_at, lake)
        return {queue: max(least, found.get(queue, 0) - 1) for queue, least in earliest.items()}
    match options.starting:
        case "earliest":
            return earliest
        case "latest":
            return {queue: bounds.last_seq for queue, bounds in all_bounds.items()}
        case "group":
            assert options.group is not None
            progress = link.progress_of(list(all_bounds), options.group)
            return {queue: max(least, progress.get(queue, 0)) for queue, least in earliest.items()}
        case offsets:
            return {
                queue: _named(queue, offsets.get(queue, EARLIEST), bounds, "startingOffsets")
                for queue, bounds in all_bounds.items()
            }


def ending(
    link: Link, options: SourceOptions, all_bounds: Mapping[str, Bounds], lake: LakeIndex | None = None
) -> Offsets:
    """The last seq of each queue that a batch read includes."""
    _check_named(options.ending, all_bounds, "endingOffsets")
    if options.ending_at is not None:
        found = first_seqs_at(link, all_bounds, options.ending_at, lake)
        return {queue: found.get(queue, bounds.first_seq) - 1 for queue, bounds in all_bounds.items()}
    return {queue: _end_of(options, queue, bounds) for queue, bounds in all_bounds.items()}


def first_seqs_at(link: Link, all_bounds: Mapping[str, Bounds], at: datetime, lake: LakeIndex | None) -> dict[str, int]:
    """By queue, the seq of the first message that was pushed at or after a time, in the lake or the log; the next free seq when there
    is none.
    """
    found = link.first_seqs_at(list(all_bounds), at)
    if lake is not None:
        found |= {queue: seq for queue, one in all_bounds.items() if (seq := lake.first_seq_at(one, at)) is not None}
    return found


def _end_of(options: SourceOptions, queue: str, bounds: Bounds) -> int:
    if isinstance(options.ending, dict):
        return _named(queue, options.ending.get(queue, LATEST), bounds, "endingOffsets")
    return bounds.first_seq - 1 if options.ending == "earliest" else bounds.last_seq


def _named(queue: str, offset: int, bounds: Bounds, option: str) -> int:
    if offset == EARLIEST:
        return bounds.first_seq - 1
    if offset == LATEST:
        return bounds.last_seq
    if offset > bounds.last_seq:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the option {option} says {offset} for {queue}, whose last seq is {bounds.last_seq}; say at most that, or latest",
        )
    return offset


def _check_named(offsets: object, all_bounds: Mapping[str, Bounds], option: str) -> None:
    if isinstance(offsets, dict) and (others := offsets.keys() - all_bounds.keys()):
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the option {option} names {', '.join(sorted(others))}, which is not subscribed to; there is "
            f"{', '.join(all_bounds) or 'no queue'}",
        )


def check_kept(options: SourceOptions, queue: str, offset: int, bounds: Bounds, log: int | None = None) -> int:
    """The offset to go on from: the same one if no message after it was lost, else the log's beginning (an error or a warning).

    ``log`` is the log that the offset belongs to. It tells a queue that was deleted and made anew, however long that is by now.
    """
    if log is not None and log != bounds.log:
        lose(options, remade(queue, offset))
        return bounds.first_seq - 1
    if offset > bounds.last_seq:
        lose(
            options,
            f"{queue} ends at seq {bounds.last_seq}, before the offset {offset} of this query: the queue was deleted and "
            "made anew, or the server was set back to an older state",
        )
        return bounds.first_seq - 1
    if offset + 1 < bounds.first_seq:
        lose(options, lost(queue, offset + 1, bounds.first_seq - 1))
        return bounds.first_seq - 1
    return offset


def remade(queue: str, offset: int) -> str:
    """The text about a queue that was deleted and made anew."""
    return (
        f"the queue {queue} was deleted and made anew (or the server is another one): the offset {offset} of this query is of "
        "the log before, and what that held after it is gone"
    )


def deleted(queue: str) -> str:
    """The text about a queue that was deleted."""
    return f"there is no queue {queue!r} any more: it was deleted, or url or tenant are not those of before"


def lost(queue: str, first: int, last: int) -> str:
    """The text about messages that retention or clearing has removed."""
    return (
        f"the messages {first} to {last} of {queue} have been removed by retention or by clearing before they were read"
    )


def lose(options: SourceOptions, what: str) -> None:
    """Fail because of lost messages; with failOnDataLoss=false only warn."""
    if not options.fail_on_data_loss:
        log.warning("%s; going on without them, since failOnDataLoss is false", what)
        return
    raise SkepError(
        Code.MESSAGE_NOT_FOUND,
        f"{what}. To go on with what is there, set failOnDataLoss to false (or, for a new query, start at earliest with a "
        "checkpoint of its own). To keep it from happening, raise the queue's retention_seconds or give the query a "
        "groupId: retention waits for the progress of groups.",
    )


def check_checkpoint(options: SourceOptions, start: Mapping[str, int]) -> None:
    """Refuse the checkpoint of a query that read other queues."""
    if options.pattern is None and (others := start.keys() - set(options.queues)):
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the checkpoint has offsets of {', '.join(sorted(others))}, and this query reads {options.described}: it is the "
            "checkpoint of another query. Give this one a checkpointLocation of its own, or subscribe to those queues too.",
        )
