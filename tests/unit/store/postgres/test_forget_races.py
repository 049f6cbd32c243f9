"""Messages are forgotten while others bury, copy, replay or purge them: whichever comes first, nothing of them is left.

Each test stops one call right before its commit, and begins the other one meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.errors import Code
from skep.model import Queue, Seq
from skep.model.forgetting import ForgetStep, SeqRange
from skep.model.record import ReceiptKey, Unfit
from skep.store.postgres import PostgresStore, forget
from skep.store.postgres.connection import Connection
from tests.contract.driver import Driver
from tests.unit.store.postgres.conftest import TENANTS
from tests.unit.store.postgres.holding import Held, Session, waiting_or_done
from tests.unit.store.postgres.invariants import violations

Begun = Callable[[Driver], Awaitable[Callable[[], Any]]]


@pytest.fixture
def driver(servers: tuple[PostgresStore, PostgresStore], dsn: str) -> Driver:
    """One server, in a tenant of its own and a database that was emptied."""
    return Driver(servers[0], ManualClock(), next(TENANTS), checks=False)


@pytest.fixture
def second(servers: tuple[PostgresStore, PostgresStore]) -> PostgresStore:
    """Another server."""
    return servers[1]


@pytest_asyncio.fixture(loop_scope="module")
async def session(dsn: str) -> AsyncIterator[Session]:
    """A session that is not the store's."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    yield connection
    await connection.close()


def forget_first(store: PostgresStore, driver: Driver) -> asyncio.Future[ForgetStep]:
    ranges = [SeqRange(1, 1)]
    return asyncio.ensure_future(store.forget(driver.key(), None, ranges, Seq(0), 100, driver.now))


async def rejecting(driver: Driver) -> Callable[[], Any]:
    held = await driver.pop_one()
    return lambda: driver.reject(held)


async def burying_unfit(driver: Driver) -> Callable[[], Any]:
    receipt = ReceiptKey("burials", "once", driver.tenant)
    unfit = [Unfit(Seq(1), "no such card")]
    return lambda: driver.store.bury_unfit(driver.key(), unfit, receipt, driver.later(60), driver.now)


async def replaying(driver: Driver) -> Callable[[], Any]:
    await driver.reject(await driver.pop_one())
    return lambda: driver.replay()


async def purging(driver: Driver) -> Callable[[], Any]:
    await driver.reject(await driver.pop_one())
    return lambda: driver.purge()


RIVALS = pytest.mark.parametrize("rival", [rejecting, burying_unfit, replaying, purging])


@RIVALS
async def test_what_others_make_of_a_message_meanwhile_is_forgotten_too(
    driver: Driver, second: PostgresStore, session: Session, rival: Begun
) -> None:
    await driver.create("q.dead")
    await driver.create(dead_letter_queue="q.dead", max_attempts=5)
    await driver.push("1", "2")
    held = await Held.begin(driver.store, await rival(driver))
    forgetting = forget_first(second, driver)
    await waiting_or_done(session, forgetting)

    await held.finish()

    assert (await forgetting).messages == 1
    assert await driver.dead() == []
    assert [message.seq for message in (await driver.browse()).messages] == [2]
    assert await violations(session, driver.tenant, None) == []


@RIVALS
async def test_who_comes_while_a_message_is_forgotten_finds_nothing_of_it(
    driver: Driver, second: PostgresStore, session: Session, rival: Begun
) -> None:
    await driver.create("q.dead")
    await driver.create(dead_letter_queue="q.dead", max_attempts=5)
    await driver.push("1", "2")
    call = await rival(driver)
    ranges = [SeqRange(1, 1)]
    held = await Held.begin(second, lambda: second.forget(driver.key(), None, ranges, Seq(0), 100, driver.now))
    rivalling = asyncio.ensure_future(call())
    await waiting_or_done(session, rivalling)

    await held.finish()

    told = await rivalling
    if rival is rejecting:
        assert [result.code for result in told] == [Code.STALE_LEASE]
    assert await driver.dead() == []
    assert [message.seq for message in (await driver.browse()).messages] == [2]
    assert await violations(session, driver.tenant, None) == []


async def test_a_dead_letter_queue_that_comes_meanwhile_makes_the_call_begin_anew(
    driver: Driver, second: PostgresStore, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knew that its log had to be locked."""
    looks: list[int] = []
    choose = forget._choose

    def counted(connection: Connection, queue: Queue, *given: Any) -> Any:
        looks.append(queue.id)
        return choose(connection, queue, *given)

    monkeypatch.setattr(forget, "_choose", counted)
    await driver.create(max_attempts=5)
    await driver.push("1", "2")
    held = await Held.begin(driver.store, await rejecting(driver))
    forgetting = forget_first(second, driver)
    await waiting_or_done(session, forgetting)

    await held.finish()

    assert ((await forgetting).messages, (await forgetting).letters) == (1, 1)
    assert await driver.dead() == []
    assert len(looks) == 4, "before and after the locks, twice"
