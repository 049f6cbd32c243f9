"""Bulk pushes of columns, and their checks.

A batch of only partitions and payloads goes to the store as columns. The checks are those of a single push, done over whole
columns where possible. Each payload is parsed once, to see that it is JSON; the parsed value is not kept.
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
    """The checked partitions and payloads of a batch, with the partitions that the spec gives; raises for an invalid message."""
    partition, payload = await asyncio.to_thread(lambda: check_columns(checked(batch, limits.bulk_bytes), limits))
    if declared is not None and declared.looks_at(key):
        partition = await _fitted_partitions(declared, key, partition, payload)
    return partition, payload


def check_columns(batch: pa.RecordBatch, limits: Limits) -> tuple[pa.LargeBinaryArray, pa.LargeBinaryArray]:
    """The checked partitions and payloads of a well-formed batch; raises for the first error."""
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
    """The partitions that the spec gives these messages; MESSAGE_INVALID when a message does not fit the spec."""
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
    """The seqs of the stored messages of one batch; raises when the batch was held or refused."""
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
        # The decoder does not check the bytes of strings; the cast checks that they are UTF-8.
        payload.cast(pa.large_string())
    except RecursionError:
        raise SkepError(Code.INVALID_PAYLOAD, f"payload {seen} is nested too deeply") from None
    except msgspec.DecodeError as error:
        raise SkepError(Code.INVALID_PAYLOAD, f"payload {seen} is not JSON: {error}") from None
    except pa.ArrowInvalid:
        raise SkepError(Code.INVALID_PAYLOAD, "a payload is not UTF-8") from None
