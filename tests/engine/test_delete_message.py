"""A message that is deleted keeps nobody waiting: who waits for the next one is woken, on every server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.engine import Engine
from skep.errors import Code
from skep.model import PopRequest, QueueSettings, Retry, Seq
from skep.server.compose import open_engine
from tests.engine.driver import ORDERS, EngineDriver, answer, message, settlement, until

SETTINGS = QueueSettings(max_attempts=5, lease_seconds=30)


async def test_a_head_that_somebody_holds_is_deleted_and_the_next_wakes_the_poll(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, SETTINGS)
    await driver.push("1", "2")
    held = await driver.pop()
    poll = await driver.polling()

    deleted = await driver.engine.delete_message(ORDERS, held[0].seq, held[0].id)

    assert await answer(poll) == ["2"]
    assert (deleted.seq, deleted.leases) == (1, 1)
    assert [result.code for result in await driver.ack(held)] == [Code.STALE_LEASE]


async def test_a_head_that_waits_for_its_retry_is_deleted_and_the_next_wakes_the_poll(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, SETTINGS)
    await driver.push("1", "2")
    await driver.nack((await driver.pop())[0], Retry.AT, retry_at=Instant(driver.clock.now() + seconds(3_000)))
    poll = await driver.polling()

    await driver.engine.delete_message(ORDERS, Seq(1))

    assert await answer(poll) == ["2"]


async def test_a_dry_run_wakes_nobody(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, SETTINGS)
    await driver.push("1", "2")
    held = await driver.pop()
    poll = await driver.polling()
    looks = len(driver.store.calls["pop"])

    await driver.engine.delete_message(ORDERS, Seq(1), dry_run=True)
    await driver.quiet()

    assert (len(driver.store.calls["pop"]), poll.done()) == (looks, False)
    await driver.ack(held)
    assert await answer(poll) == ["2"]


@pytest.fixture
async def servers(empty_tables_dsn: str, clock: ManualClock) -> AsyncIterator[tuple[Engine, Engine]]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(open_engine(empty_tables_dsn, clock=clock)) for _ in range(2)]
        await here.create_queue(ORDERS, SETTINGS)
        yield here, there


async def test_what_is_deleted_there_wakes_a_poll_here(servers: tuple[Engine, Engine]) -> None:
    """On a clock that stands still only the other server's word can wake it."""
    here, there = servers
    await here.push([message("1"), message("2")])
    (held,) = (await there.pop(PopRequest(ORDERS))).deliveries
    poll = asyncio.ensure_future(here.pop(PopRequest(ORDERS), wait_seconds=300))
    await until(lambda: here.parked_polls == 1)

    await there.delete_message(ORDERS, held.seq)

    assert await answer(poll) == ["2"]
    (late,) = await here.settle([settlement(held)])
    assert late.code is Code.STALE_LEASE
