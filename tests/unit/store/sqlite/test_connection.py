"""A file's schema and its write-ahead log: migrations are done whole, and checkpoints let the log begin anew."""

from __future__ import annotations

import threading
from pathlib import Path

import apsw
import pytest

from skep.store.migrate import Migration, load_migrations
from skep.store.sqlite import connection
from skep.store.sqlite.checkpoints import Checkpoints
from skep.store.sqlite.connection import Knobs, migrate, open_writer

PAGES = 50


def test_when_a_migration_fails_none_is_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "skep.db")
    broken = Migration(2, "broken", "CREATE TABLE half (x); CREATE TABLE half (x)", "")
    with monkeypatch.context() as patched:
        patched.setattr(connection, "load_migrations", lambda folder: [load_migrations(folder)[0], broken])
        db = open_writer(path, Knobs())
        with pytest.raises(apsw.SQLError):
            migrate(db, path)
        assert db.execute("SELECT name FROM sqlite_schema").fetchall() == []
        db.close()
    db = open_writer(path, Knobs())
    migrate(db, path)

    assert db.execute("SELECT count(*) > 1 FROM migration").fetchall() == [(1,)]
    db.close()


def test_the_log_begins_anew_after_a_checkpoint_that_left_its_last_pages(tmp_path: Path) -> None:
    """A reader keeps them from being moved, as it would when the writer commits them meanwhile."""
    path = str(tmp_path / "skep.db")
    db = open_writer(path, Knobs())
    checkpoints = Checkpoints(db, PAGES, lambda: open_writer(path, Knobs()))
    db.execute("CREATE TABLE filled (x)")
    db.execute("INSERT INTO filled VALUES (zeroblob(?))", (PAGES * 4096,))
    was_due = checkpoints.due
    reader = apsw.Connection(path)
    reader.execute("BEGIN; SELECT count(*) FROM filled").fetchall()
    db.execute("INSERT INTO filled VALUES (1)")
    moved = threading.Event()
    checkpoints.begin(moved.set)
    assert moved.wait(10)
    reader.close()
    checkpoints.end()
    db.execute("INSERT INTO filled VALUES (2)")

    assert (was_due, checkpoints.due) == (True, False)
    checkpoints.close()
    db.close()
