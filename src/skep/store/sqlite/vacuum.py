"""Shrinking the file (vacuum): a little at a time while the store is open, or at once by rewriting a closed file.

Deleted rows leave free pages, which later messages fill. When there are far too many, `Shrinking` moves pages from the end of the file
into free pages, a few at a time, and truncates the file. SQLite can do this in files with incremental auto_vacuum: all new files, and
files that `rewrite` has written. Free pages hold zeros already (secure_delete). The old place of a moved page is cut off with the end
of the file, and the write-ahead log is cut, too (ADR 0026).
"""

from __future__ import annotations

import os
from contextlib import suppress
from io import BufferedRandom
from pathlib import Path

import apsw
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.runtime.private_files import make_file
from skep.store.sqlite.connection import FileLock, Knobs, allow_shrinking, open_writer, store_error
from skep.store.sqlite.session import Session

STEP_PAGES = 32
"""Pages that are given back in one transaction: 128 KiB."""
STEPS = 16
"""Steps of one `maintain`; callers come in between."""
LEAST_FREE_PAGES = 1_024
"""Fewer free pages are not worth the effort."""
BEGIN_SHARE = 4
KEEP_SHARE = 8
"""Pages are given back when a fourth of the file is free, until an eighth is: new messages fill the rest."""
INCREMENTAL = 2
"""How SQLite numbers `auto_vacuum = INCREMENTAL`."""
NEW_SUFFIX = ".vacuum"
LOCK_WAIT_MS = 500
OVERWRITE_BYTES = 1024 * 1024


class Shrinking:
    """Shrinks the file step by step, and remembers whether it has begun."""

    def __init__(self) -> None:
        self._begun = False
        self._able: bool | None = None

    def step(self, session: Session) -> bool:
        """Give a few pages back, outside any transaction; returns whether there are more. A full disk or a busy file is no error."""
        db = session.db
        if self._able is None:
            self._able = db.pragma("auto_vacuum") == INCREMENTAL
        if not self._able:
            return False
        pages, free = int(str(db.pragma("page_count"))), int(str(db.pragma("freelist_count")))
        if not self._begun and (free < LEAST_FREE_PAGES or free * BEGIN_SHARE < pages):
            return False
        surplus = free - pages // KEEP_SHARE
        if surplus > 0:
            with suppress(apsw.FullError, apsw.BusyError):
                for _ in db.execute(f"PRAGMA incremental_vacuum({min(surplus, STEP_PAGES)})"):
                    pass
        self._begun = surplus > STEP_PAGES
        if not self._begun and session.checkpoints is not None:
            session.checkpoints.cut_soon()  # which cuts the file, too
        return self._begun


class Vacuumed(Struct, frozen=True):
    """The size of a file before and after."""

    bytes_before: int
    bytes_after: int


def rewrite(path: Path) -> Vacuumed:
    """Rewrite a closed file without its free pages; from then on it shrinks by itself. No other process may use it meanwhile.

    The new file is beside the old one until it is complete and on disk, and then takes its name: one of the two always exists. The
    old file is overwritten with zeros.
    """
    if not path.is_file():
        raise SkepError(
            Code.STORE_UNAVAILABLE, f"there is no file {path}: name the store with --store or --data-folder"
        )
    path = path.resolve()
    lock = FileLock(os.fspath(path), LOCK_WAIT_MS)
    try:
        _copy(path, new_file(path))
        with new_file(path).open("rb") as new, path.open("r+b") as old:
            os.fsync(new.fileno())
            new_file(path).replace(path)
            _sync_folder(path.parent)
            _overwrite(old)
            return Vacuumed(os.fstat(old.fileno()).st_size, os.fstat(new.fileno()).st_size)
    except apsw.Error as error:
        raise store_error(error, os.fspath(path)) from error
    finally:
        drop_unfinished(path)
        lock.release()


def new_file(path: Path) -> Path:
    """The path of the new file during a rewrite."""
    return Path(f"{path}{NEW_SUFFIX}")


def drop_unfinished(path: Path) -> None:
    """Remove the new file of an interrupted rewrite: it may hold data that was destroyed since."""
    with suppress(FileNotFoundError):
        with new_file(path).open("r+b") as left:
            _overwrite(left)
        new_file(path).unlink()


def _copy(path: Path, new: Path) -> None:
    drop_unfinished(path)
    make_file(new)  # nobody else may read it, not even for a moment
    db = open_writer(os.fspath(path), Knobs())
    try:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        allow_shrinking(db)
        db.execute("VACUUM INTO ?", (os.fspath(new),))
    finally:
        db.close()  # the last connection that closes removes the write-ahead log


def _overwrite(file: BufferedRandom) -> None:
    """Overwrite a file with zeros before it is removed (ADR 0026)."""
    left = os.fstat(file.fileno()).st_size
    while left > 0:
        left -= file.write(bytes(min(left, OVERWRITE_BYTES)))
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
