"""Arrow batches in portions that fit into one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import pyarrow as pa

from skep.model import DEFAULT_PARTITION

STAGE_BYTES = 16 * 1024 * 1024
"""The bytes that are gathered before they are staged; less than the server's limit."""


def gathered(batches: Iterator[pa.RecordBatch], most_rows: int, most_bytes: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in portions of at most so many rows and bytes. A batch that is too large by itself is cut."""
    portion: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        starts = range(0, batch.num_rows, most_rows)
        for piece in chain.from_iterable(_halves(batch.slice(start, most_rows), most_bytes) for start in starts):
            if portion and (rows + piece.num_rows > most_rows or size + piece.nbytes > most_bytes):
                yield portion
                portion, rows, size = [], 0, 0
            portion.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if portion:
        yield portion


def _halves(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Halve a batch until each piece fits or is one row. Long rows may lie side by side, so the mean length says nothing."""
    if batch.nbytes <= most_bytes or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _halves(batch.slice(0, middle), most_bytes)
    yield from _halves(batch.slice(middle), most_bytes)


def without_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with the default partition in place of null."""
    index = batch.schema.get_field_index("partition")
    if index < 0 or not batch.column(index).null_count:
        return batch
    filled = batch.column(index).fill_null(DEFAULT_PARTITION)
    return batch.set_column(index, "partition", filled)


def encoded(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches as the bytes of one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())
