"""Messages as Arrow columns: what bulk pushes and reads of the raw log move without a Python object per message.

Needs the extra `arrow`; whoever imports this does so only when columns are asked for. What came from outside is validated in
full before it is used: Arrow trusts offsets, and we do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.model import DEFAULT_PARTITION

LOG_SCHEMA = pa.schema(
    [
        pa.field("queue", pa.string(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("message_id", pa.string(), nullable=False),
        pa.field("transaction_id", pa.string()),
        pa.field("trace_id", pa.string(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("headers", pa.string()),
        pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""The raw log as it is read; ``headers`` is the JSON object they were pushed as."""

_PLAIN = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    pa.types.is_fixed_size_binary, pa.types.is_null,
)  # fmt: skip
_HEX = np.frombuffer(b"".join(b"%02x" % value for value in range(256)), np.uint8).reshape(256, 2)
_DASHES = (8, 13, 18, 23)
_HEX_PLACES = np.array([place for place in range(36) if place not in _DASHES])


class NewRows(Struct, frozen=True):
    """Messages of one queue with nothing but a partition and a payload, and the ids they get: consecutive from the first."""

    partition: pa.LargeBinaryArray
    payload: pa.LargeBinaryArray
    first_id: int

    def __len__(self) -> int:
        return len(self.payload)

    def ids(self) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        """The ids as rows of 16 bytes."""
        high, low = self.first_id >> 64, self.first_id & (2**64 - 1)
        pairs = np.empty((len(self), 2), ">u8")
        pairs[:, 0] = high
        pairs[:, 1] = np.arange(len(self), dtype=np.uint64) + np.uint64(low)
        return pairs.view(np.uint8).reshape(-1, 16)


def checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch, if it is sound to its last offset and byte; MALFORMED otherwise."""
    try:
        batch.validate(full=True)
    except (pa.ArrowInvalid, ValueError) as error:
        raise SkepError(Code.MALFORMED, f"the Arrow data is damaged: {error}") from None
    return batch


def check_names(schema: pa.Schema, known: frozenset[str]) -> None:
    """Refuse a column that is not known, and one that is there twice: either would silently have no effect."""
    try:
        names = schema.names
    except UnicodeDecodeError:
        raise SkepError(Code.MALFORMED, "the name of a column is not UTF-8") from None
    if unknown := set(names) - known:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"there is no column {min(unknown)[:100]!r} here; there are {', '.join(sorted(known))}",
        )
    if len(names) > len(set(names)):
        raise SkepError(Code.INVALID_REQUEST, "a column is there twice")


def bytes_column(batch: pa.RecordBatch, name: str, most_bytes: int) -> pa.LargeBinaryArray | None:
    """A column of texts or bytes as bytes without nulls, or None when the batch lacks it."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        return None
    column = written_out(batch.column(index), name, most_bytes).cast(pa.large_binary())
    if column.null_count:
        raise SkepError(Code.INVALID_REQUEST, f"the column {name} has nulls")
    return column


def written_out(column: pa.Array, name: str, most_bytes: int) -> pa.Array:
    """A column of texts or bytes with each value in its place.

    A dictionary or views may name one long value very often, so how much that makes is seen before it is made.
    """
    if is_plain(column.type):
        return column
    if pa.types.is_dictionary(column.type) and is_plain(column.type.value_type):
        sizes = pc.binary_length(column.dictionary.cast(pa.large_binary())).take(column.indices)
        total = pc.sum(sizes).as_py() or 0
    elif pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        total = _viewed_bytes(column)
    else:
        raise SkepError(Code.INVALID_REQUEST, f"the column {name} holds texts or bytes, not {column.type}")
    if total > most_bytes:
        raise SkepError(Code.PAYLOAD_TOO_LARGE, f"the column {name} has at most {most_bytes} bytes", bytes=total)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of this type holds texts or bytes, one after the other."""
    return any(is_such(kind) for is_such in _PLAIN)


def _viewed_bytes(column: pa.Array) -> int:
    """How many bytes views name together; each begins with how many it names."""
    end = column.offset + len(column)
    # The buffer itself may be longer, by any number of bytes.
    views = np.frombuffer(column.buffers()[1], np.int32, 4 * end).reshape(-1, 4)[column.offset :]
    return int(views[column.is_valid().to_numpy(zero_copy_only=False), 0].sum(dtype=np.int64))


def default_partitions(count: int) -> pa.LargeBinaryArray:
    """The default partition, so often."""
    return pa.repeat(pa.scalar(DEFAULT_PARTITION.encode(), pa.large_binary()), count)


def lengths(column: pa.LargeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """How many bytes each value has; -1 for a null."""
    sizes = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64)


def fixed(rows: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.LargeBinaryArray:
    """Rows of the same number of bytes as a column."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def joined(*columns: pa.LargeBinaryArray) -> tuple[pa.Buffer, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """The values of each row one after the other, all rows in one buffer, and where each row begins (and the last ends)."""
    whole = pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))
    _, offsets, data = whole.buffers()
    return data, np.frombuffer(offsets, np.int64, len(whole) + 1, 8 * whole.offset)


def uuid_texts(ids: bytes) -> pa.StringArray:
    """Ids of 16 bytes in their usual written form."""
    raw = np.frombuffer(ids, np.uint8).reshape(-1, 16)
    texts = np.empty((len(raw), 36), np.uint8)
    texts[:, _DASHES] = ord("-")
    texts[:, _HEX_PLACES] = _HEX[raw].reshape(-1, 32)
    offsets = np.arange(len(raw) + 1, dtype=np.int32) * 36
    return pa.StringArray.from_buffers(len(raw), pa.py_buffer(offsets), pa.py_buffer(texts))


def column_of(kind: pa.DataType, sizes: bytes, data: bytes) -> pa.Array:
    """A column of texts or bytes from big-endian lengths (-1 for null) and the values one after the other."""
    found = np.frombuffer(sizes, ">i4").astype(np.int32)
    present = found >= 0
    offsets = np.zeros(len(found) + 1, np.int32)
    np.cumsum(np.maximum(found, 0), out=offsets[1:])
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(found), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def slices(column: pa.LargeBinaryArray) -> Iterator[memoryview]:
    """Each value as a view of the bytes."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset).tolist()
    view = memoryview(data if data is not None else b"")
    start = ends[0]
    for end in ends[1:]:
        yield view[start:end]
        start = end
