"""Calls that are queued: what they are answered, and how one looks at them. The server of these tests is always busy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import skep
from skep.clock import MICROS_PER_SECOND, ManualClock
from skep.config import EngineSettings, OperationSettings
from skep.ids import parse_id
from skep.model import SettleStatus
from skep.model.operation import OperationStatus
from skep.testing.server import RunningServer, running_server
from tests.engine.driver import until
from tests.http.driver import Api, Reply
from tests.http.test_arrow import batch, stream
from tests.http.test_arrow import push as push_arrow
from tests.http.test_staging import log, publish, stage
from tests.support.postgres import PostgresServer
from tests.support.waiting import until_so


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "skep.db")
    else:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        dsn = server.create_database()
        yield dsn
        server.drop_database(dsn)


def busy(server: RunningServer, is_busy: bool = True) -> None:
    """Let the server take itself for busy, or not."""
    for gate in (server.engine.admission.push, server.engine.admission.ack_batch, server.engine.admission.ack_single):
        gate.load = 0.0 if is_busy else 1e9


@pytest.fixture
def server(store: str) -> Iterator[RunningServer]:
    """A server that is busy and performs nothing."""
    with running_server(store, settings=EngineSettings(operations=OperationSettings(drain=False))) as server:
        busy(server)
        yield server


@pytest.fixture
def api(server: RunningServer) -> Iterator[Api]:
    api = Api(server, "tenant")
    yield api
    api.close()


def test_a_queued_push_is_answered_202_with_an_entry_for_every_item(api: Api) -> None:
    items = [{"queue": "q", "partition": "A", "payload": n, "transactionId": f"t{n}"} for n in range(3)]

    reply = api.post("/api/v1/push", {"items": items})

    told = reply.json
    assert reply.status == 202
    (group,) = told["operations"]
    assert (told["pushed"], told["status"], told["operationId"], told["reason"]) == (
        True, "queued", group["operationId"], "system_busy",
    )  # fmt: skip
    assert (group["queuePosition"], group["items"]) == (1, [0, 1, 2])
    assert [(m["transaction_id"], m["status"], m["operationId"]) for m in told["messages"]] == [
        (f"t{n}", "queued", group["operationId"]) for n in range(3)
    ]
    assert told["estimatedWait"] > 0


def test_a_pop_whose_acks_were_queued_names_their_operations(server: RunningServer, api: Api) -> None:
    busy(server, False)
    api.push("q", 1)
    [message] = api.pop("q")
    busy(server)

    reply = api.post("/api/v1/pop/queue/q", {"acknowledgments": [{"leaseId": message["leaseId"], "seq": 1}]})

    [result] = reply.json["results"]
    assert (reply.status, result["status"]) == (200, "queued")
    assert api.get(f"/api/v1/operations/{result['operationId']}").json["status"] == "pending"


def test_I15_a_push_to_several_partitions_is_stored_at_once_or_refused_and_never_queued(api: Api) -> None:
    items = [{"queue": "q", "partition": p, "payload": n} for n, p in enumerate("ABA")]

    stored = api.post("/api/v1/push", {"items": items})
    ahead = api.push("q", 3, partition="B")
    refused = api.post("/api/v1/push", {"items": items})

    assert (stored.status, ahead.status) == (201, 202)
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "OPERATIONS_AHEAD", "1")
    assert log(api) == [0, 1, 2]


def test_what_is_blocked_shows_in_listings_health_metrics_and_statistics() -> None:
    clock = ManualClock()
    with running_server(settings=EngineSettings(), clock=clock) as server:
        api = Api(server, "tenant")
        api.post("/api/v1/configure", {"queue": "q", "settings": {"max_depth": 1}})
        api.push("q", 0)
        busy(server)
        id_ = api.push("q", 1).json["operationId"]
        server.run(_shown_as_blocked(api.tenant, id_, server))
        clock.advance(OperationSettings().look_seconds)
        server.run(until(lambda: server.engine.operations.blocked > 0))
        server.run(until(lambda: server.engine.operations._performer.idle))  # it was tried again

        shown = api.get(f"/api/v1/operations/{id_}").json
        assert (shown["status"], shown["code"]) == ("blocked", "QUEUE_FULL")
        assert shown["blockedAt"] is not None
        assert shown["lastErrorAt"] > shown["blockedAt"]  # it was tried again, and failed again
        assert shown["latencySeconds"] is None
        assert [one["id"] for one in api.get("/api/v1/operations?status=blocked").json["operations"]] == [id_]
        assert api.get("/health").json["warnings"] == [
            "queued operations that are blocked and tried again: 1; see skep ops list --status blocked"
        ]
        assert "skep_operations_blocked 1.0" in api.get("/metrics").body.decode()
        assert api.get("/api/v1/operations/stats").json["blocked"] == 1
        assert "1 operation blocked" in api.get("/operations?tenant=tenant").body.decode()
        waited = clock.now() - server.run(server.engine.operations.find("tenant", parse_id(id_))).created_at
        cancelled = api.delete(f"/api/v1/operations/{id_}").json
        assert (cancelled["status"], cancelled["latencySeconds"]) == ("cancelled", waited / MICROS_PER_SECOND)
        api.close()


async def _shown_as_blocked(tenant: str, id_: str, server: RunningServer) -> None:
    async with asyncio.timeout(30):
        while (await server.engine.operations.find(tenant, parse_id(id_))).status is not OperationStatus.BLOCKED:
            pass


def test_who_would_overtake_is_queued_or_refused(server: RunningServer, api: Api) -> None:
    api.push("q", 1, partition="P")
    busy(server, False)

    behind = api.push("q", 2, partition="P")
    other = api.push("q", 3, partition="other")
    refused = api.post("/api/v1/transaction", {"items": [{"queue": "q", "partition": "P", "payload": 4}]})

    assert (behind.status, behind.json["reason"]) == (202, "maintaining_order")
    assert other.status == 201
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (429, "OPERATIONS_AHEAD", "1")


def test_what_cannot_be_queued_is_refused_whole_until_it_overtakes_nobody(server: RunningServer, api: Api) -> None:
    busy(server, False)
    api.push("q", "dies", partition="P")
    [message] = api.pop("q")
    api.ack(message, "dlq")
    stage(api, batch(payload=["6", "7"], partition=["other", "P"]))
    busy(server)
    api.push("q", 1, partition="P")
    busy(server, False)
    calls: dict[str, Callable[[], Reply]] = {
        "arrow": lambda: push_arrow(api, stream(batch(payload=["4", "5"], partition=["other", "P"]))),
        "publish": lambda: publish(api, (0, 1, 2)),
        "replay": lambda: api.post("/api/v1/dlq/replay", {"queue": "q"}),
    }

    refused = {name: call() for name, call in calls.items()}
    during = log(api)
    server.engine.operations._performer._settings = OperationSettings()
    server.run(_drained(server))
    accepted = {name: call().status for name, call in calls.items()}

    told = {name: (reply.status, reply.code, reply.headers["retry-after"]) for name, reply in refused.items()}
    assert told == dict.fromkeys(calls, (429, "OPERATIONS_AHEAD", "1"))
    assert during == ["dies"]
    assert accepted == {"arrow": 201, "publish": 200, "replay": 200}
    assert log(api) == ["dies", 1, 4, 5, 6, 7, "dies"]


def test_operations_are_shown_listed_and_cancelled(api: Api) -> None:
    ids = [api.push("q", n, partition=f"P{n}").json["operationId"] for n in range(3)]

    shown = api.get(f"/api/v1/operations/{ids[0]}").json
    listed = api.get("/api/v1/operations?limit=2").json
    rest = api.get(f"/api/v1/operations?limit=2&after={listed['after']}").json
    cancelled = api.delete(f"/api/v1/operations/{ids[1]}")
    again = api.delete(f"/api/v1/operations/{ids[1]}")
    stats = api.get("/api/v1/operations/stats").json

    assert (shown["status"], shown["kind"], shown["queue"], shown["partition"], shown["messages"], shown["result"]) == (
        "pending", "push", "q", "P0", 1, None,
    )  # fmt: skip
    assert [one["id"] for one in listed["operations"] + rest["operations"]] == ids[::-1]
    assert (cancelled.status, cancelled.json["status"]) == (200, "cancelled")
    assert (again.status, again.code) == (409, "OPERATION_NOT_PENDING")
    assert (stats["depth"], stats["stuck"]) == (2, 0)
    assert {(one["status"], one["count"]) for one in stats["operations"]} == {("pending", 2), ("cancelled", 1)}
    assert stats["pool"].keys() == {"utilisation", "active", "idle", "waiting"}
    assert api.get("/api/v1/operations?status=cancelled").json["operations"][0]["id"] == ids[1]
    assert api.get("/api/v1/operations/00000000-0000-7000-8000-000000000000").code == "OPERATION_NOT_FOUND"
    assert api.get("/api/v1/operations?status=nonsense").status == 422
    metrics = api.get("/metrics").body.decode()
    assert 'skep_operations_waiting{kind="push"} 2.0' in metrics
    assert api.get("/health").json == {"status": "ok", "reason": None, "warnings": []}


def test_what_is_stuck_shows_in_health_metrics_and_log_and_the_server_is_well() -> None:
    clock = ManualClock()
    settings = EngineSettings(operations=OperationSettings(drain=False, timeout_seconds=5))
    with capture_logs() as logged, running_server(settings=settings, clock=clock) as server:
        busy(server)
        api = Api(server, "tenant")
        id_ = api.push("q", 1).json["operationId"]
        assert api.get("/health").json["warnings"] == []

        clock.advance(10.5)
        server.run(_told_stuck(server))

        health = api.get("/health")
        assert (health.status, health.json["status"]) == (200, "ok")
        assert health.json["warnings"] == [
            "queued operations that are stuck, waiting for more than twice their timeout: 1"
        ]
        assert "skep_operations_stuck 1.0" in api.get("/metrics").body.decode()
        assert api.get("/api/v1/operations/stats").json["stuck"] == 1
        assert api.get(f"/api/v1/operations/{id_}").json["stuck"] is True
        api.close()
    assert [(line["event"], line["stuck"]) for line in logged if "stuck" in line] == [("operations are stuck", 1)]


async def _told_stuck(server: RunningServer) -> None:
    await until(lambda: server.engine.operations.stuck == 1)


def test_other_tenants_see_nothing_of_it(server: RunningServer, api: Api) -> None:
    id_ = api.push("q", 1).json["operationId"]
    other = Api(server, "other")

    assert other.get(f"/api/v1/operations/{id_}").status == 404
    assert other.delete(f"/api/v1/operations/{id_}").status == 404
    assert other.get("/api/v1/operations").json["operations"] == []
    other.close()


def test_the_limit_comes_first_and_operations_resume_when_there_is_room(server: RunningServer, api: Api) -> None:
    server.engine.admission.push.operations = 3
    statuses = [api.push("q", n, partition="P").status for n in range(4)]
    full = api.push("q", 5, partition="P")
    server.engine.operations._performer._settings = OperationSettings()
    server.engine.admission.push.load = 1e9

    assert statuses == [202, 202, 202, 429]
    assert (full.status, full.code) == (429, "OVERLOADED")
    assert int(full.headers["retry-after"]) >= 1
    server.run(_drained(server))
    assert api.push("q", 6, partition="P").status in (201, 202)
    assert [message["payload"] for message in api.pop("q")][:3] == [0, 1, 2]


async def _drained(server: RunningServer) -> None:
    server.engine.operations.wake()
    await until_so(lambda: not server.engine.operations.depth)


def test_a_busy_server_that_performs_gives_results_to_clients_that_wait(store: str) -> None:
    with running_server(store) as server:
        busy(server)
        options: dict[str, Any] = {"queued_operation": "poll", "poll_seconds": 0.01}
        with skep.Client(f"http://127.0.0.1:{server.port}", **options) as client:
            pushed = [client.push("q", [n], partition="P") for n in range(5)]
            several = client.push("q", [{"n": n} for n in range(3)])
            messages = client.pop("q", batch=10, partition="P")
            acked = client.ack(*messages)

        assert [one.messages[0].seq for one in pushed] == [1, 2, 3, 4, 5]
        assert [message.seq for message in several.stored] == [6, 7, 8]
        assert [message.json() for message in messages] == [0, 1, 2, 3, 4]
        assert [result.status for result in acked] == [SettleStatus.COMPLETED] * 5
