"""What a worker does when things are not as it expects: leases lost, tenants that come, queues that are not there, stops in between."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

import skep
from skep.client import calls
from skep.client.async_client import AsyncClient
from skep.client.worker.source import Source
from skep.clock import ManualClock
from skep.config import EngineSettings, Limits
from skep.spec import load
from skep.testing.server import running_server
from skep.worker.claims import Claims
from skep.worker.committing import Committing
from skep.worker.plan import plans
from tests.worker.place import Place
from tests.worker.test_entities import ACCOUNTS, assert_sound

LIMITED = """
app Limited {
  queue Calls {
    rate_limit {
      count: 1
      per: 1h
    }
    map_to: command Call.Make {
      n: message.n
    }
  }
}
"""

FOR_TENANTS = ACCOUNTS.replace(
    "  entity Account {",
    "  webhook In {\n    queue: Deposits\n    verify: none\n    tenant: path\n"
    "    message { account: payload.account, cents: int(payload.cents) }\n  }\n  entity Account {",
)


async def test_a_lost_lease_takes_its_own_messages_out_of_the_batch_and_no_others(
    timed: tuple[Place, ManualClock],
) -> None:
    place, clock = timed
    app = place.app(ACCOUNTS)
    for number in range(8):
        place.client.push("Deposits", [{"account": f"a-{number}", "cents": 5}] * 3, partition=f"p-{number}")
    duty = next(one for one in plans(app.spec, {}) if one.queue == "Deposits")
    async with AsyncClient.like(place.client.settings, clock) as client:
        source = Source(client, "Deposits", 30)
        popped = await source.pop(calls.pop("Deposits", {"batch": 100, "partitions": 0, "lease_seconds": 30}))
        assert len(popped) == 24
        clock.advance(20)
        await client.renew(
            *[skep.AsyncMessage.of(one, client) for one in popped if one.partition != "p-3"], lease_seconds=60
        )
        clock.advance(20)
        while not (taken := place.client.pop("Deposits", batch=3)):
            pass  # a pop that meets a chore of the server may find nothing
        assert {one.partition for one in taken} == {"p-3"}
        await Committing(duty, clock, Claims(), Random(1)).run(source, popped)
        await source.close()
    for number in (0, 1, 2, 4, 5, 6, 7):
        assert assert_sound(place, app, f"a-{number}")["state"]["cents"] == 15
    assert place.depth("Deposits") == 3
    clock.advance(3600)
    await place.work(app, at_least=3)
    assert assert_sound(place, app, "a-3")["state"]["cents"] == 15


async def test_a_batch_that_is_too_large_is_halved_until_it_fits(place: Place) -> None:
    app = place.app(ACCOUNTS)
    for number in range(6):
        owner = str(number) * 1_500_000  # in the event, the state and the receipt
        place.client.push("Deposits", {"account": f"a-{number}", "cents": 5, "owner": owner}, partition=f"p-{number}")
    await place.work(app, at_least=6)
    assert [assert_sound(place, app, f"a-{n}")["state"]["cents"] for n in range(6)] == [5] * 6
    assert place.dead("Deposits") == []


async def test_entities_that_are_too_much_for_one_answer_are_read_in_parts() -> None:
    limits = Limits(page_bytes=1_500)
    with running_server(settings=EngineSettings(limits=limits)) as server, skep.Client(server.url) as client:
        place = Place(server.url, client)
        app = place.app(ACCOUNTS)
        for _ in range(2):
            for number in range(8):
                client.push("Deposits", {"account": f"a-{number}", "cents": 5, "owner": str(number) * 600})
            await place.work(app, at_least=8)
        refused = await asyncio.to_thread(_read, client, [f"a-{n}" for n in range(8)])
        pages = list(client.entities("Account"))
        events = list(client.entity_events("Account", "a-1"))
        page = client.request("GET", "/api/v1/entities/Account")
    assert refused == "PAYLOAD_TOO_LARGE"
    assert [(one.id, one.version) for one in pages] == [(f"a-{n}", 3) for n in range(8)]
    assert len(events) == 3
    assert (len(page["entities"]), page["after"]) == (3, "a-2")


def _read(client: skep.Client, ids: list[str]) -> str | None:
    try:
        client.read_entities([("Account", id_) for id_ in ids])
    except skep.SkepError as error:
        return error.code
    return None


async def test_a_worker_of_many_tenants_has_few_connections() -> None:
    with running_server() as server, skep.Client(server.url) as client:
        app = skep.App(load(FOR_TENANTS, "accounts.skep"))
        client.apply(app.spec)
        tenants = [f"tenant-{number}" for number in range(40)]
        for tenant in tenants:
            client.for_tenant(tenant).push("Deposits", {"account": "a", "cents": 1})
        before, most = server.connections, 0

        async def watch() -> None:
            nonlocal most
            while True:
                most = max(most, server.connections)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        done = await Place(server.url, client).work(app, at_least=len(tenants))
        watching.cancel()
        owners = [client.for_tenant(tenant).entity("Account", "a").version for tenant in tenants]
    assert (done, owners) == (40, [2] * 40)
    assert (before, most < 20) == (1, True)


async def test_an_app_whose_webhooks_take_tenants_is_worked_on_for_all_who_come(
    timed: tuple[Place, ManualClock],
) -> None:
    place, _ = timed
    app = skep.App(load(FOR_TENANTS, "accounts.skep"))
    place.client.apply(app.spec)
    clients = {name: skep.Client(place.url, tenant=name) for name in ("default", "acme", "umbrella")}
    try:
        clients["default"].push("Deposits", {"account": "a-0", "cents": 1})
        clients["acme"].push("Deposits", {"account": "a-0", "cents": 2})
        assert await place.work(app, at_least=2) == 2
        clients["umbrella"].push("Deposits", {"account": "a-0", "cents": 4})
        assert await place.work(app, at_least=1) == 1
        states = [msgspec.json.decode(client.entity("Account", "a-0").state) for client in clients.values()]
        assert [state["cents"] for state in states] == [1, 2, 4]
        assert [len(list(client.messages("Deposits"))) for client in clients.values()] == [1, 1, 1]
    finally:
        for client in clients.values():
            client.close()


async def test_a_queue_that_is_not_there_yet_is_waited_for(place: Place) -> None:
    app = skep.App(load(ACCOUNTS, "accounts.skep"))
    working = place.working(app)
    running = asyncio.create_task(working.run())
    await asyncio.to_thread(place.client.push, "Deposits", {"account": "a-1", "cents": 5})
    receipts = 0
    async with asyncio.timeout(30):
        while not receipts:  # asking is what passes the time
            receipts = await asyncio.to_thread(lambda: len(list(place.client.entities("Account"))))
    working.stop()
    await running
    assert assert_sound(place, app, "a-1")["state"]["cents"] == 5


async def test_what_waits_for_its_rate_limit_at_a_stop_is_given_back_and_not_done(place: Place) -> None:
    app = place.app(LIMITED)
    done: list[object] = []
    first = asyncio.Event()

    @app.command("Call.Make")
    async def make(given: dict[str, object]) -> None:
        done.append(given["n"])
        first.set()

    for number in range(3):
        place.client.push("Calls", {"n": number}, partition=f"p-{number}")
    working = place.working(app)
    running = asyncio.create_task(working.run())
    async with asyncio.timeout(30):
        await first.wait()
    working.stop()
    async with asyncio.timeout(30):
        await running
    assert len(done) == 1
    assert place.depth("Calls") == 2
    assert len(place.client.pop("Calls", batch=10)) == 2


async def test_a_worker_says_when_the_server_works_by_another_spec(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    app = place.app(ACCOUNTS.replace("app Accounts", "app Compared"))
    await place.work(app)
    assert "Compared is not applied on the server" in caplog.text
