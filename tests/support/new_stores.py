"""New SQLite stores as copies of one that the migrations made: a copy takes a hundredth of their time, and most tests want a new store.

What the migrations do to a file that is new is what the first store of each worker shows, and every server that is a process.
"""

from __future__ import annotations

import functools
from contextlib import closing

import apsw

from skep.store.sqlite import database
from skep.store.sqlite.connection import MEMORY, Knobs, migrate, open_writer


def copy_new_stores() -> None:
    """Let every store that is opened in this process from now on be a copy, if it is new."""
    assert vars(database)["migrate"] is migrate, "this is the name that a store calls"
    vars(database)["migrate"] = _copy_if_new


def _copy_if_new(db: apsw.Connection, path: str) -> None:
    [(tables,)] = db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    if tables:
        migrate(db, path)
        return
    with closing(_migrated()) as made, db.backup("main", made, "main") as backup:
        backup.step()


def _migrated() -> apsw.Connection:
    """A connection of the caller's own: stores have threads of their own, too."""
    db = apsw.Connection(MEMORY)
    db.deserialize("main", _image())
    return db


@functools.cache
def _image() -> bytes:
    db = open_writer(MEMORY, Knobs())
    migrate(db, MEMORY)
    image = db.serialize("main")
    db.close()
    return image
