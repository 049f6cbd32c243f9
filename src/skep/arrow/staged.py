"""Staged messages as bytes: an Arrow stream, compressed where that helps. A store keeps it whole and reads it back once.

Messages of one queue that have only a partition and a payload stay columns from end to end (plain); others carry every field (rich).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from skep.arrow.log import NewRows
from skep.ids import Id, ids_from
from skep.model import NewMessage, PushBatch, QueueKey

CODEC = "lz4"
"""The fastest codec: a chunk is written once and read once."""
SAMPLES, SAMPLE_BYTES = 4, 16 * 1024
WORTH_IT = 0.8
_QUEUE = b"queue"
_HEADERS = b"headers"
_AUDIENCE = b"audience"
_RICH = pa.schema(
    [
        pa.field("queue", pa.string()),
        pa.field("payload", pa.large_binary()),
        pa.field("partition", pa.string()),
        pa.field("transaction_id", pa.string()),
        pa.field("trace_id", pa.binary()),
        pa.field("headers", pa.binary()),
        pa.field("content_type", pa.string()),
        pa.field("deliver_at", pa.int64()),
        pa.field("priority", pa.int64()),
    ]
)


def plain_chunk(
    queue: str, partition: pa.LargeBinaryArray, payload: pa.LargeBinaryArray, headers: bytes | None = None
) -> bytes:
    """A chunk of partitions and payloads of one queue, with the headers that all of them share."""
    about = {_QUEUE: queue.encode()} if headers is None else {_QUEUE: queue.encode(), _HEADERS: headers}
    schema = pa.schema([pa.field("partition", pa.large_binary()), pa.field("payload", pa.large_binary())], about)
    return _written(pa.record_batch([partition, payload], schema=schema))


def rich_chunk(messages: Sequence[NewMessage], audience: str | None = None) -> bytes:
    """A chunk of messages with all their fields, for all groups or for one."""
    columns = [
        [m.queue.name for m in messages], [m.payload for m in messages], [m.partition for m in messages],
        [m.transaction_id for m in messages], [m.trace_id for m in messages], [m.headers for m in messages],
        [m.content_type for m in messages], [m.deliver_at for m in messages], [m.priority for m in messages],
    ]  # fmt: skip
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _RICH, strict=True)]
    schema = _RICH if audience is None else _RICH.with_metadata({_AUDIENCE: audience.encode()})
    return _written(pa.record_batch(arrays, schema=schema))


def _written(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=CODEC if _shrinks(batch) else None)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return] # pyarrow is untyped


def _shrinks(batch: pa.RecordBatch) -> bool:
    """Whether compression makes messages much shorter, by a sample of their payloads. Compressing all of them in vain would take longer
    than all the rest of staging.
    """
    payload = batch.column("payload")
    _, offsets, data = payload.buffers()
    if data is None or not len(payload):
        return False
    first, last = np.frombuffer(offsets, np.int64, len(payload) + 1, 8 * payload.offset)[[0, -1]].tolist()
    if last - first < batch.nbytes // 2:
        return True  # most of it is not payload, but texts that are much alike as a rule
    step = max((last - first) // SAMPLES, SAMPLE_BYTES)
    sample = b"".join(data[start : min(start + SAMPLE_BYTES, last)] for start in range(first, last, step))
    return len(pa.compress(sample, codec=CODEC, asbytes=True)) < WORTH_IT * len(sample)


class Unpacked:
    """A chunk read back: columns of one queue, or messages."""

    def __init__(self, data: bytes, tenant: str) -> None:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            self._batch = reader.read_next_batch()
        self._tenant = tenant
        about = self._batch.schema.metadata or {}
        named = about.get(_QUEUE)
        self._headers: bytes | None = about.get(_HEADERS)
        self.queue = None if named is None else QueueKey(named.decode(), tenant)
        """The queue of a plain chunk; None for a rich one."""
        group = about.get(_AUDIENCE)
        self._audience = None if group is None else group.decode()

    def rows(self, first_id: Id) -> NewRows:
        """The columns of a plain chunk, with ids from this one on."""
        return NewRows(self._batch.column("partition"), self._batch.column("payload"), first_id, self._headers)

    def batch(self, first_id: Id) -> PushBatch:
        """The messages of a rich chunk, with ids from this one on."""
        keys = {name: QueueKey(name, self._tenant) for name in self._batch.column("queue").unique().to_pylist()}
        columns = [column.to_pylist() for column in self._batch.columns]
        messages = [NewMessage(keys[name], *rest) for name, *rest in zip(*columns, strict=True)]
        return PushBatch(messages, ids_from(first_id, len(messages)), audience=self._audience)
