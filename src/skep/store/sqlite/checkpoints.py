"""Checkpoints: moving the write-ahead log into the database when it is long, and truncating it when data was destroyed.

SQLite would do this at the end of a commit, and all calls in the commit would wait. Committed data is safe before that. So a thread
with a connection of its own moves most of the log, while the writer goes on. The writer itself moves the little that it adds meanwhile:
the log can start again from its beginning only when all of it is moved, and would grow for ever otherwise. SQLite syncs the database
when all is moved, and then callers would wait for all pages to reach the disk; so the thread syncs those that it has moved.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw

CUT_LOG_BYTES = 128 * 1024 * 1024
CUT_WAIT_MS = 100
"""How long the writer waits for readers of the log before a cut; all calls wait meanwhile."""
SHORTEN_BYTES = 1024 * 1024
"""The log is shortened by this much at a time before it is cut. To free 32 MiB took a file system 50 ms."""


class Checkpoints:
    """The checkpoints of the one connection that writes."""

    def __init__(self, db: apsw.Connection, after_pages: int, connect: Callable[[], apsw.Connection]) -> None:
        """``connect`` opens another connection, which moves the log while the writer goes on."""
        self._db = db
        self._after_pages = after_pages
        self._connect = connect
        # Kept, as the connection may be in use by a thread later.
        self._log = Path(db.filename_wal)
        self._path = db.filename
        self._log_pages = 0
        self._cut_due = False
        self._thread = ThreadPoolExecutor(1, "skep-sqlite-checkpoint")
        self._mover: apsw.Connection | None = None
        self._file: int | None = None
        self._moving: Future[None] | None = None
        db.set_wal_hook(self._committed)  # which takes the place of SQLite's own

    def _committed(self, db: apsw.Connection, name: str, log_pages: int) -> int:  # noqa: ARG002 - what SQLite tells
        self._log_pages = log_pages
        return apsw.SQLITE_OK

    @property
    def due(self) -> bool:
        """Whether the write-ahead log is long, and no checkpoint is running."""
        return self._log_pages >= self._after_pages and self._moving is None

    def begin(self, done: Callable[[], object]) -> None:
        """Move the present log in the thread, beside the writer. It calls ``done`` at the end; then the writer must call `end`."""
        self._moving = self._thread.submit(self._move)
        self._moving.add_done_callback(lambda _: done())

    def _move(self) -> None:
        # Pages that cannot be moved, because of a reader or a full disk, stay in the log, as safe as before.
        with suppress(apsw.Error):
            if self._mover is None:
                self._mover = self._connect()
            self._mover.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        with suppress(OSError):  # a disk that fails: SQLite's own sync tells
            if self._file is None:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            os.fsync(self._file)

    def end(self) -> None:
        """Move the pages that were committed meanwhile."""
        self._wait()
        self._log_pages = 0
        with suppress(apsw.Error):
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _wait(self) -> None:
        moving, self._moving = self._moving, None
        if moving is not None:
            moving.result()

    def cut_soon(self) -> None:
        """Let the next `maintain` cut the log, as it may still hold destroyed data."""
        self._cut_due = True

    @property
    def wants_cut(self) -> bool:
        """Whether the log may hold destroyed data, or is very long because readers blocked its checkpoints."""
        return self._cut_due or self.log_bytes >= CUT_LOG_BYTES

    def move_ahead(self) -> Future[None]:
        """Move the present log in the thread, beside the writer, so that little is left for the cut that follows."""
        return self._thread.submit(self._move)

    @property
    def log_bytes(self) -> int:
        """The size of the log's file."""
        return self._log.stat().st_size if self._log.is_file() else 0

    def shorten(self, limit_bytes: int) -> bool:
        """Let the log begin anew, and truncate it to a limit, but not below what is in use; False while a reader uses it.

        SQLite truncates with the first commit to a log that begins anew, under its own lock: other processes may write and read meanwhile.
        """
        self._db.pragma("journal_size_limit", limit_bytes)
        try:
            if self._emptied(apsw.SQLITE_CHECKPOINT_RESTART):
                self._db.pragma("user_version", self._db.pragma("user_version"))  # a commit that changes nothing
        finally:
            self._db.pragma("journal_size_limit", -1)
        return self.log_bytes <= limit_bytes

    def cut(self) -> bool:
        """Move the whole log into the database and truncate it; False while a reader uses the log."""
        self._cut_due = True
        self._cut_due = not self._emptied(apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return not self._cut_due

    def _emptied(self, mode: int) -> bool:
        self._wait()
        waits_ms = self._db.pragma("busy_timeout")
        self._db.set_busy_timeout(CUT_WAIT_MS)
        try:
            self._db.wal_checkpoint(mode=mode)
        except apsw.BusyError:
            return False
        finally:
            self._db.set_busy_timeout(int(str(waits_ms)))
        return True

    def close(self) -> None:
        """Close the thread and its connection, after all other connections of the process.

        A process that closes any descriptor of a file loses all its locks on it (POSIX), also those of its connections.
        """
        self._thread.shutdown()
        if self._mover is not None:
            self._mover.close()
        if self._file is not None:
            os.close(self._file)
