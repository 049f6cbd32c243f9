"""A slot of the spool: a folder with a file of pushes. One process at a time owns it, by a lock on another file in the folder.

Appended pushes are on disk before the call returns: one transaction, and one fsync, for all pushes of a call. An empty slot has no
file. All functions here block, and run in one thread at a time.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import apsw
import structlog

from skep.engine.push.spool import push_file
from skep.engine.push.spool.push_file import CORRUPT, SpooledRow
from skep.engine.push.spool.record import Record, encode
from skep.errors import Code, SkepError
from skep.runtime.private_files import FILE_MODE, make_folder

FILE = "pushes.db"
MENDED = "mended.db"
"""The readable pushes of a damaged file, until this file takes its place."""
REFUSED = "refused"
LOCK = "lock"

log = structlog.get_logger("skep.spool")


class SlotLimits(NamedTuple):
    """The most bytes of a slot, and the bytes that must stay free on its disk."""

    max_bytes: int
    free_bytes: int


class Spooled(NamedTuple):
    """A push from a slot. ``error``: why an earlier run gave it up, if it did not finish that."""

    slot: Slot
    number: int
    record: Record
    error: str | None


class Slot:
    """A folder that this process has locked; `load` it before use."""

    def __init__(self, folder: Path, lock: int, limits: SlotLimits) -> None:
        self.folder = folder
        self.damaged = False
        """Whether the file was found to be damaged. The next load of the slot replaces it."""
        self.size_bytes = 0
        """The bytes of its pushes; other threads may read this number at any time."""
        self._path = folder / FILE
        self._lock = lock
        self._limits = limits
        self._db: apsw.Connection | None = None
        self._newest = self._taken = 0
        self._unfinished = 0
        """How many pushes in the file are not finished."""

    def load(self, see: Callable[[Record], None]) -> bool:
        """Open the file, if there is one; ``see`` gets each of its pushes. Returns whether a damaged file was replaced."""
        try:
            is_replaced = self._replace_damaged()
            if self._path.exists():
                with self._file() as db:
                    for row in push_file.rows(db):
                        self._newest = row.number
                        self._unfinished += 1
                        with suppress(ValueError):  # a damaged push is set aside by `take`
                            see(row.record())
                    self.size_bytes = push_file.used_bytes(db)
                self.finish([])
        except (apsw.Error, OSError) as error:
            raise _unavailable(f"the spool's folder {self.folder} cannot be used: {error}") from error
        return is_replaced

    def append(self, records: Sequence[Record]) -> None:
        """Put pushes on disk, all or none; STORE_UNAVAILABLE when there is no room, or the disk fails."""
        bodies = [encode(record) for record in records]
        self._check_room(sum(map(len, bodies)))
        rows = [SpooledRow(number, body, crc32(body)) for number, body in enumerate(bodies, self._newest + 1)]
        try:
            with self._file() as db:
                self.size_bytes = push_file.insert(db, rows)
        except (apsw.Error, OSError) as error:
            raise _unavailable(f"the spool cannot be written to: {error}") from error
        self._newest += len(bodies)
        self._unfinished += len(bodies)

    def take(self, max_messages: int, max_bytes: int) -> tuple[list[Spooled], int]:
        """The next pushes, and how many damaged ones were set aside on the way."""
        taken: list[Spooled] = []
        damaged: list[int] = []
        if self._taken < self._newest:
            with self._file() as db, closing(push_file.rows(db, self._taken)) as found:
                for row in found:
                    try:
                        taken.append(Spooled(self, row.number, row.record(), row.error))
                        max_messages -= len(taken[-1].record.batch.ids)
                    except ValueError as error:
                        kept = self.set_aside(f"{sha256(row.body).hexdigest()[:16]}.damaged", row.body)
                        log.error("a push in the spool is damaged", kept=str(kept), error=str(error))
                        damaged.append(row.number)
                    self._taken = row.number
                    max_bytes -= len(row.body)
                    if max_messages <= 0 or max_bytes <= 0:
                        break
            self.finish(damaged)
        return taken, len(damaged)

    def give_up(self, number: int, error: str) -> None:
        """Note on disk that a push is given up, so that a restart does not store it."""
        with self._file() as db:
            db.execute("UPDATE push SET error = ? WHERE number = ?", (error, number))

    def finish(self, numbers: Sequence[int]) -> None:
        """Remove pushes that are stored, buried or set aside."""
        self._unfinished -= len(numbers)
        try:
            if self._unfinished == 0:
                db, self._db = self._db, None
                push_file.remove(self._path, db)
                self.size_bytes = 0
            elif numbers:
                with self._file() as db:
                    self.size_bytes = push_file.delete(db, numbers)
        except (apsw.Error, OSError) as error:  # a full disk, say; the file is removed when all its pushes are finished
            log.warning("pushes that were stored stay in the file of the spool for now", error=str(error))

    def set_aside(self, name: str, data: bytes) -> Path:
        """Keep bytes that could not be stored or read in a file of their own. An existing file of that name stays."""
        path = self.aside(name)
        if not path.exists():
            make_folder(path.parent)
            beside = path.with_name(f".{name}")
            with os.fdopen(os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, FILE_MODE), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            beside.rename(path)
            sync_folder(path.parent)
        return path

    def aside(self, name: str) -> Path:
        """The path for a file of this name that is set aside."""
        return self.folder / REFUSED / name

    def close(self) -> None:
        """Unlock the folder; its files stay."""
        self._close_file()
        os.close(self._lock)

    @contextmanager
    def _file(self) -> Iterator[apsw.Connection]:
        """The open file; it is made if it is missing. Damage is noted in ``damaged``."""
        try:
            if self._db is None:
                self._db = push_file.open_to_write(self._path)
                sync_folder(self.folder)
            yield self._db
        except CORRUPT:
            self.damaged = True
            raise

    def _close_file(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _check_room(self, size: int) -> None:
        if self.size_bytes + size > self._limits.max_bytes:
            raise _unavailable("the spool is full", bytes=self.size_bytes, limit=self._limits.max_bytes)
        try:
            found = os.statvfs(self.folder)
        except OSError as error:
            raise _unavailable(f"the spool cannot be written to: {error.strerror}") from error
        free = found.f_bavail * found.f_frsize
        if free - size < self._limits.free_bytes:
            raise _unavailable("the spool's disk is full", free=free, kept_free=self._limits.free_bytes)

    def _replace_damaged(self) -> bool:
        """Copy the readable pushes of a damaged file into a new file, and set the old file aside. A crash meanwhile does no harm."""
        mended = self.folder / MENDED
        if mended.exists() and not self._path.exists():
            mended.rename(self._path)
        if not self._path.exists():
            return False
        with closing(apsw.Connection(str(self._path), flags=apsw.SQLITE_OPEN_READWRITE)) as old:
            if push_file.is_sound(old):
                return False
            push_file.remove(mended)
            with closing(push_file.open_to_write(mended)) as new:
                push_file.insert(new, push_file.readable_rows(old))
                count = new.total_changes()
        number = 1
        while (kept := self.aside(f"damaged-{number}.db")).exists():
            number += 1
        make_folder(kept.parent)
        for suffix in ("-wal", ""):  # an unreadable write-ahead log is left behind, and is kept, too
            with suppress(FileNotFoundError):
                self._path.with_name(FILE + suffix).rename(kept.with_name(kept.name + suffix))
        push_file.remove(self._path)
        mended.rename(self._path)
        sync_folder(self.folder)
        log.error(
            "a file of the spool is damaged: what can be read of it is in a new one, the rest only in the file kept. Recover it "
            "with `sqlite3 FILE .recover`, or push what is missing again; then remove the file",
            kept=str(kept), readable_pushes=count,
        )  # fmt: skip
        return True


def check_format(spool: Path) -> None:
    """Refuse a spool with pushes of an earlier version, as only that version can read them."""
    if earlier := sorted(spool.glob("*/*.spool")):
        raise _unavailable(
            f"{earlier[0]} holds pushes in the format of an earlier version: start that version once more, wait until "
            "`skep spool status` says that nothing is pending, and upgrade then. The file was not touched",
        )


def take_slot(spool: Path, limits: SlotLimits) -> Slot:
    """Take the first slot that no process owns."""
    try:
        make_folder(spool)
        number = 0
        while (slot := _try_slot(spool / str(number), limits)) is None:
            number += 1
        sync_folder(spool)
    except OSError as error:
        raise _unavailable(f"the spool's folder {spool} cannot be used: {error.strerror}") from error
    return slot


def adopt_slots(spool: Path, limits: SlotLimits) -> list[Slot]:
    """Take the slots with pushes whose process has gone."""
    adopted = []
    for folder in slot_folders(spool):
        if file_of(folder) and (slot := _try_slot(folder, limits)) is not None:
            if file_of(folder):
                adopted.append(slot)
            else:  # another process was faster, and has emptied it
                slot.close()
    return adopted


def slot_folders(spool: Path) -> list[Path]:
    """The folders of the slots, by number."""
    return sorted((path for path in spool.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))


def file_of(folder: Path) -> Path | None:
    """The file with the pushes of a slot; None for an empty slot."""
    return next((path for name in (FILE, MENDED) if (path := folder / name).exists()), None)


def _try_slot(folder: Path, limits: SlotLimits) -> Slot | None:
    make_folder(folder)
    lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, FILE_MODE)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return Slot(folder, lock, limits)


def sync_folder(folder: Path) -> None:
    """Make new and removed files of a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _unavailable(message: str, **details: object) -> SkepError:
    return SkepError(Code.STORE_UNAVAILABLE, message, **details)
