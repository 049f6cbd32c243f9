"""Looking into the files of a spool without owning them: what is in each slot, and the records themselves."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from skep.engine.spooling import kept
from skep.engine.spooling.kept import Record
from skep.engine.spooling.segments import Damage, FoundRecord
from skep.engine.spooling.slots import LOCK, REFUSED, read_segment, segments_of
from skep.wire.times import to_datetime


class SlotView(Struct, rename="camel"):
    """A slot as it lies there. ``in_use`` says that a process has it; ``set_aside`` counts the files in its `refused`."""

    slot: str
    in_use: bool
    records: int = 0
    messages: int = 0
    bytes: int = 0
    damaged: int = 0
    set_aside: int = 0
    oldest_at: datetime | None = None


def look(spool: Path) -> list[SlotView]:
    """Every slot of a spool; none when there is no such folder."""
    return [_view(folder) for folder in slot_folders(spool)]


def slot_folders(spool: Path) -> list[Path]:
    """The slots in a folder, by number."""
    if not spool.is_dir():
        return []
    return sorted((path for path in spool.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def records(path: Path) -> Iterator[Record]:
    """The records in a segment, in a file that was set aside, or in a whole folder; what is damaged is left out."""
    if path.is_dir():
        for folder in slot_folders(path) or [path]:
            aside = folder if folder.name == REFUSED else folder / REFUSED
            for found in [*segments_of(folder), *sorted(aside.glob("*.record"))]:
                yield from records(found)
    elif path.suffix == ".record":
        yield kept.decode(path.read_bytes())
    else:
        for one in read_segment(path):
            if (record := _decoded(one)) is not None:
                yield record


def _view(folder: Path) -> SlotView:
    view = SlotView(folder.name, _in_use(folder))
    view.set_aside = sum(1 for path in (folder / REFUSED).glob("*") if not path.name.startswith("."))
    for segment in segments_of(folder):
        try:
            view.bytes += segment.stat().st_size
            for one in read_segment(segment):
                record = _decoded(one)
                if record is None:
                    view.damaged += not (isinstance(one, Damage) and one.torn)
                    continue
                view.records += 1
                view.messages += len(record.batch.ids)
                spooled_at = to_datetime(record.spooled_at)
                view.oldest_at = min(view.oldest_at or spooled_at, spooled_at)
        except FileNotFoundError:  # its owner was done with it meanwhile
            continue
    return view


def _decoded(one: FoundRecord | Damage) -> Record | None:
    if isinstance(one, Damage):
        return None
    try:
        return kept.decode(one.body)
    except ValueError:
        return None


def _in_use(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # Shared, and only for a moment: who wants to own the slot meanwhile takes the next one, or looks again.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
