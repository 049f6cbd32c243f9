"""Pushing columns: what may enter, checked in bulk.

A batch of nothing but partitions and payloads goes to the store as columns. The checks are those of a single push, done over
whole columns where that is possible; payloads are read once each to see that they are JSON, without keeping anything of them.
"""

from __future__ import annotations

import asyncio

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from skep.arrow.log import bytes_column, check_names, checked, default_partitions, lengths, slices
from skep.config import Limits
from skep.engine.declared import Declared
from skep.errors import Code, SkepError
from skep.model import Appended, NewMessage, PushOutcome, QueueKey, Seq
from skep.model.operation import operations_ahead

PLAIN_COLUMNS = frozenset({"partition", "payload"})
_json = msgspec.json.Decoder(msgspec.Raw).decode


async def checked_columns(
    key: QueueKey, batch: pa.RecordBatch, limits: Limits, declared: Declared | None
) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Partitions and payloads of a batch that may be pushed, partitions as the spec names them; raises when one may not."""
    partition, payload = await asyncio.to_thread(lambda: check_columns(checked(batch, limits.bulk_bytes), limits))
    if declared is not None and declared.looks_at(key):
        partition = await _fitted_partitions(declared, key, partition, payload)
    return partition, payload


def check_columns(batch: pa.RecordBatch, limits: Limits) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """Partitions and payloads of a sound batch that may be pushed; raises for the first thing that may not."""
    if not 1 <= batch.num_rows <= limits.bulk_messages:
        raise SkepError(Code.INVALID_REQUEST, f"a bulk push has 1 to {limits.bulk_messages} messages")
    check_names(batch.schema, PLAIN_COLUMNS)
    payload = bytes_column(batch, "payload", limits.bulk_bytes)
    if payload is None:
        raise SkepError(Code.INVALID_REQUEST, "a bulk push has a column payload")
    partition = bytes_column(batch, "partition", limits.bulk_bytes)
    if partition is None:
        partition = default_partitions(batch.num_rows)
    else:
        _check_partitions(partition)
    sizes = lengths(payload)
    if sizes.sum() > limits.bulk_bytes or sizes.max() > limits.payload_bytes:
        raise SkepError(
            Code.PAYLOAD_TOO_LARGE,
            f"a bulk push carries at most {limits.bulk_bytes} bytes, a payload {limits.payload_bytes}",
            bytes=int(sizes.sum()),
        )
    _check_json(payload)
    return partition, payload


async def _fitted_partitions(
    declared: Declared, key: QueueKey, partition: pa.LargeBinaryArray, payload: pa.LargeBinaryArray
) -> pa.LargeBinaryArray:
    """The partitions of messages that a spec looks at, each as a message of its own; MESSAGE_INVALID when one does not fit."""
    if declared.names_messages(key):
        raise SkepError(
            Code.INVALID_REQUEST, f"the queue {key.name!r} tells repeats by a key: push messages, not columns"
        )
    given = await asyncio.to_thread(messages_of, key, partition, payload)
    fitted = await declared.fit(given)
    return await asyncio.to_thread(_partitions, fitted)


def messages_of(
    key: QueueKey, partition: pa.LargeBinaryArray, payload: pa.LargeBinaryArray, headers: bytes | None = None
) -> list[NewMessage]:
    """The columns as messages, all with the same headers."""
    names = partition.cast(pa.large_string()).to_pylist()
    return [
        NewMessage(key, bytes(text), name, headers=headers) for name, text in zip(names, slices(payload), strict=True)
    ]


def appended(key: QueueKey, outcome: PushOutcome) -> Appended:
    """Where the messages of one batch are in the log; raises when they are not there."""
    if outcome.held:
        raise operations_ahead()
    if outcome.refused:
        raise SkepError(outcome.results[0].code or Code.INTERNAL, outcome.results[0].reason or "", queue=key.name)
    return Appended(Seq(outcome.results[0].seq or 0), Seq(outcome.results[-1].seq or 0), outcome.depths[key])


def _partitions(messages: list[NewMessage]) -> pa.LargeBinaryArray:
    names = pa.array([message.partition for message in messages], pa.large_string()).cast(pa.large_binary())
    _check_partitions(names)
    return names


def _check_partitions(partition: pa.LargeBinaryArray) -> None:
    try:
        texts = partition.cast(pa.large_string())
    except pa.ArrowInvalid:
        raise SkepError(Code.INVALID_PARTITION, "a partition is not UTF-8") from None
    characters = pc.utf8_length(texts)
    shortest, longest = pc.min_max(characters).values()
    unfit = pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f\\x7f-\\x{9f}]")).as_py()
    if unfit or shortest.as_py() < 1 or longest.as_py() > 255:
        raise SkepError(Code.INVALID_PARTITION, "a partition has 1 to 255 characters, no control characters")


def _check_json(payload: pa.LargeBinaryArray) -> None:
    seen = 0
    try:
        for text in slices(payload):
            _json(text)
            seen += 1
        # The decoder skips over strings without looking at their bytes.
        payload.cast(pa.large_string())
    except RecursionError:
        raise SkepError(Code.INVALID_PAYLOAD, f"payload {seen} is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise SkepError(Code.INVALID_PAYLOAD, f"payload {seen} is not JSON: {error}") from None
    except pa.ArrowInvalid:
        raise SkepError(Code.INVALID_PAYLOAD, "a payload is not UTF-8") from None
