"""Readiness: a server whose store takes no writes is not ready, says why, and is ready again by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import apsw
import pytest
from structlog.testing import capture_logs

from skep.config import HttpLimits
from skep.store.sqlite.connection import Knobs
from skep.testing.server import running_server
from tests.http.driver import Api


def store_up(api: Api) -> bool:
    metrics = api.request("GET", "/metrics", headers={"Accept": "application/json"}).json
    return bool(metrics["database"]["healthy"])


def test_a_server_is_not_ready_while_another_process_holds_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.store.sqlite.database.Knobs", partial(Knobs, busy_timeout_ms=20))
    path = tmp_path / "skep.db"
    with running_server(str(path), limits=HttpLimits(metrics_seconds=0)) as server, capture_logs() as told:
        api = Api(server, "default")
        assert api.get("/ready").status == 200
        other = apsw.Connection(str(path))
        other.set_busy_timeout(30_000)  # the server's own chores write, too
        other.execute("BEGIN IMMEDIATE")

        assert [api.push("orders", n).code for n in range(3)] == ["STORE_BUSY"] * 3

        not_ready = api.get("/ready")
        assert not_ready.status == 503
        assert not_ready.json["reason"].startswith("STORE_BUSY")
        assert not store_up(api)

        other.execute("ROLLBACK")
        other.close()
        assert api.get("/ready").status == 200
        assert store_up(api)
        api.close()
    events = [entry["event"] for entry in told if entry["event"].startswith("the store takes")]
    assert events == ["the store takes no writes", "the store takes writes again"]


def test_the_log_tells_once_of_a_store_that_takes_writes_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.store.sqlite.database.Knobs", partial(Knobs, busy_timeout_ms=20))
    path = tmp_path / "skep.db"
    with running_server(str(path)) as server, capture_logs() as told:
        api = Api(server, "default")
        api.push("orders", 0)
        other = apsw.Connection(str(path))
        other.set_busy_timeout(30_000)
        for n in range(3):
            other.execute("BEGIN IMMEDIATE")
            assert api.push("orders", n).code == "STORE_BUSY"
            other.execute("ROLLBACK")
            assert api.push("orders", n).status == 201
        other.close()
        api.close()
    events = [entry["event"] for entry in told if entry["event"].startswith("the store takes")]
    assert events == ["the store takes no writes", "the store takes writes again"]


def test_the_log_tells_once_of_a_disk_that_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("skep.store.sqlite.database.Knobs", partial(Knobs, max_pages=150))
    with running_server(str(tmp_path / "skep.db")) as server, capture_logs() as told:
        api = Api(server, "default")

        replies = [api.push("orders", "x" * 20_000) for _ in range(40)]

        assert replies[-1].code == "STORE_FULL"
        api.close()
    [entry] = [entry for entry in told if entry["event"] == "the store takes no writes"]
    assert "STORE_FULL" in entry["error"]
