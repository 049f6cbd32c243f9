"""Connections to PostgreSQL that are cut, stalled or refused: a call happened once or not at all, and the next one works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import Outcome, PushBatch, PushStatus, Retry, Seq, Settlement, SettleStatus
from skep.model.transaction import Transaction, fingerprint_of
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver
from torture.proxy import Proxy

CUTS = pytest.mark.parametrize("cuts", [8, pytest.param(30, marks=pytest.mark.slow)])
"""At how many points of each direction a conversation is cut."""


@pytest.fixture
async def proxy(postgres_dsn: str) -> AsyncIterator[Proxy]:
    async with Proxy(postgres_dsn) as proxy:
        yield proxy


@pytest.fixture
async def direct(postgres_dsn: str) -> AsyncIterator[Driver]:
    """The same database, by a way that is never cut."""
    store = PostgresStore(postgres_dsn)
    await store.open()
    yield Driver(store, ManualClock(), "tenant")
    await store.close()


@pytest.fixture
async def behind(direct: Driver, proxy: Proxy) -> AsyncIterator[Driver]:
    """A server whose only connection goes through the proxy."""
    store = PostgresStore(proxy.dsn, max_connections=1)
    await store.open()
    yield Driver(store, direct.clock, direct.tenant)
    await store.close()


async def answer(call: Awaitable[Any]) -> Any:
    """What a call was answered with, or None when the connection was lost."""
    try:
        return await call
    except SkepError as error:
        if error.code is not Code.STORE_UNAVAILABLE:
            raise
        return None


class Conversation:
    """A call by way of the proxy, to be cut at any point.

    ``prepare`` makes a call that has not been made yet. Each is cut on a connection that has made such a call before: what goes
    to and fro is then the transaction and nothing else.
    """

    def __init__(
        self, proxy: Proxy, behind: Driver, prepare: Callable[[], Awaitable[Callable[[], Awaitable[Any]]]]
    ) -> None:
        self.proxy = proxy
        self.behind = behind
        self.prepare = prepare

    async def points(self, number: int) -> list[tuple[int | None, int | None]]:
        """Where to cut: all along what is sent, and all along what is received."""
        await self._warm_up()
        call = await self.prepare()
        self.proxy.count()
        await call()
        sent, received = self.proxy.sent, self.proxy.received
        assert min(sent, received) > number
        return [
            *((n * sent // number, None) for n in range(number)),
            *((None, n * received // number) for n in range(number)),
        ]

    async def cut(self, call: Callable[[], Awaitable[Any]], sent: int | None, received: int | None) -> Any:
        """The answer to a call that is cut there; None when there was none."""
        await self._warm_up()
        self.proxy.cut_after(sent, received)
        before = self.proxy.cuts
        given = await answer(call())
        assert self.proxy.cuts > before, "the call was not cut"
        self.proxy.count()
        return given

    async def _warm_up(self) -> None:
        self.proxy.count()
        while await answer((await self.prepare())()) is None:
            pass


@CUTS
async def test_I1_I2_I3_a_push_that_is_cut_anywhere_is_stored_once_or_not_at_all(
    direct: Driver, behind: Driver, proxy: Proxy, cuts: int
) -> None:
    await direct.create()
    batches: list[PushBatch] = []

    async def prepare() -> Callable[[], Awaitable[Any]]:
        key = behind.mint.mint().hex()
        batch = behind.batch(*(behind.message("x", partition=p, transaction_id=key) for p in ("a", "b")))
        batches.append(batch)
        return lambda: behind.store.push([batch], behind.now)

    conversation = Conversation(proxy, behind, prepare)
    for sent, received in await conversation.points(cuts):
        push = await prepare()
        batch = batches[-1]
        outcomes = await conversation.cut(push, sent, received)

        known = {message.id for message in (await direct.browse(descending=True, limit=10)).messages}
        stored = sum(id_ in known for id_ in batch.ids)
        assert stored in ((2,) if outcomes else (0, 2)), f"I15: cut at {sent}, {received}"
        ((again),) = await behind.store.push([batch], behind.now)
        expected = PushStatus.DUPLICATE if stored else PushStatus.STORED
        assert [result.status for result in again.results] == [expected] * 2
        assert [result.id for result in again.results] == batch.ids
    every = [message.id for message in (await direct.browse(limit=1000)).messages]
    assert sorted(every) == sorted(id_ for batch in batches for id_ in batch.ids)
    await direct.check_accounts()


STATUS = {
    Outcome.ACK: SettleStatus.COMPLETED,
    Outcome.NACK: SettleStatus.RETRYING,
    Outcome.REJECT: SettleStatus.DEAD,
}


@CUTS
@pytest.mark.parametrize("outcome", STATUS)  # a release comes again at once, so there is nothing to count
async def test_I6_I11_a_settlement_that_is_cut_anywhere_happened_once_or_not_at_all(
    direct: Driver, behind: Driver, proxy: Proxy, outcome: Outcome, cuts: int
) -> None:
    await direct.create(max_attempts=0)
    settlements: list[Settlement] = []

    async def prepare() -> Callable[[], Awaitable[Any]]:
        await direct.push("x", partition=direct.mint.mint().hex())
        held = await direct.pop_one()
        settlement = behind.settlement(held, outcome, retry=Retry.AT, retry_at=behind.later(10_000))
        settlements.append(settlement)
        return lambda: behind.store.settle([settlement], behind.now)

    conversation = Conversation(proxy, behind, prepare)
    for sent, received in await conversation.points(cuts):
        settle = await prepare()
        settlement, before = settlements[-1], len(settlements)
        results = await conversation.cut(settle, sent, received)

        (again,) = await behind.store.settle([settlement], behind.now)
        assert (again.status, again.code) == (STATUS[outcome], None)
        assert again.repeated or not results, "I6: settled twice"
        assert len(settlements) > before
    stats = await direct.stats()
    settled = {Outcome.ACK: stats.completed, Outcome.NACK: stats.retried, Outcome.REJECT: stats.dead}
    assert settled[outcome] == len(settlements)
    assert len({letter.source_seq for letter in await direct.dead()}) == len(await direct.dead()) == stats.dead, "I11"
    await direct.check_accounts()


@CUTS
async def test_I15_a_transaction_that_is_cut_anywhere_is_whole_or_not_at_all(
    direct: Driver, behind: Driver, proxy: Proxy, cuts: int
) -> None:
    await direct.create()
    await direct.create("next")
    transactions: list[Transaction] = []

    async def prepare() -> Callable[[], Awaitable[Any]]:
        await direct.push("x", partition=direct.mint.mint().hex())
        held = await direct.pop_one()
        acks, messages = [behind.settlement(held)], [behind.message("y", "next")]
        transaction = Transaction(acks, behind.batch(*messages), [], [], fingerprint_of(acks, messages, [], []))
        transactions.append(transaction)
        return lambda: behind.store.transact([transaction], behind.now)

    conversation = Conversation(proxy, behind, prepare)
    for sent, received in await conversation.points(cuts):
        call = await prepare()
        transaction = transactions[-1]
        outcomes = await conversation.cut(call, sent, received)
        pushed = (await direct.queue_stats("next")).last_seq
        assert (await direct.stats()).completed == pushed
        await direct.check_accounts()

        (again,) = await behind.store.transact([transaction], behind.now)
        assert again.committed
        assert again.repeated or not outcomes
        stored = await direct.browse("next", after=Seq(pushed - 1 if again.repeated else pushed))
        assert [message.id for message in stored.messages] == [again.pushed.results[0].id]


async def test_connections_that_are_cut_while_idle_are_replaced(direct: Driver, behind: Driver, proxy: Proxy) -> None:
    await behind.push("1")
    proxy.cut()
    await answer(behind.push("2"))

    assert [r.status for r in await behind.push("3")] == [PushStatus.STORED]
    assert (await direct.queue_stats()).last_seq in (2, 3)


async def test_who_is_refused_is_told_and_served_when_the_door_opens(
    direct: Driver, behind: Driver, proxy: Proxy
) -> None:
    await behind.push("1")
    proxy.refuse()
    proxy.cut()
    errors = [await answer(behind.push("2")) for _ in range(3)]
    proxy.refuse(False)

    assert errors == [None] * 3
    assert [r.seq for r in await behind.push("2")] == [2]


async def test_opening_through_a_connection_that_is_cut_fails_cleanly_and_works_later(
    direct: Driver, proxy: Proxy
) -> None:
    store = PostgresStore(proxy.dsn)
    for received in range(0, 2_000, 250):
        proxy.cut_after(None, received)
        await answer(store.open())
        await store.close()
    proxy.count()

    await store.open()
    assert await store.tenants() == []
    await store.close()


async def test_a_caller_that_gives_up_on_a_stalled_connection_does_not_lose_it_for_others(
    direct: Driver, behind: Driver, proxy: Proxy
) -> None:
    await behind.push("1")
    proxy.stall()
    call = asyncio.ensure_future(behind.store.push([behind.batch(behind.message("2"))], behind.now))
    await proxy.held_back.wait()
    call.cancel()
    proxy.resume()
    with pytest.raises(asyncio.CancelledError):
        await call

    (result,) = await behind.push("3")
    assert result.seq in (2, 3)
    await direct.check_accounts()
