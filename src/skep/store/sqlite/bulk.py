"""Bulk pushes: batches of columns.

SQLite gets a batch as one blob (id, partition and payload of each row, one after the other) and an array with the place and the
lengths of each row. One statement cuts the rows out. No Python runs per message.
"""

from __future__ import annotations

import apsw
import numpy as np
import pyarrow as pa
from msgspec import Struct

from skep.arrow.log import NewRows, fixed, joined, lengths
from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import Appended, QueueKey, QueueSettings, Seq
from skep.store.rules import not_encrypted_reason, queue_full_reason
from skep.store.sqlite import order
from skep.store.sqlite.push import advance, depth_of, ids_are_near, next_place
from skep.store.sqlite.queues import make_queue
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "bulk")

# A row's place in 63 bits: where it begins, the length of its partition, the length of its payload.
_START_BITS, _PARTITION_BITS, _PAYLOAD_BITS = 28, 11, 24
MAX_BYTES = (1 << _START_BITS) - 1
_MAX_PAYLOAD = (1 << _PAYLOAD_BITS) - 1


class Packed(Struct, frozen=True):
    """A batch in the form that SQLite gets."""

    count: int
    first_id: Id
    last_id: Id
    partitions: pa.Array
    blob: pa.Buffer
    places: np.ndarray[tuple[int], np.dtype[np.int64]]
    headers: bytes | None = None


def pack(rows: NewRows) -> Packed:
    """Pack a batch into one blob. This runs outside the writer's thread."""
    ids = rows.ids()
    blob, starts = joined(fixed(ids), rows.partition, rows.payload)
    partition_bytes, payload_bytes = lengths(rows.partition), lengths(rows.payload)
    if starts[-1] > MAX_BYTES or payload_bytes.max() > _MAX_PAYLOAD:
        raise SkepError(Code.PAYLOAD_TOO_LARGE, f"a batch has at most {MAX_BYTES} bytes, a payload {_MAX_PAYLOAD}")
    places = starts[:-1] << (_PARTITION_BITS + _PAYLOAD_BITS) | partition_bytes << _PAYLOAD_BITS | payload_bytes
    return Packed(len(rows), Id(ids[0].tobytes()), Id(ids[-1].tobytes()), rows.partition, blob, places, rows.headers)


def append(session: Session, key: QueueKey, packed: Packed, now: Instant, create_queue: bool) -> Appended:
    """Append a batch, whole or not at all."""
    queue = session.find_queue(key) if create_queue else session.queue(key)
    if queue is None:
        queue = make_queue(session, key, QueueSettings(), now)
    if queue.settings.encryption_enabled:
        raise SkepError(Code.NOT_ENCRYPTED, not_encrypted_reason(key.name), queue=key.name)
    limit = queue.settings.max_depth
    if limit and (depth := session.depth(queue)) + packed.count > limit:
        raise SkepError(Code.QUEUE_FULL, queue_full_reason(key.name, depth, limit, packed.count), queue=key.name)
    if session.has_operations():
        order.check(session, {(key, partition.decode()) for partition in packed.partitions.unique().to_pylist()})
    at, first = next_place(queue, now)
    traced = not ids_are_near((packed.first_id, packed.last_id), at)
    rows = (packed.blob, apsw.carray(packed.places), queue.only_partition, traced, packed.headers)
    session.db.execute(SQL["append_packed"], (queue.base + first - 1, queue.id, at, *rows))
    advance(queue, packed.count, at)
    return Appended(Seq(first), Seq(queue.last_seq), depth_of(session, queue))
