"""Access by the client's bearer token: scopes, tenants, rates and the audit log hold as everywhere."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from skep.clock import ManualClock
from skep.config import AccessSettings
from skep.http.queen.names import PartitionName, write_id
from skep.http.queen.routes import AS_OURS, CALLS
from skep.model.key import VERBS_OF, Role, Verb
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Door
from tests.queen.driver import Queen
from tests.support.postgres import PostgresServer

TENANTS = (f"tenant-{number}" for number in itertools.count(1))
REQUIRED = AccessSettings(required=True)


@pytest.fixture(scope="session")
def closed_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(
        str(tmp_path_factory.mktemp("queen-access") / "skep.db"), access=REQUIRED, queen=True
    ) as server:
        yield server


@pytest.fixture(scope="session")
def closed_postgres(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[RunningServer]:
    dsn = postgres_server.create_database(template=tables_to_copy)
    with running_server(dsn, access=REQUIRED, queen=True) as server:
        yield server
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres"])
def closed(request: pytest.FixtureRequest) -> Iterator[Door]:
    door = Door(request.getfixturevalue(f"closed_{request.param}"), next(TENANTS))
    yield door
    door.close()


@pytest.fixture
async def client(closed: Door, signals: None) -> AsyncIterator[Callable[..., Any]]:
    """Makes clients with keys of their own."""
    async with AsyncExitStack() as stack:

        async def made(*verbs: Verb, **key: Any) -> Queen:
            token = closed.key(*(verbs or VERBS_OF[Role.ADMIN]), **key).text
            return await stack.enter_async_context(Queen(closed.server, ManualClock(), closed.tenant, token))

        yield made


async def test_a_key_opens_the_door_and_its_verbs_are_held(client: Callable[..., Any]) -> None:
    admin, pusher, popper = await client(), await client(Verb.PUSH), await client(Verb.POP)
    assert (await admin.create())["configured"] is True
    [pushed] = await pusher.push({"n": 1})
    assert pushed["status"] == "queued"
    assert (await pusher.get("/api/v1/pop/queue/q"))[0] == 403
    assert (await popper.post("/api/v1/push", {"items": [{"queue": "q", "payload": 1}]}))[0] == 403
    assert (await popper.post("/api/v1/push", {"items": []}))[0] == 403
    [message] = await popper.pop()
    assert message["producerSub"]
    both = {
        "operations": [
            {"type": "ack", "transactionId": message["transactionId"], "partitionId": message["partitionId"]},
            {"type": "push", "items": [{"queue": "q", "payload": 2}]},
        ]
    }
    assert (await popper.post("/api/v1/transaction", both))[0] == 403
    [refused] = (await pusher.post("/api/v1/transaction", both))[1:]
    assert refused["code"] == "FORBIDDEN"
    assert (await popper.client.ack(message))["success"] is True
    assert (await popper.call("DELETE", "/api/v1/resources/queues/q"))[0] == 403


async def test_a_key_for_some_queues_reaches_no_other_by_an_id(client: Callable[..., Any], closed: Door) -> None:
    admin, limited = await client(), await client(Verb.POP, Verb.READ, queues=("mine",))
    await admin.push(1)
    [message] = await admin.pop()
    status, told = await limited.post(
        "/api/v1/ack", {"transactionId": message["transactionId"], "partitionId": message["partitionId"]}
    )
    assert (status, told[0]["success"]) == (200, False)
    assert (await limited.call("POST", f"/api/v1/lease/{message['leaseId']}/extend"))[0] == 403
    path = f"/api/v1/messages/{message['partitionId']}/{message['transactionId']}"
    assert (await limited.get(path))[0] == 403
    other = write_id(PartitionName("somebody-else", "mine", "Default"))
    assert (await limited.get(f"/api/v1/messages/{other}/t"))[0] == 403
    assert (await limited.get("/api/v1/dlq", queue="q"))[0] == 403
    assert (await limited.get("/api/v1/resources/queues"))[1]["queues"] == []
    assert (await limited.get("/api/v1/consumer-groups"))[1] == []
    assert (await admin.client.ack(message))["success"] is True
    foreign = Queen(closed.server, ManualClock(), "somebody-else", closed.key(*VERBS_OF[Role.ADMIN]).text)
    async with foreign:
        assert (await foreign.get("/api/v1/resources/queues"))[0] == 403


async def test_who_shows_no_key_or_a_made_up_one_gets_nothing(closed: Door, signals: None) -> None:
    for token in (None, "skep_nonsense"):
        async with Queen(closed.server, ManualClock(), closed.tenant, token) as stranger:
            paths = [(one.method, one.path) for one in CALLS] + [("GET", path) for path in AS_OURS]
            for method, path in paths:
                status, told = await stranger.call(method, path.replace("{", "").replace("}", ""))
                assert status == (200 if path == "/health" else 401), (method, path, told)
                assert path == "/health" or told["code"] == "UNAUTHENTICATED"


async def test_rates_are_held(client: Callable[..., Any]) -> None:
    slow = await client(requests_per_second=1)
    answers = [await slow.get("/api/v1/resources/queues") for _ in range(5)]
    assert (answers[-1][0], answers[-1][1]["code"]) == (429, "TOO_MANY_REQUESTS")


async def test_what_admins_do_is_in_the_audit_log(client: Callable[..., Any], closed: Door) -> None:
    admin = await client()
    await admin.create()
    await admin.push(1)
    [message] = await admin.pop(group="g")
    await admin.client.admin.delete_message(message["partitionId"], message["transactionId"])
    await admin.client.admin.seek_consumer_group("g", "q", {"toEnd": True})
    await admin.client.delete_consumer_group("g")
    await admin.client.admin.clear_queue("q")
    await admin.queue().delete()
    entries = closed.role(Role.ADMIN).get("/api/v1/audit").json["entries"]
    assert [(one["verb"], one["outcome"]) for one in entries] == [
        ("delete queue", "done"), ("clear queue", "done"), ("delete group", "done"), ("seek group", "done"),
        ("delete message", "done"), ("configure queue", "done"),
    ]  # fmt: skip
