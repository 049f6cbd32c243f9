"""How busy the connections are: those at work and those waited for, over as many as there may be."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.model import QueueChanges
from skep.model.chores import Connections
from skep.store.postgres import PostgresStore, demand
from skep.store.postgres.demand import AVERAGED_SECONDS, Demand
from tests.contract.driver import Driver

LOCKED = "LOCK TABLE queue IN ACCESS EXCLUSIVE MODE"


@pytest_asyncio.fixture(loop_scope="module")
async def narrow(dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, max_connections=2)
    await store.open()
    yield store
    await store.close()


async def until(store: PostgresStore, condition: Callable[[Connections], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition(store.connections()):  # noqa: ASYNC110 - it yields rather than sleeps
            await asyncio.sleep(0)


async def test_open_connections_are_no_load_and_those_who_wait_are(
    narrow: PostgresStore, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    driver = Driver(narrow, ManualClock(), "tenant")
    await asyncio.gather(*(driver.store.get_queue(driver.key()) for _ in range(10)))
    await until(narrow, lambda found: found.utilisation < 0.05)
    idle = narrow.connections()

    async with other.transaction():
        await other.execute(LOCKED)
        one = asyncio.ensure_future(narrow.get_queue(driver.key()))
        await until(narrow, lambda found: found.utilisation > 0.45)
        at_work = narrow.connections()
        more = [asyncio.ensure_future(narrow.get_queue(driver.key())) for _ in range(5)]
        await until(narrow, lambda found: found.utilisation > 2.9)
        overrun = narrow.connections()
    await asyncio.gather(one, *more)

    assert (idle.active, idle.idle, idle.waiting) == (0, 2, 0)
    assert (at_work.active, at_work.waiting) == (1, 0)
    assert at_work.utilisation <= 0.5
    assert (overrun.active, overrun.idle, overrun.waiting) == (2, 0, 4)
    assert overrun.utilisation <= 3.0
    await until(narrow, lambda found: found.utilisation < 0.05)


async def test_what_servers_tell_each_other_does_not_wait_for_a_connection_of_the_pool(
    narrow: PostgresStore, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Or a busy server would go on by settings that were changed, and with keys that were revoked."""
    driver = Driver(narrow, ManualClock(), "tenant")
    await driver.create()
    before = (await narrow.system_events(None)).position
    await narrow.update_queue(driver.key(), QueueChanges(paused=True), driver.clock.now())

    async with other.transaction():
        await other.execute("LOCK TABLE consumer_group IN ACCESS EXCLUSIVE MODE")
        busy = [asyncio.ensure_future(narrow.queue_stats(driver.key(), driver.clock.now())) for _ in range(3)]
        await until(narrow, lambda found: (found.active, found.waiting) == (2, 1))
        async with asyncio.timeout(20):
            told = (await narrow.system_events(before)).events
        assert not any(one.done() for one in busy)
    await asyncio.gather(*busy)

    assert [event.key for event in told] == [driver.key()]


def test_the_load_is_that_of_a_moment_and_not_of_an_instant(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(demand, "time", SimpleNamespace(monotonic=lambda: now))
    wanted = Demand()

    with wanted:
        assert wanted.average() == 0.0
        now += AVERAGED_SECONDS
        assert wanted.average() == pytest.approx(1 - math.exp(-1))
        with wanted:
            now += 100
            assert wanted.average() == pytest.approx(2)
    assert wanted.present == 0
    assert wanted.average() == pytest.approx(2)
    now += AVERAGED_SECONDS / 2
    assert wanted.average() == pytest.approx(2 * math.exp(-0.5))


def test_who_waits_goes_by_how_many_are_before_it_and_how_fast_they_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(demand, "time", SimpleNamespace(monotonic=lambda: now))
    wanted = Demand()
    for _ in range(24):
        wanted.__enter__()
    assert wanted.wait_seconds(4) == 0.0, "of a moment, as the load is"
    for _ in range(1_000):  # 100 a second, each followed by another
        now += 0.01
        wanted.__exit__()
        wanted.__enter__()

    assert wanted.wait_seconds(4) == pytest.approx(20 / 100, rel=0.1)
    assert wanted.wait_seconds(24) == 0.0, "there is room for all"
    now += 3
    assert wanted.wait_seconds(4) == pytest.approx(20 * 3), "nobody was served for three seconds"


def test_a_burst_after_a_long_silence_is_not_taken_for_a_store_that_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(demand, "time", SimpleNamespace(monotonic=lambda: now))
    wanted = Demand()
    with wanted:
        pass
    now += 3_600
    for _ in range(100):
        wanted.__enter__()
    now += 0.05

    assert 0 < wanted.wait_seconds(4) < 1
