"""The disk of the simulated owner: a database in memory, of which a death leaves what was committed.

All runs of a process use the same one. To empty it takes less than to make it, and SQLite keeps the statements that it has compiled.
"""

from __future__ import annotations

from typing import Any

import apsw

from skep.store.sqlite import SqliteStore, connection
from skep.store.sqlite.connection import MEMORY, Knobs, migrate, open_writer
from skep.store.sqlite.database import SQL
from skep.store.sqlite.session import Session

STATEMENTS = 512
"""How many compiled statements are kept: more than there are."""
TABLES = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"


class Disk:
    """What outlives the process that writes to it."""

    def __init__(self) -> None:
        self.db = _opened()
        names = [str(name) for (name,) in self.db.execute(TABLES)]
        found = {name: self.db.execute(f"SELECT * FROM {name}").fetchall() for name in names}
        self._new: dict[str, list[Any]] = {name: rows for name, rows in found.items() if rows}
        """The rows of a new database."""
        self._empty = "; ".join(f"DELETE FROM {name}" for name in names)

    def emptied(self) -> Disk:
        """The disk, as of a new database."""
        self.crash()
        with self.db:
            self.db.execute(self._empty)
            for name, rows in self._new.items():
                self.db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        self.db.execute("PRAGMA incremental_vacuum").fetchall()
        return self

    def crash(self) -> None:
        """Lose what was not committed."""
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")


class DiskStore(SqliteStore):
    """A store that begins with what an earlier one left."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(MEMORY)
        self._disk = disk

    def _connect(self) -> Session:
        self._disk.db.execute(SQL["release_claims"])
        return Session(self._disk.db)


def _opened() -> apsw.Connection:
    usual = connection._STATEMENT_CACHE
    try:
        vars(connection)["_STATEMENT_CACHE"] = STATEMENTS
        db = open_writer(MEMORY, Knobs())
    finally:
        vars(connection)["_STATEMENT_CACHE"] = usual
    migrate(db, MEMORY)
    return db
