"""Messages as the lake keeps them, as columns (Arrow): in types that every reader of Parquet knows.

The payload stays the same to the last byte, so that it can be replayed. The column `payload` has it where it is valid UTF-8, as JSON
always is. Other bytes are in `payload_bytes`, since readers refuse invalid text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc

from skep.model import SEALED_KEY, SEALED_TYPE
from skep.spark.schema import HEADERS, INSTANT, MESSAGES, fitted, id_texts

DATA_KEY = "data_key"
"""The column with the id of the key that sealed (encrypted) the payload, and null otherwise."""
KEPT = pa.schema(
    [
        ("generation", pa.int32()),
        ("partition", pa.string()),
        ("seq", pa.int64()),
        ("message_id", pa.string()),
        ("transaction_id", pa.string()),
        ("trace_id", pa.string()),
        ("payload", pa.string()),
        ("payload_bytes", pa.binary()),
        ("headers", HEADERS),
        ("created_at", INSTANT),
        (DATA_KEY, pa.string()),
    ]
)
"""The columns of a file of messages. Queue and date are in its folder's name, or with Iceberg columns of the file, too."""
FOLDERS = pa.schema([("queue", pa.string()), ("date", pa.date32())])
LAKE = pa.schema([*FOLDERS, *KEPT])
"""A message of the lake with all of its columns."""
FIRST = 1
"""The generation of a queue that was never deleted and made anew."""


def lake_rows(messages: pa.RecordBatch, generations: Mapping[str, int]) -> pa.RecordBatch:
    """Messages, as a read of queues has them, as rows of the lake. A queue without a number is of the first generation.

    Where a column `content_type` says that a payload is sealed (encrypted), the row has it sealed.
    """
    rows = {name: messages.column(name) for name in MESSAGES.names}
    text, other, key = _kept(messages)
    made = {
        **rows, "payload": text, "payload_bytes": other, DATA_KEY: key,
        "date": rows["created_at"].cast(INSTANT).cast(pa.date32()), "generation": _numbers(rows["queue"], generations),
    }  # fmt: skip
    return pa.RecordBatch.from_arrays([made[name].cast(LAKE.field(name).type) for name in LAKE.names], schema=LAKE)


def _kept(messages: pa.RecordBatch) -> tuple[pa.StringArray, pa.BinaryArray, pa.StringArray]:
    """The payloads of messages: text, bytes, and the data keys of sealed ones, whose bytes are their envelopes."""
    payload = messages.column("payload")
    no_key = pa.nulls(len(payload), pa.string())
    if "content_type" not in messages.schema.names:
        return *divided(payload), no_key
    is_sealed = pc.fill_null(pc.equal(messages.column("content_type"), SEALED_TYPE), False)
    if not pc.any(is_sealed).as_py():
        return *divided(payload), no_key
    raw = pa.Array.from_buffers(pa.binary(), len(payload), payload.buffers(), payload.null_count, payload.offset)
    envelope = pc.if_else(is_sealed, raw, None)
    text, other = divided(fitted(pc.if_else(is_sealed, None, raw), pa.string()))
    keys = pc.binary_slice(pc.fill_null(envelope, bytes(SEALED_KEY.stop)), SEALED_KEY.start, SEALED_KEY.stop)
    return text, pc.coalesce(other, envelope), pc.if_else(is_sealed, id_texts(keys.cast(pa.binary(16))), None)


def divided(payload: pa.StringArray) -> tuple[pa.StringArray, pa.BinaryArray]:
    """Payloads as two columns: text, or bytes where they are not valid UTF-8."""
    try:
        payload.validate(full=True)
    except pa.ArrowInvalid:
        raw = payload.cast(pa.binary(), safe=False).to_pylist()
        is_text = pa.array([one is not None and _is_text(one) for one in raw])
        text = [one if fits else None for one, fits in zip(raw, is_text.to_pylist(), strict=True)]
        other = [None if fits else one for one, fits in zip(raw, is_text.to_pylist(), strict=True)]
        return pa.array(text, pa.binary()).cast(pa.string()), pa.array(other, pa.binary())
    return payload, pa.nulls(len(payload), pa.binary())


def by_folder(rows: pa.RecordBatch) -> Iterator[tuple[str, date, pa.RecordBatch]]:
    """The rows of each queue and date. Nearly always all rows of a batch belong together."""
    for queue in pc.unique(rows.column("queue")).to_pylist():
        mine = rows if _is_all(rows.column("queue"), queue) else rows.filter(pc.equal(rows.column("queue"), queue))
        for day in pc.unique(mine.column("date")).to_pylist():
            days = mine.column("date")
            yield queue, day, mine if _is_all(days, day) else mine.filter(pc.equal(days, pa.scalar(day)))


def _is_all(column: pa.Array, value: object) -> bool:
    return len(pc.unique(column)) == 1 and column[0].as_py() == value


def _numbers(queues: pa.StringArray, generations: Mapping[str, int]) -> pa.Array:
    coded = queues.dictionary_encode()
    numbers = pa.array([generations.get(queue, FIRST) for queue in coded.dictionary.to_pylist()], pa.int32())
    return numbers.take(coded.indices)


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
