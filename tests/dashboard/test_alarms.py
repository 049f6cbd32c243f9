"""Alarms: calls that are refused or fail are seen where people and programs look, counted, and for a minute only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import apsw
import pytest

from skep.clock import Instant, ManualClock
from skep.config import AccessSettings
from skep.model.key import Verb
from skep.observe.failures import PAIRS_PER_SECOND, WINDOW_SECONDS, Failures
from skep.observe.metrics import Meter
from skep.observe.tally import Tally, keep_of_ended
from skep.store.sqlite.connection import Knobs
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Door
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api

START = Instant(1_790_000_000_000_000)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Somebody holds the file, as a backup that hangs does."""
    other = apsw.Connection(str(path))
    other.set_busy_timeout(10_000)  # the server may be writing
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


def test_a_locked_store_that_refuses_every_push_is_no_green_overview(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.store.sqlite.database.Knobs", partial(Knobs, busy_timeout_ms=20))
    path = tmp_path / "skep.db"
    with running_server(str(path), clock=clock) as server:
        api, visitor = Api(server, "default"), Visitor(server)
        api.push("orders", 1)
        assert "No alerts" in visitor.open("/").text

        with locked(path):
            codes = [api.push("orders", n).code for n in range(3)]

        assert codes == ["STORE_BUSY"] * 3
        overview = visitor.open("/").text
        assert "1 alert " in overview
        assert "3 calls failed with STORE_BUSY in the last minute" in overview
        assert "Admission refusing" in overview
        operations = visitor.open("/operations").text
        assert "Accepting all requests" not in operations
        assert "3 calls failed with STORE_BUSY in the last minute" in operations
        status = api.get("/api/v1/status").json
        assert status["status"] == "attention"
        assert status["failedCalls"] == [{"code": "STORE_BUSY", "calls": 3}]
        assert api.get("/api/v1/resources/overview").json["failedCalls"] == 3

        api.push("orders", 4)
        clock.advance(WINDOW_SECONDS)

        assert "No alerts" in visitor.open("/").text
        assert api.get("/api/v1/status").json["status"] == "ok"
        assert api.get("/api/v1/resources/overview").json["failedCalls"] == 0
        api.close()


def test_one_refused_call_is_one_and_a_caller_s_own_mistake_is_none(api: Api, visitor: Visitor) -> None:
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_depth": 1}})
    api.push("orders", 1)

    assert api.push("orders", 2).code == "QUEUE_FULL"
    assert api.get("/api/v1/queues/nosuch").status == 404
    assert api.post("/api/v1/push", {"items": 1}).status in (400, 422)

    assert api.get("/api/v1/status").json["failedCalls"] == [{"code": "QUEUE_FULL", "calls": 1}]
    assert "1 call failed with QUEUE_FULL in the last minute" in visitor.open("/").text


def test_failing_calls_are_seen_before_there_is_any_queue(server: RunningServer, visitor: Visitor) -> None:
    server.app.meter.failures.add(server.engine.now(), "default", "STORE_FULL")

    assert "1 call failed with STORE_FULL" in visitor.open("/").text


def test_a_tenant_s_key_sees_its_own_tenant_s_failures_only() -> None:
    with running_server(access=AccessSettings(required=True)) as server:
        for tenant in ("acme", "acme", "zoo"):
            server.app.meter.failures.add(server.engine.now(), tenant, "OVERLOADED")
        door = Door(server, "acme")
        tenants = door.caller(Verb.READ, tenant="acme")
        everyone = door.caller(Verb.READ, tenants=["*"], tenant="acme")

        assert tenants.get("/api/v1/status").json["failedCalls"] == [{"code": "OVERLOADED", "calls": 2}]
        assert everyone.get("/api/v1/status").json["failedCalls"] == [{"code": "OVERLOADED", "calls": 3}]
        door.close()


def test_failures_of_all_processes_on_a_port_are_added_up(tmp_path: Path) -> None:
    first, second, ended = Meter(), Meter(), Meter()
    for meter in (first, second, ended):
        meter.failures.add(START, "default", "STORE_BUSY")
    Tally(tmp_path, "2").note(second)
    Tally(tmp_path, "3").note(ended)
    keep_of_ended(tmp_path, "3", 10)

    whole = Tally(tmp_path, "1").total(first)

    assert whole.failures.lately(START) == [("STORE_BUSY", 3)]
    assert first.failures.lately(START) == [("STORE_BUSY", 1)]


def test_made_up_tenants_take_no_more_memory_and_are_still_counted() -> None:
    failures = Failures()

    for number in range(PAIRS_PER_SECOND * 2):
        failures.add(START, f"tenant-{number}", "OVERLOADED")

    assert failures.lately(START) == [("OVERLOADED", PAIRS_PER_SECOND * 2)]
    assert failures.lately(START, "tenant-0") == [("OVERLOADED", 1)]
    assert len(failures.notes()) == PAIRS_PER_SECOND + 1


def test_what_is_older_than_a_minute_is_forgotten_also_after_a_clock_was_put_back() -> None:
    failures = Failures()
    failures.add(START, "a", "OVERLOADED")
    failures.add(Instant(START - 3_600_000_000), "a", "OVERLOADED")

    assert len(failures.notes()) == 1
