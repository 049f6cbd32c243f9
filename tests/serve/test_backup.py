"""A backup that is made as docs/operating.md says: of a running server, and put back as a store of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import skep
from tests.support.serving import serving


def test_a_backup_of_a_running_server_is_a_whole_store_of_one_moment(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    with (
        serving("--store", "skep.db", folder=here) as server,
        skep.Client(f"http://127.0.0.1:{server.listening()}") as client,
    ):
        client.push("orders", [{"n": n} for n in range(3)])
        with closing(sqlite3.connect(here / "skep.db")) as source, closing(sqlite3.connect(there / "skep.db")) as copy:
            source.backup(copy)
        client.push("orders", {"n": 3})
        assert [message.json()["n"] for message in client.pop("orders", batch=9)] == [0, 1, 2, 3]

    with (
        serving("--store", "skep.db", folder=there) as server,
        skep.Client(f"http://127.0.0.1:{server.listening()}") as client,
    ):
        assert [message.json()["n"] for message in client.pop("orders", batch=9)] == [0, 1, 2]
