"""Damage to the file of a slot."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw

from skep.engine.push.spool.slot import FILE
from tests.spool.driver import SpoolDriver

PAGE_BYTES = 4096


def damage(slot: Path, before: bytes, after: bytes) -> None:
    """Change bytes of a push, in a file that nobody has open."""
    data = (slot / FILE).read_bytes()
    assert data.count(before) == 1
    (slot / FILE).write_bytes(data.replace(before, after))


def spoil_page(slot: Path, holding: bytes) -> None:
    """Fill the page that holds some bytes with zeros."""
    data = bytearray((slot / FILE).read_bytes())
    start = data.index(holding) // PAGE_BYTES * PAGE_BYTES
    data[start : start + PAGE_BYTES] = bytes(PAGE_BYTES)
    (slot / FILE).write_bytes(data)


def damage_while_open(driver: SpoolDriver) -> None:
    """Say in the file of a running server that there are free pages, where there are none."""
    (path,) = driver.folder.rglob(FILE)
    with closing(apsw.Connection(str(path))) as db:
        db.pragma("wal_checkpoint", "TRUNCATE")
        db.execute("CREATE TABLE other (x); INSERT INTO other VALUES (zeroblob(100000)); DROP TABLE other")
        db.pragma("wal_checkpoint", "TRUNCATE")
    data = bytearray(path.read_bytes())
    first_free = int.from_bytes(data[32:36], "big")
    assert first_free
    start = (first_free - 1) * PAGE_BYTES
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xff" * PAGE_BYTES)
