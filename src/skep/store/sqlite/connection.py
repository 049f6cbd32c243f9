"""Opening the file: the lock that keeps a second server out, pragmas, migrations, and the meaning of SQLite's errors.

With `synchronous=FULL` each commit is an fsync (I1). `secure_delete` overwrites deleted data with zeros, so that nobody can read it
out of the file. The lock is on a file beside the database. The store holds it while it is open; when the process dies, the kernel
releases it.
"""

from __future__ import annotations

import fcntl
import os
import time
from importlib import resources
from pathlib import Path

import apsw
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.runtime.private_files import FILE_MODE, make_file
from skep.store.migrate import load_migrations, missing_migrations, tell_upgrade

MEMORY = ":memory:"
_STATEMENT_CACHE = 256
_LOCK_POLL_SECONDS = 0.05
_MIGRATIONS_TABLE = (
    "CREATE TABLE IF NOT EXISTS migration "
    "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT"
)


class Knobs(Struct, frozen=True, kw_only=True):
    """Tunable settings, with measured defaults."""

    busy_timeout_ms: int = 5_000
    checkpoint_pages: int = 8_000
    cache_kib: int = 64 * 1024
    mmap_bytes: int = 256 * 1024 * 1024
    bulk_readers: int = 2
    max_calls_per_commit: int = 256
    max_pages: int = 0
    """An upper bound of the file's size in pages; 0 leaves SQLite's own."""


class FileLock:
    """The right to be the one writer of a database file."""

    def __init__(self, path: str, timeout_ms: int) -> None:
        self._path = Path(path + ".lock")
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise SkepError(
                Code.STORE_UNAVAILABLE,
                f"cannot open {path}: {error.strerror}; check that its folder exists and is writable",
            ) from error
        try:
            self._wait(path, timeout_ms)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _wait(self, path: str, timeout_ms: int) -> None:
        give_up = time.monotonic() + timeout_ms / 1_000
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up:
                    owner = os.pread(self._descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
                    raise SkepError(
                        Code.STORE_BUSY,
                        f"{path} is in use by another server (process {owner}): stop it, give this one a file of its "
                        "own, or use PostgreSQL, which several servers can share",
                    ) from None
                time.sleep(_LOCK_POLL_SECONDS)
            else:
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
                return

    def release(self) -> None:
        """Release the lock. The file stays: if it were removed, two processes could lock two files of the same name."""
        os.close(self._descriptor)


def open_writer(path: str, knobs: Knobs) -> apsw.Connection:
    """A connection that may write."""
    if path != MEMORY:
        make_file(Path(path))  # SQLite gives the write-ahead log and its index the same mode
    db = _open(path, apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE, knobs)
    if db.pragma("page_count") == 0:
        # The setting has an effect only in an empty file, and in files that are rewritten (ADR 0035).
        allow_shrinking(db)
    if path != MEMORY:
        _pragma(db, "journal_mode", "WAL")
        _pragma(db, "mmap_size", knobs.mmap_bytes)
    _pragma(db, "synchronous", "FULL")
    # ON and not FAST, which leaves free pages as they were. Measured: deleting rows of 300 B takes a tenth longer and writes 15%
    # more; rows of 6 kB are deleted as fast as they are pushed; a queue with pushes and retention at once is no slower.
    _pragma(db, "secure_delete", "ON")
    # Savepoints keep their undo data in memory, not in a temporary file.
    _pragma(db, "temp_store", "MEMORY")
    _pragma(db, "cache_size", -knobs.cache_kib)
    if knobs.max_pages:
        _pragma(db, "max_page_count", knobs.max_pages)
    return db


def open_reader(path: str, knobs: Knobs) -> apsw.Connection:
    """A connection that cannot write; it sees committed snapshots and never delays the writer."""
    db = _open(path, apsw.SQLITE_OPEN_READONLY, knobs)
    _pragma(db, "mmap_size", knobs.mmap_bytes)
    _pragma(db, "temp_store", "MEMORY")
    return db


def _open(path: str, flags: int, knobs: Knobs) -> apsw.Connection:
    """A connection that plans each statement once, not again for each value of a parameter (QPSG).

    SQLite would plan again for each parameter that an index is searched by, in case statistics help. There are no statistics, and
    planning took five times as long as reading the next messages of a partition (36 against 7 µs).
    """
    db = apsw.Connection(path, flags=flags, statementcachesize=_STATEMENT_CACHE)
    db.set_busy_timeout(knobs.busy_timeout_ms)
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return db


def allow_shrinking(db: apsw.Connection) -> None:
    """Let an empty or rewritten file give free pages back a few at a time."""
    _pragma(db, "auto_vacuum", "INCREMENTAL")


def _pragma(db: apsw.Connection, name: str, value: str | int) -> None:
    for _ in db.execute(f"PRAGMA {name} = {value}"):
        pass


def migrate(db: apsw.Connection, path: str) -> None:
    """Bring the schema up to date: all missing migrations, with their records, in one transaction."""
    available = load_migrations(resources.files(__package__ or "").joinpath("migrations"))
    db.execute("BEGIN IMMEDIATE")
    try:
        db.execute(_MIGRATIONS_TABLE)
        rows = db.execute("SELECT number, checksum FROM migration").fetchall()
        applied = {int(str(number)): str(checksum) for number, checksum in rows}
        steps = missing_migrations(available, applied, path)
        tell_upgrade(applied, steps, path)
        for step in steps:
            db.execute(step.sql)
            db.execute("INSERT INTO migration VALUES (?, ?, ?)", (step.number, step.name, step.checksum))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def store_error(error: apsw.Error, path: str) -> SkepError:
    """The error that a caller gets for an SQLite error, with its cure."""
    text = f"{path}: {error}"
    if isinstance(error, apsw.BusyError | apsw.LockedError | apsw.ProtocolError):
        return SkepError(Code.STORE_BUSY, f"{text}; another process holds the file: stop it, or try again")
    if isinstance(error, apsw.NoMemError):
        return SkepError(
            Code.STORE_FULL, f"{text}; nothing was written: give the server more memory, or send less at a time"
        )
    if isinstance(error, apsw.FullError) or "disk is full" in str(error):
        return SkepError(Code.STORE_FULL, f"{text}; nothing was written: free some space and try again")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return SkepError(
            Code.STORE_CORRUPT, f"{text}; this is no sound Skep database: restore a backup or move it away"
        )
    if isinstance(
        error, apsw.CantOpenError | apsw.ReadOnlyError | apsw.IOError | apsw.PermissionsError | apsw.AuthError
    ):
        return SkepError(Code.STORE_UNAVAILABLE, f"{text}; check the disk, the folder and its permissions")
    return SkepError(Code.INTERNAL, f"{text} ({type(error).__name__})")
