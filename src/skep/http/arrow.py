"""Arrow IPC streams over HTTP. Imported only when a request speaks Arrow, since that needs the extra."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from skep.arrow.log import LOG_SCHEMA, POPPED_SCHEMA, LogIds, check_names, checked, is_plain, written_out
from skep.engine import Engine
from skep.engine.decryption import LogRow
from skep.errors import Code, SkepError
from skep.http.pieces import Data, Piece, Pieces
from skep.http.pushing import parse_trace_id, trace_id_in
from skep.http.unpacking import unpacked_bytes
from skep.http.views import dead_letter_story
from skep.model import DEFAULT_PARTITION, LOG_CHUNK, SEALED_TYPE, Delivery, NewMessage, QueueKey, SealedPayloads, Seq
from skep.wire.traceparent import with_context

BATCHES = 10_000
"""The largest number of batches in one pushed stream. Even an empty batch takes memory."""
COLUMNS = frozenset({
    "queue", "partition", "payload", "transaction_id", "trace_id", "headers", "content_type", "deliver_at", "priority",
})  # fmt: skip
"""The columns that a pushed stream may have. All but payload are optional."""

COPIED = frozenset({"partition", "message_id", "trace_id", "payload"})
"""The columns of a stream of sealed messages that are to be opened. Ids are the text of a UUID."""


def read_stream(body: bytes, most_bytes: int, columns: frozenset[str] = COLUMNS) -> pa.RecordBatch:
    """All batches of a stream as one batch; MALFORMED when the stream is not valid."""
    try:
        if sum(unpacked_bytes(body)) > most_bytes:
            raise SkepError(Code.PAYLOAD_TOO_LARGE, f"a stream has at most {most_bytes} bytes when it is unpacked")
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            schema = reader.schema
            check_names(schema, columns)
            batches = [checked(batch, most_bytes) for batch in islice(reader, BATCHES + 1)]
    except (pa.ArrowException, struct.error, OSError) as error:
        raise SkepError(Code.MALFORMED, f"the body is no Arrow stream: {error}") from None
    if len(batches) > BATCHES:
        raise SkepError(Code.INVALID_REQUEST, f"a stream has at most {BATCHES} batches")
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=schema)


class LogWish(Struct, frozen=True):
    """The wanted range and columns of a stream of the log."""

    first: int
    last: int
    limit: int
    columns: Sequence[str] | None = None
    partitions: Sequence[str] | None = None
    ids: LogIds | None = None
    compression: str | None = None
    sealed: SealedPayloads = "open"


async def log_stream(engine: Engine, key: QueueKey, wish: LogWish) -> Pieces:
    """A range of the log as a stream, batch by batch. At most one batch is read ahead while another is sent."""
    schema = LOG_SCHEMA if wish.columns is None else pa.schema([LOG_SCHEMA.field(name) for name in wish.columns])
    encoder = StreamEncoder(schema, wish.compression)
    yield [encoder.head]
    left = wish.limit
    reading = asyncio.ensure_future(_encoded(engine, key, wish, wish.first, left, encoder))
    try:
        while (part := await reading) is not None:
            left -= part.rows
            reading = asyncio.ensure_future(_encoded(engine, key, wish, part.through + 1, left, encoder))
            yield part.data  # also nothing: between two pieces it is seen that the client has gone
        yield [encoder.end]
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


class _ArrowPart(NamedTuple):
    data: Piece
    rows: int
    through: int


async def _encoded(
    engine: Engine, key: QueueKey, wish: LogWish, first: int, left: int, encoder: StreamEncoder
) -> _ArrowPart | None:
    """The next part, or None after the last."""
    if first > wish.last or left <= 0:
        return None
    piece = await engine.log.read(
        key,
        Seq(first),
        Seq(wish.last),
        max_rows=min(left, LOG_CHUNK),
        columns=wish.columns,
        partitions=wish.partitions,
        ids=wish.ids,
        sealed=wish.sealed,
    )
    rows = piece.batch.num_rows
    if not rows:
        return _ArrowPart((), 0, piece.through)
    # Without compression nothing is copied, so no other thread is needed.
    data = (
        encoder.encoded(piece.batch)
        if wish.compression is None
        else await asyncio.to_thread(encoder.encoded, piece.batch)
    )
    return _ArrowPart(data, rows, piece.through)


def copies_in(body: bytes, most_bytes: int, queue: QueueKey) -> list[LogRow]:
    """The sealed messages of a stream, which somebody copied out of a log."""
    batch = read_stream(body, most_bytes, COPIED)
    if missing := COPIED - set(batch.schema.names):
        raise SkepError(Code.INVALID_REQUEST, f"the column {min(missing)} is missing")
    columns = [
        _values(name, batch.column(name), most_bytes) for name in ("partition", "message_id", "trace_id", "payload")
    ]
    if any(None in column for column in columns):
        raise SkepError(Code.INVALID_REQUEST, "a value of a sealed message is null")
    return [
        LogRow(queue, Seq(0), partition, parse_trace_id(id_), parse_trace_id(trace_id), SEALED_TYPE, payload)
        for partition, id_, trace_id, payload in zip(*columns, strict=True)
    ]


def payloads_stream(payloads: Sequence[bytes | None]) -> bytes:
    """Payloads as a stream of one column."""
    column = pa.array(payloads, pa.large_binary())
    return _whole_stream(pa.RecordBatch.from_arrays([column], ["payload"]))


def popped_stream(deliveries: Sequence[Delivery], leases: Sequence[str]) -> bytes:
    """Deliveries, and the lease id of each, as a stream."""
    columns: tuple[list[Any], ...] = (
        [d.queue.name for d in deliveries],
        [d.seq for d in deliveries],
        [d.partition for d in deliveries],
        [bytes(d.id) for d in deliveries],
        [d.transaction_id for d in deliveries],
        [bytes(d.trace_id) for d in deliveries],
        [d.payload for d in deliveries],
        [d.content_type for d in deliveries],
        [None if d.headers is None else d.headers.decode() for d in deliveries],
        [d.created_at for d in deliveries],
        [d.priority for d in deliveries],
        [d.group for d in deliveries],
        [d.attempt for d in deliveries],
        list(leases),
        [d.lease_deadline for d in deliveries],
        [
            None if d.dead_letter is None else msgspec.json.encode(dead_letter_story(d.dead_letter)).decode()
            for d in deliveries
        ],
    )
    arrays = [pa.array(values, field.type) for values, field in zip(columns, POPPED_SCHEMA, strict=True)]
    return _whole_stream(pa.RecordBatch.from_arrays(arrays, schema=POPPED_SCHEMA))


def _whole_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


class StreamEncoder:
    """An Arrow stream in parts: its head, any number of batches, its end."""

    end = b"\xff\xff\xff\xff\0\0\0\0"

    def __init__(self, schema: pa.Schema, compression: str | None = None) -> None:
        self.head = schema.serialize().to_pybytes()
        self._sink = _Sink(len(self.head))
        self._writer = pa.ipc.new_stream(
            pa.PythonFile(self._sink, mode="w"), schema, options=pa.ipc.IpcWriteOptions(compression=compression)
        )

    def encoded(self, batch: pa.RecordBatch) -> list[Data]:
        """A batch as it stands in the stream. Its columns are not copied, unless they are compressed."""
        self._writer.write_batch(batch)
        return self._sink.taken()


class _Sink:
    """The file that a stream is written to: it keeps what it is given after the head, which comes with the first batch."""

    closed = False

    def __init__(self, head_bytes: int) -> None:
        self._skipped = head_bytes
        self._written: list[Data] = []

    def write(self, data: bytes | pa.Buffer) -> int:
        if self._skipped:
            self._skipped -= len(data)
        else:
            self._written.append(data if isinstance(data, bytes) else memoryview(data))
        return len(data)

    def flush(self) -> None:
        pass

    def taken(self) -> list[Data]:
        """What was written since the last call."""
        written, self._written = self._written, []
        return written


def messages_of(batch: pa.RecordBatch, queue: str | None, tenant: str, most_bytes: int) -> list[NewMessage]:
    """The messages of a batch that has more columns than partitions and payloads; a null means that the field is missing."""
    if "payload" not in batch.schema.names:
        raise SkepError(Code.INVALID_REQUEST, "a push has a column payload")
    columns = {name: _values(name, batch.column(name), most_bytes) for name in batch.schema.names}
    rows = (dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True))
    return [_message(row, queue, tenant) for row in rows]


def _values(name: str, column: pa.Array, most_bytes: int) -> list[Any]:
    """A column as Python's values: bytes, whole numbers, lists of pairs, or texts."""
    try:
        if name == "payload":
            column = written_out(column, name, most_bytes).cast(pa.large_binary())
        elif name == "priority":
            column = _numbers(column)
        elif name == "deliver_at":
            column = _instants(column)
        elif name == "headers" and pa.types.is_map(column.type):
            column = _pairs(column)
        else:
            column = written_out(column, name, most_bytes).cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as error:  # a zone may be any bytes
        raise SkepError(Code.INVALID_REQUEST, f"the column {name} does not fit: {error}") from None
    values: list[Any] = column.to_pylist()
    return values


def _numbers(column: pa.Array) -> pa.Array:
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise SkepError(Code.INVALID_REQUEST, f"the column priority holds whole numbers, not {column.type}")
    return column.cast(pa.int64())


def _instants(column: pa.Array) -> pa.Array:
    """Times as microseconds. They stay numbers, since Arrow has times that Python's datetime has not."""
    if pa.types.is_null(column.type):
        return column
    if not pa.types.is_timestamp(column.type) or column.type.tz is None:
        raise SkepError(Code.INVALID_TIME, f"the column deliver_at holds timestamps with a zone, not {column.type}")
    micros = pc.CastOptions(pa.timestamp("us", column.type.tz), allow_time_truncate=True)
    return column.cast(options=micros).cast(pa.int64())


def _pairs(column: pa.Array) -> pa.Array:
    if not (is_plain(column.type.key_type) and is_plain(column.type.item_type)):
        raise SkepError(Code.INVALID_REQUEST, f"the column headers holds JSON or maps of texts, not {column.type}")
    return column.cast(pa.map_(pa.string(), pa.string()))


def _message(row: dict[str, Any], queue: str | None, tenant: str) -> NewMessage:
    name, payload, partition = row.get("queue"), row["payload"], row.get("partition")
    if name is None:
        name = queue
    if name is None:
        raise SkepError(Code.INVALID_REQUEST, "name the queue in the query, or in a column queue")
    if payload is None:
        raise SkepError(Code.INVALID_PAYLOAD, "a payload is null")
    trace_id = row.get("trace_id")
    headers = None if row.get("headers") is None else with_context(_headers(row["headers"]), None)
    return NewMessage(
        QueueKey(name, tenant),
        payload,
        DEFAULT_PARTITION if partition is None else partition,
        row.get("transaction_id"),
        trace_id_in(headers) if trace_id is None else parse_trace_id(trace_id),
        headers,
        row.get("content_type"),
        row.get("deliver_at"),
        row.get("priority") or 0,
    )


def _headers(value: str | list[tuple[str, str | None]]) -> bytes:
    """Headers come as a JSON text, or as a map of texts."""
    return value.encode() if isinstance(value, str) else msgspec.json.encode(dict(value))
