"""Answers that get lost between server and client: the client says it again, and is told what became of it the first time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeVar

import pytest
from msgspec import Raw

import skep
from skep.client import calls
from skep.client.message_data import completed
from skep.model import QueueKey
from skep.testing.server import RunningServer, running_server
from skep.wire.messages import AckResult, PushItem
from tests.support.postgres import PostgresServer
from torture.proxy import Proxy

T = TypeVar("T")


TENANTS = (f"tenant-{number}" for number in itertools.count(1))


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server for all tests, each of which has a tenant of its own."""
    with ExitStack() as made:
        store = str(tmp_path_factory.mktemp("lost") / "skep.db")
        if request.param == "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            store = postgres.create_database(template=request.getfixturevalue("tables_to_copy"))
            made.callback(postgres.drop_database, store)
        yield made.enter_context(running_server(store))


class Link:
    """A client whose connections go through a proxy."""

    def __init__(self, server: RunningServer, tenant: str, proxy: Proxy, client: skep.AsyncClient) -> None:
        self.server = server
        self.tenant = tenant
        self.proxy = proxy
        self.client = client

    async def losing_the_answer(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call whose first answer is cut off at its first byte; what the client told in the end."""
        self.proxy.was_cut.clear()
        self.proxy.cut_after(None, 0)
        made = asyncio.ensure_future(call())
        await self.proxy.was_cut.wait()
        self.proxy.count()
        return await made

    async def counted(self, queue: str = "orders") -> tuple[int, int, int]:
        """How many are completed, dead, and were tried again."""
        look = self.server.engine.browse.queue_stats(QueueKey(queue, self.tenant))
        stats = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(look, self.server._loop))
        (group,) = stats.groups
        return group.completed, group.dead, group.retried


@pytest.fixture
async def link(server: RunningServer) -> AsyncIterator[Link]:
    tenant = next(TENANTS)
    async with Proxy(server.url) as proxy, skep.AsyncClient(proxy.dsn, tenant=tenant) as client:
        yield Link(server, tenant, proxy, client)


SAID: dict[str, tuple[Callable[[skep.AsyncMessage], Awaitable[AckResult]], tuple[int, int, int]]] = {
    "completed": (lambda message: message.ack(), (1, 0, 0)),
    "retrying": (lambda message: message.nack(error="not yet", delay=3600), (0, 0, 1)),
    "dead": (lambda message: message.reject(error="no good"), (0, 1, 0)),
}


@pytest.mark.parametrize("status", SAID)
async def test_I6_a_settlement_whose_answer_was_lost_is_told_as_it_went(link: Link, status: str) -> None:
    say, expected = SAID[status]
    await link.client.push("orders", [1])
    [message] = await link.client.pop("orders")

    result = await link.losing_the_answer(lambda: say(message))

    assert (result.status, result.code, bool(result.repeated)) == (status, None, True)
    assert message.settled is not None
    assert await link.counted() == expected


async def test_acks_of_a_batch_whose_answer_was_lost_are_told_one_by_one(link: Link) -> None:
    await link.client.push("orders", [skep.NewMessage(n, partition=str(n % 2)) for n in range(6)])
    messages = await link.client.pop("orders", batch=6)

    results = await link.losing_the_answer(lambda: link.client.ack(*messages))

    assert [(result.status, bool(result.repeated)) for result in results] == [("completed", True)] * 6
    assert await link.counted() == (6, 0, 0)


@pytest.mark.parametrize("transaction_id", [None, "bill-1"])
async def test_I15_a_transaction_whose_answer_was_lost_is_told_as_it_went_and_pushes_once(
    link: Link, transaction_id: str | None
) -> None:
    await link.client.push("orders", [1])
    [message] = await link.client.pop("orders")
    item = PushItem("bills", Raw(b'{"amount":1}'), transaction_id=transaction_id, headers=Raw(b"{}"))

    told = await link.losing_the_answer(lambda: link.client.run(calls.transaction([completed(message)], [item])))

    assert (told.committed, bool(told.repeated)) == (True, True)
    [pushed] = told.messages
    [bill] = await link.client.pop("bills", batch=10)
    assert (pushed.status, pushed.message_id, pushed.seq) == ("stored", bill.id, bill.seq)
    assert await link.counted() == (1, 0, 0)


async def test_a_transaction_block_is_committed_though_its_answer_was_lost(link: Link) -> None:
    await link.client.push("orders", [1])
    [message] = await link.client.pop("orders")
    tx = link.client.transaction()
    tx.ack(message)
    tx.push("bills", {"amount": 1})

    await link.losing_the_answer(tx.commit)

    assert tx.committed is not None
    assert [one.json() for one in await link.client.pop("bills", batch=10)] == [{"amount": 1}]
    assert await link.counted() == (1, 0, 0)


async def test_a_worker_whose_acks_get_no_answer_does_nothing_twice(link: Link) -> None:
    await link.client.push("orders", [1, 2, 3])
    worker = skep.Worker(link.client)
    done: list[Any] = []

    @worker.on("orders", type=int)
    async def bill(order: int) -> None:
        done.append(order)
        if order == 3:
            link.proxy.was_cut.clear()
            link.proxy.cut_after(None, 0)

    async def mend() -> None:
        await link.proxy.was_cut.wait()
        link.proxy.count()

    mending = asyncio.ensure_future(mend())
    await worker.run_async(until_empty=True)
    await mending

    assert done == [1, 2, 3]
    assert await link.counted() == (3, 0, 0)
