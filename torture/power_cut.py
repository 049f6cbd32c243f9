"""A power cut: what files have afterwards of the writes that were not synced, told from the journal of the layer below the store.

Each sector of a file has the content of the last sync, or that of any later write to it. Writes to different sectors are kept or
lost in any order. Three ways are drawn from: all unsynced writes are lost; all from some moment on are, in all files; or each sector is on its own.

Simplified: names (new, renamed and removed files) are durable at once, and so is what was written before the journal began. A
truncation that lasts takes the earlier writes to its file along. SQLite's index of its write-ahead log (`-shm`) is filled with noise.
"""

from __future__ import annotations

import os
import random
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

from msgspec import Struct

MAGIC = struct.pack("=Q", 0x6A6F75726E616C21)
HEADER = struct.Struct("=10Q")
ALIGNMENT = 8
WRITE, TRUNCATE, SYNC, GONE = 1, 2, 3, 4
SECTORS = (512, 4096)
INDEX = "-shm"

FileId = tuple[int, int]
Way = Literal["all", "from a moment on", "torn"]
WAYS: tuple[Way, ...] = ("all", "from a moment on", "torn")


class Record(NamedTuple):
    """One entry of the journal, as `struct record` has it."""

    place: int
    kind: int
    file: FileId
    at: int
    size: int
    old_size: int
    old: bytes
    done: int

    @property
    def end(self) -> int:
        return self.at + self.size


class Loss(Struct):
    """What a power cut took."""

    way: Way
    sector_bytes: int
    files: int = 0
    unsynced: int = 0
    """Writes that no sync had covered."""
    lost_bytes: int = 0

    def told(self) -> str:
        torn = f" in sectors of {self.sector_bytes} bytes" if self.way == "torn" else ""
        return f"{self.unsynced} unsynced writes to {self.files} files, lost {self.way}{torn}: {self.lost_bytes} bytes"


def records(journal: bytes) -> Iterator[Record]:
    """The whole records of a journal; one whose process died while it was made is passed over."""
    place = journal.find(MAGIC)
    while place >= 0:
        if place % ALIGNMENT or place + HEADER.size > len(journal):
            place = journal.find(MAGIC, place + 1)
            continue
        _, own, kind, device, inode, at, size, old_size, kept, done = HEADER.unpack_from(journal, place)
        after = place + HEADER.size
        if own == place:
            yield Record(place, kind, (device, inode), at, size, old_size, journal[after : after + kept], done)
            after += kept
        place = journal.find(MAGIC, after)


def unsynced(journal: bytes) -> dict[FileId, list[Record]]:
    """The writes and truncations of each file that no sync covers, in order. A sync covers what was done before it began."""
    found: dict[FileId, list[Record]] = defaultdict(list)
    for record in records(journal):
        changes = found[record.file]
        if record.kind == SYNC:
            changes[:] = [change for change in changes if not 0 < change.done < record.done]
        elif record.kind == GONE:  # the inode may be another file's by now
            changes[:] = [change for change in changes if change.done > record.done]
        else:
            changes.append(record)
    return {file: changes for file, changes in found.items() if changes}


def cut_power(root: Path, journal: bytes, chance: random.Random) -> Loss:
    """Take back writes to the files under a folder. All processes that have them open must have ended."""
    loss = Loss(chance.choice(WAYS), chance.choice(SECTORS))
    lost = unsynced(journal)
    places = [change.place for changes in lost.values() for change in changes]
    moment = chance.choice(places) if places and loss.way == "from a moment on" else 0
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        if path.name.endswith(INDEX):
            path.write_bytes(chance.randbytes(path.stat().st_size))
            continue
        status = path.stat()
        changes = lost.get((status.st_dev, status.st_ino))
        if changes:
            loss.files += 1
            loss.unsynced += len(changes)
            with path.open("r+b") as file:
                if loss.way == "torn":
                    loss.lost_bytes += _tear(file, changes, loss.sector_bytes, chance)
                else:
                    loss.lost_bytes += _take_back(file, [one for one in changes if one.place >= moment])
    return loss


def _take_back(file: BinaryIO, changes: list[Record]) -> int:
    """Undo changes whole, the newest first; how many bytes they had."""
    for change in reversed(changes):
        file.seek(change.at)
        file.write(change.old.ljust(change.size, b"\0"))
        file.truncate(change.old_size if change.kind == TRUNCATE else _size_before(file, change))
    return sum(change.size for change in changes)


def _size_before(file: BinaryIO, change: Record) -> int:
    """A write that made the file longer is taken back with the length; another process may have written beyond it."""
    size = file.seek(0, os.SEEK_END)
    return change.old_size if change.end >= size else size


def _tear(file: BinaryIO, changes: list[Record], sector_bytes: int, chance: random.Random) -> int:
    """Undo some changes of each sector. What a lost truncation follows is undone whole."""
    truncations = [place for place, change in enumerate(changes) if change.kind == TRUNCATE]
    lasting = chance.randint(0, len(truncations))
    first = truncations[lasting - 1] + 1 if lasting else 0
    end = truncations[lasting] if lasting < len(truncations) else len(changes)
    lost_bytes = _take_back(file, changes[end:])
    writes_of: dict[int, list[Record]] = defaultdict(list)
    for change in changes[first:end]:
        for sector in range(change.at // sector_bytes, -(-change.end // sector_bytes)):
            writes_of[sector].append(change)
    last_kept = 0
    for sector, writes in sorted(writes_of.items()):
        kept = chance.randint(0, len(writes))
        begin, stop = sector * sector_bytes, (sector + 1) * sector_bytes
        for write in reversed(writes[kept:]):
            lost_bytes += _take_back_part(file, write, max(begin, write.at), min(stop, write.end))
        last_kept = max([last_kept, *(min(stop, write.end) for write in writes[:kept])])
    if first < end and chance.random() < 0.5:  # else the file is as long as it was, with zeros where data was lost
        synced_size = min(change.old_size for change in changes[first:end])
        if file.seek(0, os.SEEK_END) > max(synced_size, last_kept):
            file.truncate(max(synced_size, last_kept))
    return lost_bytes


def _take_back_part(file: BinaryIO, write: Record, start: int, stop: int) -> int:
    """Put back the old content of a part of a write, with zeros where the file had none."""
    old = write.old[start - write.at : max(stop - write.at, 0)]
    file.seek(start)
    file.write(old.ljust(stop - start, b"\0"))
    return stop - start
