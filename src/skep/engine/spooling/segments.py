"""The files of the spool: how records lie in a segment, and how they are found again whatever happened to it.

A segment is a header and frames. Each frame starts with a marker that is random per segment, so that nothing a client sends
can look like one, and has a checksum of its own for the length: so a damaged record costs that record and no other. What
lies after the last whole frame because a write was cut short was never answered; it is told apart as torn.
"""

from __future__ import annotations

import os
import secrets
import struct
from pathlib import Path
from struct import Struct as Layout
from typing import NamedTuple
from zlib import crc32

MAGIC = b"SKEPSPL\x01"
"""The last byte is the version of the format."""
MARKER_BYTES = 8
_HEADER = Layout(f">{len(MAGIC)}s{MARKER_BYTES}sI")
_FRAME = Layout(f">{MARKER_BYTES}sIII")
HEADER_BYTES = _HEADER.size
FRAME_BYTES = _FRAME.size


class FoundRecord(NamedTuple):
    """A whole record: where it starts, where the next one would, and its bytes."""

    start: int
    end: int
    body: bytes


class Damage(NamedTuple):
    """Bytes that are no record. Torn ones were being written when everything ended, so nobody was told of them."""

    start: int
    end: int
    torn: bool


def new_header() -> tuple[bytes, bytes]:
    """The header of a new segment, and its marker."""
    marker = secrets.token_bytes(MARKER_BYTES)
    return _HEADER.pack(MAGIC, marker, crc32(MAGIC + marker)), marker


def frame(marker: bytes, body: bytes) -> bytes:
    """A record as it lies in a segment."""
    check = crc32(body)
    return _FRAME.pack(marker, len(body), check, _head_check(marker, len(body), check)) + body


def _head_check(marker: bytes, length: int, check: int) -> int:
    return crc32(marker + length.to_bytes(4, "big") + check.to_bytes(4, "big"))


class SegmentReader:
    """Reads a segment from its beginning, record by record; it holds no more than one in memory, but when one is damaged."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self.path = path
        self.offset = HEADER_BYTES
        self._marker: bytes | None = None

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._fd)

    def next(self, end: int | None = None) -> FoundRecord | Damage | None:
        """What comes next; None at the end, which is the file's or, of a segment that is being written, the one given."""
        size = os.fstat(self._fd).st_size if end is None else end
        if self._marker is None:
            self._marker = self._find_marker(size)
            if self._marker is None:
                torn = size < HEADER_BYTES + FRAME_BYTES
                return self._damaged(0, size, torn=torn) if size else None
        if self.offset >= size:
            return None
        start = self.offset
        head = self._head(start, size)
        if head is None:
            return self._resynchronized(start, size)
        length, check = head
        stop = start + FRAME_BYTES + length
        if stop > size:
            return self._damaged(start, size, torn=True)
        body = os.pread(self._fd, length, start + FRAME_BYTES)
        if len(body) != length or crc32(body) != check:
            return self._damaged(start, stop, torn=False)
        self.offset = stop
        return FoundRecord(start, stop, body)

    def bytes_of(self, damage: Damage) -> bytes:
        """What lies there."""
        return os.pread(self._fd, damage.end - damage.start, damage.start)

    def _find_marker(self, size: int) -> bytes | None:
        """The marker by the header, or by the first frame when it is the header that is damaged."""
        data = os.pread(self._fd, HEADER_BYTES + FRAME_BYTES, 0)[:size]
        try:
            magic, marker, check = _HEADER.unpack_from(data)
            if magic == MAGIC and check == crc32(magic + marker):
                return bytes(marker)
            first, length, body_check, head_check = _FRAME.unpack_from(data, HEADER_BYTES)
        except struct.error:
            return None
        return bytes(first) if head_check == _head_check(first, length, body_check) else None

    def _head(self, start: int, size: int) -> tuple[int, int] | None:
        """The length and checksum of the record whose frame starts here; None when no good one does."""
        data = os.pread(self._fd, min(FRAME_BYTES, size - start), start)
        if len(data) < FRAME_BYTES:
            return None
        marker, length, check, head_check = _FRAME.unpack(data)
        if marker != self._marker or head_check != _head_check(marker, length, check):
            return None
        return length, check

    def _resynchronized(self, start: int, size: int) -> Damage:
        """Everything up to the next frame, or to the end when there is none."""
        assert self._marker is not None
        rest = os.pread(self._fd, size - start, start)
        at = 0
        while (at := rest.find(self._marker, at + 1)) >= 0:
            if self._head(start + at, size) is not None:
                return self._damaged(start, start + at, torn=False)
        # Blocks that the file system had not filled yet read as zeros.
        return self._damaged(start, size, torn=len(rest) < FRAME_BYTES or not any(rest))

    def _damaged(self, start: int, end: int, *, torn: bool) -> Damage:
        self.offset = end
        self._marker = self._marker or b""
        return Damage(start, end, torn)
