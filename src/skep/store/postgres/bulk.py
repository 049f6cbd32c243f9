"""Pushing in bulk: batches of columns as one COPY stream.

Arrow joins the parts of every row into PostgreSQL's binary COPY format (see `copying`); no Python runs per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import pyarrow as pa

from skep.arrow.log import NewRows, fixed, joined, lengths
from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import Appended, QueueKey, Seq
from skep.model.operation import operations_ahead
from skep.model.queue import no_queue
from skep.store.postgres.connection import Connection
from skep.store.postgres.copy_format import MESSAGE_COLUMNS, append_stream
from skep.store.postgres.push import OpenLog, depth_of, is_late, live_operations, open_or_make_logs
from skep.store.rules import not_encrypted_reason, queue_full_reason

PIECE_BYTES = 256 * 1024
_NULL = b"\xff\xff\xff\xff"
_BIG = ">i4"


async def append(
    connection: Connection, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True
) -> tuple[Appended, list[int]]:
    """Append a batch, whole or not at all; also returns the queue's id when other servers watch it."""
    log = (await open_or_make_logs(connection, [key], now, create_queue)).get(key)
    if log is None:
        raise no_queue(key.name)
    count = len(rows)
    if log.encrypted:
        raise SkepError(Code.NOT_ENCRYPTED, not_encrypted_reason(key.name), queue=key.name)
    if log.max_depth and log.depth + count > log.max_depth:
        raise SkepError(
            Code.QUEUE_FULL,
            queue_full_reason(key.name, log.depth, log.max_depth, count),
            queue=key.name,
        )
    if log.operations and await live_operations(connection, _places(key, rows, log)):
        raise operations_ahead()
    stream = await asyncio.to_thread(encode, rows, log)
    await append_stream(connection, _pieces(stream))
    first, log.last_seq, log.depth = log.last_seq + 1, log.last_seq + count, log.depth + count
    return Appended(Seq(first), Seq(log.last_seq), depth_of(log)), [log.queue_id] if log.watched else []


def _places(key: QueueKey, rows: NewRows, log: OpenLog) -> list[tuple[QueueKey, str]]:
    if log.only_partition is not None:
        return [(key, log.only_partition)]
    return [(key, partition.decode()) for partition in rows.partition.unique().to_pylist()]


def encode(rows: NewRows, log: OpenLog) -> pa.Buffer:
    """The rows of a COPY stream."""
    count = len(rows)
    ids = rows.ids()
    partition = rows.partition
    if log.only_partition is not None:
        partition = pa.repeat(pa.scalar(log.only_partition.encode(), pa.large_binary()), count)
    head = np.zeros(count, [("fields", ">i2"), ("a", _BIG), ("seq", ">i8"), ("b", _BIG), ("at", ">i8"), ("c", _BIG)])
    head["fields"], head["a"], head["b"], head["c"] = len(MESSAGE_COLUMNS), 8, 8, 16
    head["seq"] = np.arange(log.last_seq + 1, log.last_seq + 1 + count)
    head["at"] = log.created_at
    # A message whose id does not tell when it was stored has its trace id stored, or nobody would find it by that.
    traced = is_late(Id(ids[0].tobytes()), log.created_at)
    middle = np.zeros(count, [("queue", "V8"), ("audience", "V4"), ("priority", "V8"), ("partition", _BIG)])
    middle["queue"] = np.array((4, log.queue_id), _BIG).tobytes()
    middle["audience"], middle["priority"] = _NULL, np.array((4, 0), _BIG).tobytes()
    middle["partition"] = lengths(partition)
    # No transaction id and no content type, and the same headers for all.
    given = _NULL if rows.headers is None else np.array(len(rows.headers), _BIG).tobytes() + rows.headers
    tail = np.zeros(count, [("none", "V8"), ("headers", f"V{len(given)}"), ("payload", _BIG)])
    tail["none"], tail["headers"], tail["payload"] = 2 * _NULL, given, lengths(rows.payload)
    trace = np.empty((count, 20 if traced else 4), np.uint8)
    trace[:, :4] = np.frombuffer(np.array([16 if traced else -1], _BIG).tobytes(), np.uint8)
    if traced:
        trace[:, 4:] = ids
    data, _ = joined(fixed(_bytes(head)), fixed(ids), fixed(trace), fixed(_bytes(middle)), partition,
                     fixed(_bytes(tail)), rows.payload)  # fmt: skip
    return data


def _bytes(rows: np.ndarray[tuple[int], np.dtype[np.void]]) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    return rows.view(np.uint8).reshape(len(rows), -1)


async def _pieces(stream: pa.Buffer) -> AsyncIterator[bytes]:
    view = memoryview(stream)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])
