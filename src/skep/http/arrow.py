"""Arrow IPC streams over HTTP. Imported only when a request speaks Arrow, since that needs the extra."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pyarrow as pa

from skep.columns import LOG_SCHEMA, checked
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import parse_id
from skep.model import DEFAULT_PARTITION, NewMessage, QueueKey, Seq
from skep.wire.times import to_instant

CHUNK_ROWS = 10_000
COLUMNS = frozenset({
    "queue", "partition", "payload", "transaction_id", "trace_id", "headers", "content_type", "deliver_at", "priority",
})  # fmt: skip
"""What a pushed stream may have; all but payload are optional."""


def read_stream(body: bytes) -> pa.RecordBatch:
    """The one batch that a stream's batches make together; MALFORMED when it is no sound stream."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            batches = [checked(batch) for batch in reader]
            schema = reader.schema
    except (pa.ArrowInvalid, pa.ArrowKeyError, pa.ArrowNotImplementedError, OSError) as error:
        raise SkepError(Code.MALFORMED, f"the body is no Arrow stream: {error}") from None
    if len(batches) == 1:
        return batches[0]
    whole = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    return whole[0] if whole else pa.RecordBatch.from_pylist([], schema=schema)


async def log_stream(
    engine: Engine, key: QueueKey, first: int, last: int, limit: int, compression: str | None
) -> AsyncIterator[bytes]:
    """A range of the log as a stream, one batch at a time, so that a slow reader holds one in memory."""
    pieces = _Pieces()
    writer = pa.ipc.new_stream(pieces, LOG_SCHEMA, options=pa.ipc.IpcWriteOptions(compression=compression))
    yield pieces.take()
    while first <= last and limit > 0:
        batch = await engine.read_log(key, Seq(first), Seq(last), max_rows=min(limit, CHUNK_ROWS))
        if not batch.num_rows:
            break
        writer.write_batch(batch)
        yield pieces.take()
        limit -= batch.num_rows
        first = batch.column("seq")[-1].as_py() + 1
    writer.close()
    yield pieces.take()


class _Pieces:
    """A file that hands on what was written to it."""

    closed = False

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, data: pa.Buffer | bytes) -> int:
        self._written.append(bytes(data))
        return len(self._written[-1])

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> bytes:
        """What was written since the last time."""
        whole = b"".join(self._written)
        self._written.clear()
        return whole


def messages_of(batch: pa.RecordBatch, queue: str | None, tenant: str) -> list[NewMessage]:
    """The messages of a batch that has more columns than partitions and payloads."""
    unknown = set(batch.schema.names) - COLUMNS
    if unknown:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"there is no column {min(unknown)!r} here; there are {', '.join(sorted(COLUMNS))}",
        )
    if "payload" not in batch.schema.names:
        raise SkepError(Code.INVALID_REQUEST, "a push has a column payload")
    return [_message(row, queue, tenant) for row in batch.to_pylist()]


def _message(row: dict[str, Any], queue: str | None, tenant: str) -> NewMessage:
    name = row.get("queue") or queue
    payload = row["payload"]
    if name is None:
        raise SkepError(Code.INVALID_REQUEST, "name the queue in the query, or in a column queue")
    if payload is None:
        raise SkepError(Code.INVALID_PAYLOAD, "a payload is null")
    headers, trace_id, deliver_at = row.get("headers"), row.get("trace_id"), row.get("deliver_at")
    try:
        return NewMessage(
            QueueKey(name, tenant),
            payload.encode() if isinstance(payload, str) else payload,
            row.get("partition") or DEFAULT_PARTITION,
            row.get("transaction_id"),
            None if trace_id is None else parse_id(trace_id),
            None if headers is None else _headers(headers),
            row.get("content_type"),
            None if deliver_at is None else to_instant(deliver_at),
            row.get("priority") or 0,
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise SkepError(Code.INVALID_REQUEST, f"a row does not fit: {error}") from None


def _headers(value: object) -> bytes:
    """Headers come as a JSON text, or as a map of texts."""
    if isinstance(value, str):
        return value.encode()
    return msgspec.json.encode(dict(value) if isinstance(value, list) else value)
