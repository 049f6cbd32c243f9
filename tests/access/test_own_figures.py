"""Tenants see only their own: no figure, list or page of one tenant tells what another does to the same server.

Time stands still here, so an answer is the same as before unless someone did something.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from skep.clock import Instant, ManualClock
from skep.config import AccessSettings, EngineSettings, OperationSettings
from skep.http.request.permission import Reach
from skep.model import NewMessage, PushBatch, QueueKey
from skep.model.key import Verb
from skep.model.operation import QueuedReason
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Caller, Door
from tests.access.requests import ALL, guarded_operations, lease_in, made

NONCE = re.compile(rb'nonce="[^"]*"')
REQUIRED = AccessSettings(required=True)
LATER = EngineSettings(operations=OperationSettings(backoff_seconds=3_600, max_backoff_seconds=3_600))


@pytest.fixture(params=["sqlite", "postgres"])
def still(request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """A server whose clock stands still, and which tries again in an hour what it could not do."""
    clock = ManualClock(Instant(1_790_000_000_000_000))
    if request.param == "sqlite":
        with running_server(clock=clock, settings=LATER, access=REQUIRED) as server:
            yield server
        return
    dsn: str = request.getfixturevalue("empty_tables_dsn")
    with running_server(dsn, clock=clock, settings=LATER, access=REQUIRED) as server:
        yield server


def put_off(door: Door, calls: int) -> None:
    """Pushes that wait as operations: their queue is full."""
    admin, engine = door.caller(*ALL), door.server.engine
    admin.post("/api/v1/configure", {"queue": "full", "settings": {"max_depth": 1}})
    admin.push("full", {"n": 0})
    for n in range(calls):
        message = NewMessage(QueueKey("full", door.tenant), b"1", partition=str(n))
        batch = PushBatch([message], engine._ids.mint_many(1))
        door.server.run(engine.operations.push(batch, 1, QueuedReason.SYSTEM_BUSY))
    while any(not one["errorMessage"] for one in admin.get("/api/v1/operations").json["operations"]):
        pass  # each is tried once


def busy(door: Door) -> None:
    """A tenant that does everything."""
    lease_in(door)
    lease_in(door, "mails")
    put_off(door, 3)
    admin = door.caller(*ALL)
    admin.post("/api/v1/push", {"items": [{"queue": "telemetry", "payload": 1, "qos": 0}]})
    admin.post("/api/v1/queues/mails/pause")


def answers(door: Door, caller: Caller) -> dict[str, bytes]:
    """What every route that only looks says."""
    found = {}
    for operation in guarded_operations(door):
        if operation.method == "GET" and operation.verb != "pop" and operation.access.reach is not Reach.SERVER:
            request = made(operation, door.tenant, "")
            door.server.app._pages.site.snapshots.forget(door.tenant)  # type: ignore[union-attr] # it is the dashboard
            reply = request.by(caller)
            found[request.path] = b"%d " % reply.status + NONCE.sub(b"", reply.body)
    return found


def test_nothing_that_another_tenant_does_changes_what_a_reader_is_told(still: RunningServer) -> None:
    own, other = Door(still, "acme"), Door(still, "rival")
    lease_in(own)
    put_off(own, 1)
    reader, somewhat = own.caller(Verb.READ), own.caller(Verb.READ, queues=["orders*"])
    before = answers(own, reader), answers(own, somewhat)

    busy(other)

    after = answers(own, reader), answers(own, somewhat)
    assert len(before[0]) > 40
    for path in before[0]:
        assert after[0][path] == before[0][path], path
        assert after[1][path] == before[1][path], path
    own.close()
    other.close()


def test_who_may_read_all_tenants_sees_the_server(still: RunningServer) -> None:
    own, other = Door(still, "acme"), Door(still, "rival")
    lease_in(own)
    watcher = own.caller(Verb.READ, tenants=["*"], tenant=own.tenant)
    before = answers(own, watcher)
    assert watcher.get("/api/v1/operations/stats").json["depth"] == 0

    busy(other)

    after = answers(own, watcher)
    changed = {path for path in before if after[path] != before[path]}
    assert changed >= {"/operations", "/api/v1/operations/stats"}
    assert watcher.get("/api/v1/operations/stats").json["depth"] == 3
    assert b"Thresholds" in after["/operations"]
    assert b"Admission" in after["/"]
    own.close()
    other.close()


def test_a_key_for_some_queues_sees_their_pages_and_no_others(door: Door) -> None:
    lease_in(door)
    lease_in(door, "mails")
    caller = door.caller(Verb.READ, queues=["mails*"])

    for path in ("/", "/queues?show=all", "/messages", "/dead-letters", "/operations", "/traces"):
        page = caller.get(path)
        assert page.status == 200, path
        assert b"orders" not in page.body, path
    assert b"/queues/mails" in caller.get("/queues").body
    assert b"bad mails" in caller.get("/dead-letters").body
    assert caller.get("/messages?q=queue:mails&seq=1").status == 200
    for path in ("/queues/orders", "/messages?q=queue:orders", "/dead-letters?queue=orders.dead", "/pipelines"):
        refused = caller.get(path)
        assert refused.status == 403, path
        assert b"does not allow this" in refused.body


def test_an_admin_of_some_queues_acts_on_those_only(door: Door) -> None:
    lease_in(door)
    lease_in(door, "mails")
    caller = door.caller(Verb.ADMIN, Verb.READ, queues=["mails*"])
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    def post(path: str, body: bytes) -> int:
        return caller.request("POST", path, body, form).status

    assert post("/queues/mails/pause", b"paused=yes") == 303
    assert post("/queues/orders/pause", b"paused=yes") == 403
    assert post("/queues/mails/publish", b"payload=1") == 403  # which is to push
    assert post("/queues/mails/settings", b"was-dead_letter_queue=&dead_letter_queue=orders") == 403
    assert post("/dead-letters/mails.dead/letters/1/edit", b"payload=1") == 403
    assert caller.post("/api/v1/dlq/mails/1/replay", {"payload": 1}).status == 403
    assert caller.post("/api/v1/dlq/orders/1/replay", {"payload": 1}).status == 403
    pusher = door.caller(Verb.PUSH, Verb.READ)
    assert pusher.post("/api/v1/dlq/mails/1/replay", {"payload": 1}).status == 403
    assert post("/dead-letters/mails.dead/replay", b"") == 303
    assert post("/dead-letters/orders.dead/replay", b"") == 403


def test_a_list_of_tenants_has_no_other_in_it_or_in_its_links(door: Door) -> None:
    rival = Door(door.server, "aaa-rival")
    rival.caller(*ALL).push("orders", 1)
    rival.close()
    door.caller(*ALL).push("orders", 1)

    page = door.caller(Verb.READ, queues=["orders"]).get("/tenants")

    assert page.status == 200
    assert b"rival" not in page.body
