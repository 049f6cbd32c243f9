"""The unpacked size of a compressed stream, read before anything is unpacked.

Each buffer of a compressed batch begins with its own unpacked size, and Arrow makes room for as much as is said there: some
kilobytes may say gigabytes. Arrow does not tell these sizes, so they are read from its metadata: a FlatBuffer, which Arrow has
verified by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import unpack_from

import pyarrow as pa

# Fields by their number in Arrow's Message.fbs.
_HEADER, _DICTIONARY_DATA, _BUFFERS, _COMPRESSION = 2, 1, 2, 3
_BUFFER_BYTES = 16
_SIZE_BYTES = 8


def unpacked_bytes(body: bytes) -> Iterator[int]:
    """The unpacked size of each compressed buffer of a stream. For an invalid stream it raises Arrow's own errors."""
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(body)):
        if message.type in ("record batch", "dictionary"):
            yield from _compressed(memoryview(message.metadata), message.type == "dictionary", memoryview(message.body))


def _compressed(metadata: memoryview, is_dictionary: bool, body: memoryview) -> Iterator[int]:
    batch = _followed(metadata, _field(metadata, _followed(metadata, 0), _HEADER))
    if is_dictionary:
        batch = _followed(metadata, _field(metadata, batch, _DICTIONARY_DATA))
    buffers = _field(metadata, batch, _BUFFERS)
    if not buffers or not _field(metadata, batch, _COMPRESSION):
        return
    start = _followed(metadata, buffers)
    (count,) = unpack_from("<I", metadata, start)
    for number in range(count):
        offset, length = unpack_from("<qq", metadata, start + 4 + number * _BUFFER_BYTES)
        # Arrow refuses a buffer outside of the body.
        if length >= _SIZE_BYTES and 0 <= offset <= len(body) - _SIZE_BYTES:
            (size,) = unpack_from("<q", body, offset)
            yield max(0, size)  # -1 says that it is not compressed after all


def _followed(metadata: memoryview, place: int) -> int:
    """The place that the offset at this place points to."""
    (offset,) = unpack_from("<I", metadata, place)
    return place + int(offset)


def _field(metadata: memoryview, table: int, number: int) -> int:
    """The place of a field of a table; 0 when the table lacks the field."""
    (back,) = unpack_from("<i", metadata, table)
    slots = table - back
    (size,) = unpack_from("<H", metadata, slots)
    slot = 4 + 2 * number
    if slot >= size:
        return 0
    (offset,) = unpack_from("<H", metadata, slots + slot)
    return table + int(offset) if offset else 0
