"""SQLite that gets no memory."""

from __future__ import annotations

import apsw

from skep.errors import Code
from skep.store.sqlite.connection import store_error


def refused_for_want_of_memory() -> apsw.Error:
    """What a connection that may have only so much memory raises for a value that needs more."""
    db = apsw.Connection(":memory:")
    before = apsw.hard_heap_limit(apsw.memory_used() + 1_000_000)
    try:
        db.execute("SELECT zeroblob(100000000) || 'x'").fetchall()
    except apsw.Error as error:
        return error
    finally:
        apsw.hard_heap_limit(before)
        db.close()
    raise AssertionError("there was memory")


def test_who_gets_no_memory_is_told_so_and_not_to_make_room_on_the_disk() -> None:
    refused = store_error(refused_for_want_of_memory(), "some.db")

    assert refused.code is Code.STORE_FULL
    assert "more memory" in refused.message
    assert "space" not in refused.message
