"""The contents of a spool's files, for readers that do not own them: the slots, and the pushes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

import apsw
from msgspec import Struct

from skep.engine.push.spool.push_file import is_sound, open_to_read, readable_rows
from skep.engine.push.spool.record import Record, decode
from skep.engine.push.spool.slot import LOCK, REFUSED, file_of, slot_folders
from skep.wire.times import to_datetime


class SlotView(Struct, rename="camel"):
    """A slot on disk. ``in_use``: a process owns it. ``set_aside`` counts the files in its folder `refused`."""

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
    return [_view(folder) for folder in slot_folders(spool)] if spool.is_dir() else []


def records(path: Path) -> Iterator[Record]:
    """The records in a file of a spool, in a file set aside, or in a whole folder, without damaged ones."""
    if path.is_dir():
        for folder in slot_folders(path) or [path]:
            if file := file_of(folder):
                yield from records(file)
            aside = folder if folder.name == REFUSED else folder / REFUSED
            for found in sorted(aside.glob("*.record")):
                yield from records(found)
    elif path.suffix == ".record":
        yield decode(path.read_bytes())
    else:
        with closing(open_to_read(path)) as db:
            for row in readable_rows(db):
                with suppress(ValueError):
                    yield row.record()


def _view(folder: Path) -> SlotView:
    view = SlotView(folder.name, _in_use(folder))
    view.set_aside = sum(1 for path in (folder / REFUSED).glob("*") if not path.name.startswith("."))
    if path := file_of(folder):
        with suppress(FileNotFoundError, apsw.CantOpenError):  # its owner has removed it meanwhile
            view.bytes = sum(file.stat().st_size for file in folder.glob(f"{path.name}*") if file.suffix != ".db-shm")
            with closing(open_to_read(path)) as db:
                _count(view, db)
    return view


def _count(view: SlotView, db: apsw.Connection) -> None:
    view.damaged = 0 if is_sound(db) else 1
    for row in readable_rows(db):
        try:
            record = row.record()
        except ValueError:
            view.damaged += 1
            continue
        view.records += 1
        view.messages += len(record.batch.ids)
        spooled_at = to_datetime(record.spooled_at)
        view.oldest_at = min(view.oldest_at or spooled_at, spooled_at)


def _in_use(folder: Path) -> bool:
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        # A shared lock, for a moment only: a process that wants the slot meanwhile takes the next one, or looks again.
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
