"""The shape of a range of the log, known before its columns are read. A column that follows from the shape is not read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from skep.arrow.log import LOG_SCHEMA, times_of

VARYING = frozenset({"partition", "payload", "transaction_id", "content_type", "headers"})
"""Columns that are read as lengths and values; the others are read as values alone."""


class Shape(Struct, frozen=True):
    """The contents of a range: the number of messages, the first and last seq, and how many messages have each optional column."""

    messages: int
    first: int
    last: int
    first_at: int
    last_at: int
    payload_bytes: int
    traced: int
    transaction_ids: int
    content_types: int
    headers: int

    def read_as(self, column: str) -> str:
        """The column to read for this one: without given traces, the trace id of each message is its own id."""
        return "message_id" if column == "trace_id" and not self.traced else column

    def to_read(self, columns: Sequence[str]) -> list[str]:
        """The columns that must be read to make these columns."""
        return [name for name in dict.fromkeys(map(self.read_as, columns)) if self._differs(name)]

    def _differs(self, column: str) -> bool:
        """Whether the column differs from message to message; otherwise its values follow from the shape."""
        match column:
            case "seq":
                return self.last - self.first >= self.messages
            case "created_at":
                return self.first_at != self.last_at
            case "transaction_id":
                return self.transaction_ids > 0
            case "content_type":
                return self.content_types > 0
            case "headers":
                return self.headers > 0
            case _:
                return True


def together(shapes: Sequence[Shape]) -> Shape:
    """The shape of ranges that follow each other."""
    return Shape(
        messages=sum(one.messages for one in shapes),
        first=shapes[0].first,
        last=shapes[-1].last,
        first_at=min(one.first_at for one in shapes),
        last_at=max(one.last_at for one in shapes),
        payload_bytes=sum(one.payload_bytes for one in shapes),
        traced=sum(one.traced for one in shapes),
        transaction_ids=sum(one.transaction_ids for one in shapes),
        content_types=sum(one.content_types for one in shapes),
        headers=sum(one.headers for one in shapes),
    )


def implied(name: str, shape: Shape) -> pa.Array:
    """A column that follows from the shape: its values are all the same, or consecutive."""
    if name == "seq":
        return pa.array(np.arange(shape.first, shape.last + 1, dtype=np.int64))
    if name == "created_at":
        return times_of(np.full(shape.messages, shape.first_at, np.int64))
    return pa.nulls(shape.messages, LOG_SCHEMA.field(name).type)
