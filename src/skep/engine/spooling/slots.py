"""A slot of the spool: a folder that one process at a time writes to and reads from, decided by a lock on a file in it.

What is appended is on disk before the call returns: one write and one fdatasync for all records of a call. Of a call that
fails nothing is left: it is cut off again, and a segment of which that is not certain is never written to again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from skep.engine.spooling.segments import HEADER_BYTES, Damage, FoundRecord, SegmentReader, frame, new_header
from skep.errors import Code, SkepError
from skep.runtime.private_files import FILE_MODE, make_folder

SUFFIX = ".spool"
REFUSED = "refused"
LOCK = "lock"
_SEGMENT = re.compile(r"\d{10}\.spool")

log = structlog.get_logger("skep.spool")


class SpoolLimits(NamedTuple):
    """How much a slot may hold, what must stay free on its disk, and when the next segment begins."""

    max_bytes: int
    free_bytes: int
    segment_bytes: int


class Slot:
    """A folder whose lock is ours. Its methods are called from one thread at a time."""

    def __init__(self, folder: Path, lock: int, limits: SpoolLimits) -> None:
        self.folder = folder
        self._lock = lock
        self._limits = limits
        self._active: _Active | None = None
        self._sizes = {path: path.stat().st_size for path in segments_of(folder)}
        self._ends: dict[Path, int] = {}
        self.size_bytes = sum(self._sizes.values())
        """What its segments take; a number that others may read at any time."""

    @property
    def refused_folder(self) -> Path:
        """Where records are kept that could not be stored or read."""
        return self.folder / REFUSED

    def segments(self) -> list[Path]:
        """Its segments, the oldest first."""
        return sorted(self._sizes)

    def end_of(self, segment: Path) -> int | None:
        """Up to where a segment holds what was answered; None, which is its end, when an earlier process wrote it."""
        return self._ends.get(segment)

    def append(self, bodies: Sequence[bytes]) -> None:
        """Put records on disk, all or none; STORE_UNAVAILABLE when there is no room, or the disk fails."""
        active = self._active
        if active is None or active.end >= self._limits.segment_bytes:
            active = self._next_segment(sum(map(len, bodies)))
        data = b"".join([frame(active.marker, body) for body in bodies])
        self._check_room(len(data))
        try:
            active.write(data)
        except OSError as error:
            if active.broken:
                self._active = None
                log.error("a segment of the spool is closed for good", segment=str(active.path), error=str(error))
            raise _unavailable(f"the spool cannot be written to: {error.strerror}") from error
        self._grown(active)

    def rotate(self) -> None:
        """Write to no segment that is there any more, so that each of them can be removed."""
        if self._active is not None:
            self._active.close()
            self._active = None

    def remove(self, segment: Path) -> None:
        """Forget a segment of which all is stored."""
        if self._active is not None and self._active.path == segment:
            self.rotate()
        segment.unlink(missing_ok=True)
        self._sizes.pop(segment, None)
        self._ends.pop(segment, None)
        self.size_bytes = sum(self._sizes.values())
        sync_folder(self.folder)

    def close(self) -> None:
        """Let go of the folder."""
        self.rotate()
        os.close(self._lock)

    def _next_segment(self, size: int) -> _Active:
        self.rotate()
        self._check_room(HEADER_BYTES + size)
        try:
            # Not by what is known here: a file of which nobody is certain whether it is there must not be in the way.
            number = max((int(path.stem) for path in segments_of(self.folder)), default=0) + 1
            active = _Active(self.folder / f"{number:010}{SUFFIX}")
            sync_folder(self.folder)
        except OSError as error:
            raise _unavailable(f"the spool cannot be written to: {error.strerror}") from error
        self._active = active
        self._grown(active)
        return active

    def _grown(self, active: _Active) -> None:
        self._sizes[active.path] = self._ends[active.path] = active.end
        self.size_bytes = sum(self._sizes.values())

    def _check_room(self, size: int) -> None:
        held = self.size_bytes
        if held + size > self._limits.max_bytes:
            raise _unavailable("the spool is full", bytes=held, limit=self._limits.max_bytes)
        try:
            found = os.statvfs(self.folder)
        except OSError as error:
            raise _unavailable(f"the spool cannot be written to: {error.strerror}") from error
        free = found.f_bavail * found.f_frsize
        if free - size < self._limits.free_bytes:
            raise _unavailable("the spool's disk is full", free=free, kept_free=self._limits.free_bytes)


class _Active:
    """The segment that is written to."""

    def __init__(self, path: Path) -> None:
        header, self.marker = new_header()
        self.path = path
        self.broken = False
        self._fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, FILE_MODE)
        self.end = 0
        try:
            self.write(header)
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise

    def write(self, data: bytes) -> None:
        """Add to the end, on disk; after an error nothing of it is there, or the segment is broken."""
        try:
            _write_all(self._fd, data, self.end)
        except OSError:
            self._cut()
            raise
        try:
            os.fdatasync(self._fd)
        except OSError:
            # The kernel may have dropped what it could not write and say so only once: this file is not to be trusted.
            self._cut()
            self.broken = True
            self.close()
            raise
        self.end += len(data)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _cut(self) -> None:
        try:
            os.ftruncate(self._fd, self.end)
            os.fdatasync(self._fd)
        except OSError:
            self.broken = True


def _write_all(fd: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view = view[written:]
        at += written


def _unavailable(message: str, **details: object) -> SkepError:
    return SkepError(Code.STORE_UNAVAILABLE, message, **details)


def segments_of(folder: Path) -> list[Path]:
    """The segments in a folder, the oldest first."""
    return sorted(path for path in folder.glob(f"*{SUFFIX}") if _SEGMENT.fullmatch(path.name))


def read_segment(path: Path) -> Iterator[FoundRecord | Damage]:
    """All that is in a segment nobody writes to."""
    reader = SegmentReader(path)
    try:
        while (found := reader.next()) is not None:
            yield found
    finally:
        reader.close()


def take_slot(spool: Path, limits: SpoolLimits) -> Slot:
    """The first slot that no process has."""
    try:
        make_folder(spool)
        number = 0
        while (slot := _try_slot(spool / str(number), limits)) is None:
            number += 1
        sync_folder(spool)
    except OSError as error:
        raise _unavailable(f"the spool's folder {spool} cannot be used: {error.strerror}") from error
    return slot


def adopt_slots(spool: Path, limits: SpoolLimits) -> list[Slot]:
    """The slots that hold something, and whose process has gone."""
    adopted = []
    for folder in sorted(path for path in spool.iterdir() if path.name.isdigit()):
        if segments_of(folder) and (slot := _try_slot(folder, limits)) is not None:
            if slot.segments():
                adopted.append(slot)
            else:  # another process was faster, and is done with it
                slot.close()
    return adopted


def _try_slot(folder: Path, limits: SpoolLimits) -> Slot | None:
    make_folder(folder)
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    except OSError:
        os.close(lock)
        raise
    return Slot(folder, lock, limits)


def set_aside(folder: Path, name: str, data: bytes) -> Path:
    """Keep bytes in a folder of what could not be stored, on disk. The same name again changes nothing."""
    make_folder(folder)
    path = folder / name
    if not path.exists():
        beside = folder / f".{name}"
        fd = os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, FILE_MODE)
        try:
            _write_all(fd, data, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        beside.rename(path)
        sync_folder(folder)
    return path


def sync_folder(folder: Path) -> None:
    """Make what was made or removed in a folder last."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
