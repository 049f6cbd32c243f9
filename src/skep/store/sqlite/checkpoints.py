"""Moving the write-ahead log into the database, once it is long.

SQLite would do it at the end of a commit, and let everybody who is in it wait. What is committed is safe before that, so here it
comes after the answers.
"""

from __future__ import annotations

from contextlib import suppress

import apsw


class Checkpoints:
    """The checkpoints of the one connection that writes."""

    def __init__(self, db: apsw.Connection, after_pages: int) -> None:
        self._db = db
        self._after_pages = after_pages
        self._log_pages = 0
        db.set_wal_hook(self._committed)  # which takes the place of SQLite's own

    def _committed(self, db: apsw.Connection, name: str, log_pages: int) -> int:  # noqa: ARG002 - what SQLite tells
        self._log_pages = log_pages
        return apsw.SQLITE_OK

    def run_if_due(self) -> None:
        """Move what can be moved. What cannot, because someone reads it or the disk is full, stays in the log, as safe as before."""
        if self._log_pages < self._after_pages:
            return
        self._log_pages = 0
        with suppress(apsw.Error):
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
