"""The SQLite file of a slot: pushes by number, in the order they were spooled in."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import apsw

from skep.engine.push.spool.record import Record, decode
from skep.runtime.private_files import make_file

CORRUPT = (apsw.CorruptError, apsw.NotADBError)
BUSY_MS = 5_000
SKIPPED_NUMBERS = 100_000
"""The search in a damaged file ends after this many unreadable numbers in a row."""

# The checksum covers the body, as SQLite has no checksums of rows. `error` is the reason why a push was given up.
_SCHEMA = "CREATE TABLE IF NOT EXISTS push (number INTEGER PRIMARY KEY, body BLOB, checksum INTEGER, error TEXT)"
_INSERT = "INSERT INTO push VALUES (?, ?, ?, ?)"
_SELECT = "SELECT number, coalesce(CAST(body AS BLOB), x''), checksum, error FROM push WHERE number > ? ORDER BY number"


class SpooledRow(NamedTuple):
    """A push as it is stored in the file."""

    number: int
    body: bytes
    checksum: int
    error: str | None = None

    def record(self) -> Record:
        """The push; ValueError when it is damaged."""
        if crc32(self.body) != self.checksum:
            raise ValueError("the checksum is wrong")
        return decode(self.body)


def open_to_write(path: Path) -> apsw.Connection:
    """Open the file for writing, and make it if it is missing. A commit takes one fsync."""
    make_file(path)  # SQLite gives the files of its write-ahead log the same mode
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(BUSY_MS)  # for `skep spool files`, which may read the file while it is made
        db.pragma("journal_mode", "WAL")
        db.pragma("synchronous", "FULL")
        db.execute(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def open_to_read(path: Path) -> apsw.Connection:
    """Open the file for reading, while another process may write to it."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    db.set_busy_timeout(BUSY_MS)
    return db


def remove(path: Path, db: apsw.Connection | None = None) -> None:
    """Remove the file and its write-ahead log, when none of its pushes is needed any more."""
    if db is not None:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.close()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def insert(db: apsw.Connection, rows: Iterable[SpooledRow]) -> int:
    """Add pushes, all or none, durably. Returns the bytes of all pushes."""
    with db:
        db.executemany(_INSERT, rows)
        size = used_bytes(db)
    return size  # noqa: RET504 - it is asked before the commit, which may fail


def delete(db: apsw.Connection, numbers: Iterable[int]) -> int:
    """Remove pushes, all or none. Returns the bytes of the remaining pushes."""
    with db:
        db.executemany("DELETE FROM push WHERE number = ?", [(number,) for number in numbers])
        size = used_bytes(db)
    return size  # noqa: RET504 - it is asked before the commit, which may fail


def used_bytes(db: apsw.Connection) -> int:
    """The bytes that the pushes take: all pages of the file that are in use."""
    return int((db.pragma("page_count") - db.pragma("freelist_count")) * db.pragma("page_size"))


def rows(db: apsw.Connection, after: int = 0) -> Generator[SpooledRow]:
    """The pushes with numbers above ``after``, in order."""
    for found in db.execute(_SELECT, (after,)):
        yield SpooledRow(*found)


def is_sound(db: apsw.Connection) -> bool:
    """Whether SQLite finds no damage."""
    try:
        return bool(db.pragma("quick_check") == "ok")
    except CORRUPT:
        return False


def readable_rows(db: apsw.Connection) -> Iterator[SpooledRow]:
    """The pushes of a damaged file that can be read, before and after the damage."""
    number = skipped = 0
    while skipped < SKIPPED_NUMBERS:
        try:
            for row in rows(db, number):
                number, skipped = row.number, 0
                yield row
            return
        except apsw.CorruptError:
            number += 1
            skipped += 1
        except (apsw.NotADBError, apsw.SQLError):  # the table itself is lost
            return
