"""Messages that are sealed (encrypted) in the lake: the server opens them for who may read their queue. Keys never leave the server.

A sealed message has its envelope in `payload_bytes`, no `payload`, and in `data_key` the id of the key that sealed it. Once that key is
destroyed (`skep encryption shred`), nobody can open the message, wherever copies of it are.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.rows import DATA_KEY, divided
from skep.spark.link import link
from skep.spark.options import ServerConnection
from skep.spark.schema import fitted

OPENED_BY = ("queue", "partition", "seq", "message_id", "trace_id", "payload", "payload_bytes", DATA_KEY)
"""The columns that opening needs."""
SENT = ("partition", "message_id", "trace_id")
OPEN_BYTES = 8 * 1024 * 1024
"""About the most bytes of payloads in one request."""


class Opening(Struct, frozen=True):
    """How a read opens sealed messages."""

    connection: ServerConnection
    fails: bool = True
    """Whether it is an error when a message cannot be opened. If not, its payload is null, and it keeps its data key."""
    queues: frozenset[str] = frozenset()
    """The queues that may have sealed messages, where the reader has to know that before it opens files."""

    def opened(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows with the columns of `OPENED_BY`, and their payloads opened. An opened row has no data key any more."""
        is_sealed = pc.is_valid(rows.column(DATA_KEY))
        if not pc.any(is_sealed).as_py():
            return rows
        payloads = pa.chunked_array(
            [self._opened(part) for part in _portions(rows.filter(is_sealed))], pa.large_binary()
        ).combine_chunks()
        is_opened = pc.is_valid(payloads)
        text, other = divided(fitted(payloads.cast(pa.binary()), pa.string()))
        made = {
            "payload": text, "payload_bytes": other,
            DATA_KEY: pc.if_else(is_opened, None, rows.column(DATA_KEY).filter(is_sealed)),
        }  # fmt: skip
        columns = [
            pc.replace_with_mask(column, is_sealed, made[name].cast(column.type)) if name in made else column
            for name, column in zip(rows.schema.names, rows.columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=rows.schema)

    def _opened(self, rows: pa.RecordBatch) -> pa.Array:
        """The payloads of sealed rows of one queue; null where one cannot be opened."""
        queue = rows.column("queue")[0].as_py()
        sent = rows.select(SENT).append_column("payload", rows.column("payload_bytes"))
        opened = link(self.connection).open_sealed(queue, sent)
        if self.fails and opened.null_count:
            seq = rows.column("seq").filter(pc.is_null(opened))[0].as_py()
            raise SkepError(
                Code.CANNOT_DECRYPT,
                f"{queue} is sealed in the lake, and the message with seq {seq} cannot be opened: its key was destroyed (skep encryption "
                "shred), or the message was changed. To read the others, and this one without a payload, set failOnShredded to false",
            )
        return opened


def has_sealed(about: pq.FileMetaData) -> bool:
    """Whether a file may have sealed rows, as its statistics say."""
    place = next((n for n in range(about.num_columns) if about.schema.column(n).path == DATA_KEY), None)
    if place is None:
        return False
    found = (about.row_group(group).column(place) for group in range(about.num_row_groups))
    return any(one.statistics is None or one.statistics.null_count < one.num_values for one in found)


def _portions(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows in portions of one queue that fit into a request, at least one row each."""
    queues = rows.column("queue")
    sizes = np.cumsum(pc.binary_length(rows.column("payload_bytes")).to_numpy(zero_copy_only=False))
    changes = {0, rows.num_rows}
    if rows.num_rows > 1:
        is_other = pc.not_equal(queues.slice(1), queues.slice(0, rows.num_rows - 1)).to_numpy(zero_copy_only=False)
        changes |= {int(place) + 1 for place in np.flatnonzero(is_other)}
    ends = sorted(changes)
    for first, last in pairwise(ends):
        while first < last:
            before = sizes[first - 1] if first else 0
            end = min(last, max(first + 1, int(np.searchsorted(sizes, before + OPEN_BYTES, side="right"))))
            yield rows.slice(first, end - first)
            first = end
