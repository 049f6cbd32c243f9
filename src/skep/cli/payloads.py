"""The input of `skep push`: payloads or whole items, one JSON text per line, in batches.

A batch is the result of one read. So the line of a slow producer goes out at once, and the lines of a fast producer go out by the
hundred. Memory holds only the batch and the beginning of the next line.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from skep.client import NewMessage
from skep.client.outgoing import MessageOptions
from skep.errors import Code, SkepError

READ_BYTES = 1024 * 1024
LINE_BYTES = 64 * 1024 * 1024
"""No line may be longer: a file without line ends must not fill the memory."""


class InputLine(Struct, frozen=True):
    """A line that is not empty, and its number."""

    number: int
    text: bytes


class Item(Struct, rename="camel", forbid_unknown_fields=True):
    """A whole message as `POST /api/v1/push` takes it; the queue may be left to the command."""

    payload: Raw
    queue: str | None = None
    partition: str | UnsetType = UNSET
    transaction_id: str | UnsetType = UNSET
    trace_id: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    deliver_at: datetime | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    delay_seconds: float | UnsetType = UNSET
    namespace: str | None = None
    task: str | None = None


_item = msgspec.json.Decoder(Item)
_base64 = msgspec.json.Decoder(bytes)


def batches(source: int, most: int) -> Iterator[tuple[list[InputLine], int]]:
    """Lines of an open file as they come, at most so many at a time, and how many bytes were read so far."""
    rest, number, read = b"", 0, 0
    while True:
        chunk = os.read(source, READ_BYTES)
        read += len(chunk)
        whole, found, rest = (rest + chunk).rpartition(b"\n") if chunk else (rest, b"", b"")
        if len(rest) > LINE_BYTES:
            raise SkepError(Code.PAYLOAD_TOO_LARGE, f"line {number + 1} is longer than {LINE_BYTES} bytes")
        if found or not chunk:
            texts = whole.split(b"\n")
            lines = [InputLine(number + place, text) for place, text in enumerate(texts, 1) if text.strip()]
            number += len(texts)
            for start in range(0, len(lines), most):
                yield lines[start : start + most], read
        if not chunk:
            return


def payload(text: bytes, where: str) -> Raw:
    """The payload of a line, checked to be JSON: the server would refuse the whole batch without naming the line."""
    try:
        msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:  # bytes that are not UTF-8 raise a ValueError, too
        raise SkepError(Code.INVALID_PAYLOAD, f"{where} is not JSON: {error}") from None
    return Raw(text)


def item(line: InputLine) -> tuple[str | None, NewMessage, MessageOptions]:
    """The message of a line, the queue that the line names, and the namespace and task of a queue that the push creates."""
    try:
        found = _item.decode(line.text)
        body: Any = found.payload if found.content_type is UNSET else _base64.decode(found.payload)
    except (ValueError, RecursionError) as error:
        raise SkepError(Code.INVALID_PAYLOAD, f"line {line.number} is not an item: {error}") from None
    message = NewMessage(
        body, found.partition, found.transaction_id, found.trace_id, found.headers, found.content_type,
        found.deliver_at, found.priority, found.delay_seconds,
    )  # fmt: skip
    return found.queue, message, {"namespace": found.namespace, "task": found.task}
