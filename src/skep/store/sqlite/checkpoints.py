"""Moving the write-ahead log into the database, once it is long, and cutting it, once something was destroyed.

SQLite would do it at the end of a commit, and let everybody who is in it wait. What is committed is safe before that, so here most of
it is moved beside the writer, by a thread with a connection of its own. What the writer adds meanwhile it moves itself, which is
little: only when all is moved can the log begin anew, and would grow for ever otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import apsw

CUT_LOG_BYTES = 128 * 1024 * 1024
CUT_WAIT_MS = 100
"""How long the writer waits for readers of the log when it is to be cut; everybody else waits meanwhile."""


class Checkpoints:
    """The checkpoints of the one connection that writes."""

    def __init__(self, db: apsw.Connection, after_pages: int, connect: Callable[[], apsw.Connection]) -> None:
        """``connect`` opens another connection, which moves the log while the writer goes on."""
        self._db = db
        self._after_pages = after_pages
        self._connect = connect
        self._log = Path(db.filename_wal)  # the connection itself may be in a thread when somebody asks
        self._log_pages = 0
        self._cut_due = False
        self._thread = ThreadPoolExecutor(1, "skep-sqlite-checkpoint")
        self._mover: apsw.Connection | None = None
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
        """Move what is there now beside the writer; it calls ``done``, and then `end` is for the writer to call."""
        self._moving = self._thread.submit(self._move)
        self._moving.add_done_callback(lambda _: done())

    def _move(self) -> None:
        # What cannot be moved, because someone reads it or the disk is full, stays in the log, as safe as before.
        with suppress(apsw.Error):
            if self._mover is None:
                self._mover = self._connect()
            self._mover.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def end(self) -> None:
        """Move what was committed meanwhile."""
        self._wait()
        self._log_pages = 0
        with suppress(apsw.Error):
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _wait(self) -> None:
        moving, self._moving = self._moving, None
        if moving is not None:
            moving.result()

    def cut_soon(self) -> None:
        """Something was destroyed that the log may still hold: the next upkeep cuts it."""
        self._cut_due = True

    @property
    def wants_cut(self) -> bool:
        """Whether the log may hold what was destroyed, or has outgrown its checkpoints: a reader was in their way."""
        return self._cut_due or (self._log.is_file() and self._log.stat().st_size >= CUT_LOG_BYTES)

    def move_ahead(self) -> Future[None]:
        """Move what is there now beside the writer, so that the cut which follows has little left to move."""
        return self._thread.submit(self._move)

    def cut(self) -> bool:
        """Move the whole log into the database and leave nothing of it; False while someone reads what is in it."""
        self._wait()
        self._cut_due = True
        waits_ms = self._db.pragma("busy_timeout")
        self._db.set_busy_timeout(CUT_WAIT_MS)
        try:
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        finally:
            self._db.set_busy_timeout(int(str(waits_ms)))
        self._cut_due = False
        return True

    def close(self) -> None:
        """Let go of the thread and its connection."""
        self._thread.shutdown()
        if self._mover is not None:
            self._mover.close()
