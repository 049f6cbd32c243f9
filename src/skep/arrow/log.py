"""Messages as Arrow columns: what bulk pushes and reads of the raw log move without a Python object per message.

Needs the extra `arrow`; import it only when columns are asked for. Data from outside is validated in full before it is used:
Arrow trusts offsets, and we do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import DEFAULT_PARTITION, SealedPayloads, Seq

LOG_SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("partition", pa.string(), nullable=False),
        pa.field("message_id", pa.binary(16), nullable=False),
        pa.field("transaction_id", pa.string()),
        pa.field("trace_id", pa.binary(16), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
        pa.field("content_type", pa.string()),
        pa.field("headers", pa.string()),
        pa.field("created_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""The raw log as it is read, without a conversion on the server. Ids are the 16 bytes of a UUID, ``headers`` is the JSON object
as it was pushed."""

POPPED_SCHEMA = pa.schema(
    [
        pa.field("queue", pa.string(), nullable=False),
        *LOG_SCHEMA,
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("group", pa.string(), nullable=False),
        pa.field("attempt", pa.int32(), nullable=False),
        pa.field("lease_id", pa.string(), nullable=False),
        pa.field("lease_deadline", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("dead_letter", pa.string()),
    ]
)
"""The columns of a pop: the messages as the log has them, and the leases that settle them. ``dead_letter`` is a JSON object with the
cause of a dead letter."""

_PLAIN = (
    pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
    pa.types.is_fixed_size_binary, pa.types.is_null,
)  # fmt: skip


class NewRows(Struct, frozen=True):
    """New messages of one queue that have only a partition and a payload. Their ids are consecutive from the first.

    All have the same ``headers``.
    """

    partition: pa.LargeBinaryArray
    payload: pa.LargeBinaryArray
    first_id: Id
    headers: bytes | None = None

    def __len__(self) -> int:
        return len(self.payload)

    def ids(self) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        """The ids as rows of 16 bytes."""
        high, low = (int.from_bytes(half, "big") for half in (self.first_id[:8], self.first_id[8:]))
        pairs = np.empty((len(self), 2), ">u8")
        pairs[:, 0] = high
        pairs[:, 1] = np.arange(len(self), dtype=np.uint64) + np.uint64(low)
        return pairs.view(np.uint8).reshape(-1, 16)


class LogRange(Struct, frozen=True, kw_only=True):
    """The part of a log to read: seqs (both ends included), columns and partitions; None means all."""

    first: Seq
    last: Seq
    max_rows: int
    max_bytes: int
    columns: tuple[str, ...] | None = None
    partitions: tuple[str, ...] | None = None
    sealed: SealedPayloads = "open"

    @property
    def schema(self) -> pa.Schema:
        """The columns that are read, in the order of the request."""
        return LOG_SCHEMA if self.columns is None else pa.schema([LOG_SCHEMA.field(name) for name in self.columns])


class LogIds(Struct, frozen=True):
    """The ids of wanted messages; None means all."""

    transaction_ids: tuple[str, ...] | None = None
    trace_ids: tuple[bytes, ...] | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that tell which messages are wanted."""
        named = {"transaction_id": self.transaction_ids, "trace_id": self.trace_ids}
        return tuple(name for name, wanted in named.items() if wanted is not None)

    def among(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which messages of a batch with these columns are wanted."""
        masks = [
            pc.is_in(batch.column(name), value_set=pa.array(wanted, batch.schema.field(name).type))
            for name, wanted in (("transaction_id", self.transaction_ids), ("trace_id", self.trace_ids))
            if wanted is not None
        ]
        return masks[0] if len(masks) == 1 else pc.and_(*masks)


class LogPiece(Struct, frozen=True):
    """One piece of a range, as much as fits. The range is covered up to ``through``; the next piece begins after it."""

    batch: pa.RecordBatch
    through: Seq


def checked(batch: pa.RecordBatch, most_bytes: int) -> pa.RecordBatch:
    """The batch, if it is sound to its last offset and byte; MALFORMED otherwise.

    The full check reads a value as often as views name it. So the total size is checked first.
    """
    try:
        batch.validate()
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            if is_view(column.type):
                check_size(_viewed_bytes(column), name, most_bytes)
        batch.validate(full=True)
    except (pa.ArrowInvalid, ValueError) as error:
        raise SkepError(Code.MALFORMED, f"the Arrow data is damaged: {error}") from None
    return batch


def check_names(schema: pa.Schema, known: frozenset[str]) -> None:
    """Refuse unknown and repeated columns: they would silently have no effect."""
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


def check_columns(names: Sequence[str]) -> None:
    """Refuse names that are no columns of the log, and repeated ones."""
    if unknown := set(names) - set(LOG_SCHEMA.names):
        known = ", ".join(LOG_SCHEMA.names)
        raise SkepError(Code.INVALID_REQUEST, f"the log has no column {min(unknown)[:100]!r}; it has {known}")
    if not names or len(names) > len(set(names)):
        raise SkepError(Code.INVALID_REQUEST, "name at least one column, and each once")


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
    """A column of texts or bytes without a dictionary.

    A dictionary or views may name one long value very often, so the total size is checked first.
    """
    if is_plain(column.type):
        return column
    if pa.types.is_dictionary(column.type) and is_plain(column.type.value_type):
        sizes = pc.binary_length(column.dictionary.cast(pa.large_binary())).take(column.indices)
        total = pc.sum(sizes).as_py() or 0
    elif is_view(column.type):
        total = _viewed_bytes(column)
    else:
        raise SkepError(Code.INVALID_REQUEST, f"the column {name} holds texts or bytes, not {column.type}")
    check_size(total, name, most_bytes)
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of this type stores texts or bytes one after the other."""
    return any(is_such(kind) for is_such in _PLAIN)


def is_view(kind: pa.DataType) -> bool:
    """Whether a column of this type is a view of texts or bytes that are stored elsewhere."""
    return bool(pa.types.is_string_view(kind) or pa.types.is_binary_view(kind))


def check_size(total: int, name: str, most_bytes: int) -> None:
    """Refuse a column that is too large."""
    if total > most_bytes:
        raise SkepError(Code.PAYLOAD_TOO_LARGE, f"the column {name} has at most {most_bytes} bytes", bytes=total)


def _viewed_bytes(column: pa.Array) -> int:
    """The total bytes of all views; each view begins with its length."""
    end = column.offset + len(column)
    # The buffer may have any number of further bytes.
    views = np.frombuffer(column.buffers()[1], np.int32, 4 * end).reshape(-1, 4)[column.offset :]
    return int(views[column.is_valid().to_numpy(zero_copy_only=False), 0].sum(dtype=np.int64))


def default_partitions(count: int) -> pa.LargeBinaryArray:
    """A column with the default partition in each row."""
    return pa.repeat(pa.scalar(DEFAULT_PARTITION.encode(), pa.large_binary()), count)


def lengths(column: pa.LargeBinaryArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The length of each value in bytes; -1 for a null."""
    sizes = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(sizes.to_numpy(zero_copy_only=False), np.int64)


def fixed(rows: np.ndarray[tuple[int, int], np.dtype[np.uint8]]) -> pa.LargeBinaryArray:
    """Rows of equal length as a column of bytes."""
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def joined(*columns: pa.LargeBinaryArray) -> tuple[pa.Buffer, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """One buffer with the values of all rows, row by row, and the offsets at which rows begin (and the last ends)."""
    whole = pc.binary_join_element_wise(*columns, pa.scalar(b"", pa.large_binary()))
    _, offsets, data = whole.buffers()
    return data, np.frombuffer(offsets, np.int64, len(whole) + 1, 8 * whole.offset)


def ids_of(data: bytes) -> pa.FixedSizeBinaryArray:
    """Ids of 16 bytes, one after the other, as a column."""
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(data) // 16, [None, pa.py_buffer(data)])


def times_of(micros: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.TimestampArray:
    """Instants as a column."""
    return pa.array(micros).cast(LOG_SCHEMA.field("created_at").type)


def column_of(kind: pa.DataType, sizes: np.ndarray[tuple[int], np.dtype[np.int64]], data: bytes) -> pa.Array:
    """A column of texts or bytes from lengths (-1 for null) and the values one after the other."""
    present = sizes >= 0
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), out=offsets[1:])
    validity = None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(sizes), [validity, pa.py_buffer(offsets), pa.py_buffer(data)])


def slices(column: pa.LargeBinaryArray) -> Iterator[memoryview]:
    """Each value as a view of the bytes."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset).tolist()
    view = memoryview(data if data is not None else b"")
    start = ends[0]
    for end in ends[1:]:
        yield view[start:end]
        start = end
