"""What lies in the slots, in order: read once, counted, and removed segment by segment when all of it is done.

Everything here blocks, and runs in the spool's one thread, like the appends: so a segment cannot be removed while it is written to.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import structlog

from skep.engine.spooling import kept
from skep.engine.spooling.kept import Record
from skep.engine.spooling.segments import Damage, SegmentReader
from skep.engine.spooling.slots import Slot, read_segment, set_aside

log = structlog.get_logger("skep.spool")


class Taken(NamedTuple):
    """A record, and the segment it is from."""

    record: Record
    segment: Path


class _Progress:
    """How far a segment has been read, and how many of its records are not done yet."""

    def __init__(self, slot: Slot, segment: Path) -> None:
        self.slot = slot
        self.reader = SegmentReader(segment)
        self.unfinished = 0

    @property
    def is_read(self) -> bool:
        end = self.slot.end_of(self.reader.path)
        return self.reader.offset >= (self.reader.path.stat().st_size if end is None else end)


class SpoolReader:
    """Reads slots, one after the other."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self._segments: dict[Path, _Progress] = {}

    def add(self, slot: Slot, found: Callable[[Record], None]) -> None:
        """Read this slot too; ``found`` gets each record that is in it already."""
        for segment in slot.segments():
            for one in read_segment(segment):
                if not isinstance(one, Damage) and (record := _decoded(one.body)) is not None:
                    found(record)
        self.slots.append(slot)

    def take(self, max_messages: int, max_bytes: int) -> tuple[list[Taken], int]:
        """The next records, and how many damaged ones were set aside on the way. No records: there are none now."""
        taken: list[Taken] = []
        damaged = 0
        for slot in self.slots:
            for segment in slot.segments():
                progress = self._segments.get(segment)
                if progress is None:
                    progress = self._segments[segment] = _Progress(slot, segment)
                while max_messages > 0 and max_bytes > 0:
                    found = progress.reader.next(slot.end_of(segment))
                    if found is None:
                        break
                    record = None if isinstance(found, Damage) else _decoded(found.body)
                    if record is None:
                        torn = isinstance(found, Damage) and found.torn
                        damaged += not torn
                        self._set_aside(progress, Damage(found.start, found.end, torn))
                        continue
                    taken.append(Taken(record, segment))
                    progress.unfinished += 1
                    max_messages -= len(record.batch.ids)
                    max_bytes -= found.end - found.start
                self._remove_if_done(segment)
        return taken, damaged

    def finish(self, segments: list[Path]) -> None:
        """Records of these segments are done, one for each time it is named."""
        for segment in segments:
            self._segments[segment].unfinished -= 1
        for segment in set(segments):
            self._remove_if_done(segment)

    def keep(self, record: Record, segment: Path) -> Path:
        """Put a record that cannot be stored aside, on disk."""
        return set_aside(self.refused_folder(segment), f"{record.name}.record", kept.encode(record))

    def were_kept(self, taken: list[Taken]) -> list[bool]:
        """Which records were put aside."""
        folders = {segment: self.refused_folder(segment) for segment in {one.segment for one in taken}}
        there = {segment for segment, folder in folders.items() if folder.is_dir()}
        return [segment in there and (folders[segment] / f"{record.name}.record").exists() for record, segment in taken]

    def forget_kept(self, record: Record, segment: Path) -> None:
        """Remove a record that was put aside, since it has found a place after all."""
        (self.refused_folder(segment) / f"{record.name}.record").unlink(missing_ok=True)

    def refused_folder(self, segment: Path) -> Path:
        """Where records of a segment are put aside."""
        return self._segments[segment].slot.refused_folder

    def close(self) -> None:
        """Let go of everything; what is not done stays where it is."""
        for progress in self._segments.values():
            progress.reader.close()
        self._segments.clear()
        for slot in self.slots:
            slot.close()
        self.slots.clear()

    def _set_aside(self, progress: _Progress, damage: Damage) -> None:
        segment = progress.reader.path
        name = f"{segment.stem}-{damage.start}.{'torn' if damage.torn else 'damaged'}"
        path = set_aside(progress.slot.refused_folder, name, progress.reader.bytes_of(damage))
        if damage.torn:
            log.warning("a record of the spool was not written to its end, so nobody was told of it", kept=str(path))
        else:
            log.error("a record of the spool is damaged", kept=str(path), size_bytes=damage.end - damage.start)

    def _remove_if_done(self, segment: Path) -> None:
        progress = self._segments.get(segment)
        if progress is not None and not progress.unfinished and progress.is_read:
            progress.reader.close()
            del self._segments[segment]
            progress.slot.remove(segment)


def _decoded(body: bytes) -> Record | None:
    try:
        return kept.decode(body)
    except ValueError:
        return None
