"""What of a query reaches the server: the filters of one scan, and the range that all scans of a frame share.

Spark's Java part (`skep.spark.jvm`) sends it as the option `pushDown`, which is JSON. Spark evaluates every filter again, so a scan may
have more rows than its filters want, and never fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.offsets import ROWS_WORTH_A_QUEUE

if TYPE_CHECKING:
    from skep.spark.offsets import Offsets

Filter = Literal["set", "range"]
"""How a column can be filtered: by some values, or by a lower and an upper bound, both inclusive."""
Texts = tuple[str, ...]
Range = tuple[int | None, int | None]
FirstSeqsAt = Callable[[Sequence[str], datetime], Mapping[str, int]]
"""By queue, the seq of the first message that was pushed at or after a time."""
MESSAGE_FILTERS: dict[str, Filter] = {
    "queue": "set", "partition": "set", "transaction_id": "set", "trace_id": "set", "seq": "range", "created_at": "range",
}  # fmt: skip
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MICROS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


class Pinned(Struct, frozen=True, forbid_unknown_fields=True):
    """The range of a frame as it was when Spark first planned it. Every scan of the frame has it, so that two of them never disagree.

    ``ends`` is written as a checkpoint has it. ``starts`` is None where the start can only move with the log's beginning.
    """

    ends: dict[str, Any]
    starts: dict[str, int] | None = None


class PushDown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question of Spark's Java part (``asks``), or what it pushes down for one scan."""

    asks: Literal["schema", "table", "queues"] | None = None
    pinned: Pinned | None = None
    sets: dict[str, tuple[str, ...]] = {}
    ranges: dict[str, Range] = {}
    by_java: bool = False
    """Whether tasks are handed to Java (`skep.spark.handed`)."""


_decode = msgspec.json.Decoder(PushDown).decode


def parsed(text: str | None) -> PushDown:
    """The option `pushDown`."""
    try:
        return PushDown() if text is None else _decode(text)
    except msgspec.DecodeError as error:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the option pushDown is for Skep's own jar, and cannot be read ({error}): leave it out, and use the jar of this package",
        ) from None


def selected(
    pushed: PushDown, partitions: Texts, transaction_ids: Texts, trace_ids: Texts
) -> dict[str, tuple[str, ...]] | None:
    """What the options of a read select together with the filters by value, by the field of the options; None when no message can match."""
    sets = pushed.sets
    # The server refuses a text that is no id, which no message can have.
    traces = [one for one in sets["trace_id"] if written(one) == one] if "trace_id" in sets else None
    chosen = {
        "partitions": both(partitions, sets.get("partition")),
        "transaction_ids": both(transaction_ids, sets.get("transaction_id")),
        "trace_ids": both(tuple(written(one) or one for one in trace_ids), traces),
    }
    found = {name: values for name, values in chosen.items() if values is not None}
    return found if len(found) == len(chosen) else None


def both(given: tuple[str, ...], wanted: Sequence[str] | None) -> tuple[str, ...] | None:
    """The values that an option and a filter both allow; an empty option allows all. None when there is no such value."""
    if wanted is None:
        return given
    # No message has a text with a NUL, and the server refuses to look for one.
    values = tuple(one for one in dict.fromkeys(wanted) if "\0" not in one and (not given or one in given))
    return values or None


def written(text: str) -> str | None:
    """An id as its column has it; None for a text that is no id."""
    try:
        return str(UUID(text))
    except ValueError:
        return None


def bounded(pushed: PushDown, start: Offsets, end: Offsets, first_seqs_at: FirstSeqsAt) -> tuple[Offsets, Offsets]:
    """A range without the queues and the seqs that the filters exclude."""
    queues = pushed.sets.get("queue")
    low, high = pushed.ranges.get("seq", (None, None))
    since, until = pushed.ranges.get("created_at", (None, None))
    starts: Offsets = {}
    ends: Offsets = {}
    for queue, last in end.items():
        if queues is None or queue in queues:
            starts[queue] = start[queue] if low is None else max(start[queue], low - 1)
            ends[queue] = last if high is None else min(last, high)
    # `created_at` never falls along a log.
    if since is not None:
        asked = [queue for queue in ends if _is_worth_asking(starts[queue], ends[queue], since)]
        found = first_seqs_at(asked, instant(since)) if asked else {}
        starts |= {queue: max(starts[queue], seq - 1) for queue, seq in found.items()}
    if until is not None:
        asked = [queue for queue in ends if _is_worth_asking(starts[queue], ends[queue], until + 1)]
        found = first_seqs_at(asked, instant(until + 1)) if asked else {}
        ends |= {queue: min(ends[queue], seq - 1) for queue, seq in found.items()}
    return starts, ends


def _is_worth_asking(start: int, end: int, at: int) -> bool:
    """Whether to ask the server for the seq of a time: not for a few messages, nor for a time that no message can have."""
    return end - start > ROWS_WORTH_A_QUEUE and 0 < at <= LAST_MICROS


def instant(micros: int) -> datetime:
    """Microseconds since 1970 as a time, no further away than Python's times go."""
    return EPOCH + timedelta(microseconds=min(max(micros, 0), LAST_MICROS))
