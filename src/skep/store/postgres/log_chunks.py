"""Chunks of a log: which ranges are read chunk by chunk, and the part of a range that lies in one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from skep.model import LOG_CHUNK, Seq

if TYPE_CHECKING:
    from skep.arrow.log import LogRange


def within_chunk(wanted: LogRange) -> LogRange:
    """The part of a range that lies in its first chunk; the whole range when it is not read in chunks."""
    if not comes_in_chunks(wanted):
        return wanted
    last = Seq((wanted.first - 1) // LOG_CHUNK * LOG_CHUNK + LOG_CHUNK)
    return structs.replace(wanted, last=min(wanted.last, last))


def comes_in_chunks(wanted: LogRange) -> bool:
    """Whether a range is of all partitions, and asks for at most one chunk at once."""
    return wanted.partitions is None and wanted.max_rows <= LOG_CHUNK
