"""Two engines on one PostgreSQL, or on one SQLite file and its owner: on a frozen clock only news from the other can wake a poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.config import EngineSettings, OperationSettings
from skep.engine import Engine
from skep.engine.push.operations import TELL_SECONDS
from skep.model import (
    DeadLetterFilter,
    Delivery,
    Outcome,
    PopRequest,
    PopResult,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Start,
)
from skep.model.operation import OperationKind, OperationStatus
from skep.server.compose import open_engine
from tests.engine.driver import ORDERS, answer, message, settlement, until
from tests.support.owned_store import owned

Opening = Callable[..., AbstractAsyncContextManager[Engine]]
ON_POSTGRES = pytest.mark.parametrize("opening", ["postgres"], indirect=True)
ON_SQLITE = pytest.mark.parametrize("opening", ["sqlite"], indirect=True)


@pytest.fixture(params=["postgres", "sqlite"])
async def opening(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Opening]:
    """Opens a server of one and the same store."""
    if request.param == "postgres":
        yield partial(open_engine, request.getfixturevalue("empty_tables_dsn"), clock=clock)
        return
    async with owned(tmp_path / "skep.db", clock) as socket:
        yield partial(open_engine, "skep.db", clock=clock, owner=socket)


@pytest.fixture
async def servers(opening: Opening) -> AsyncIterator[tuple[Engine, Engine]]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(opening()) for _ in range(2)]
        await here.create_queue(ORDERS, QueueSettings(lease_seconds=30))
        yield here, there


async def test_a_push_there_wakes_a_poll_here(servers: tuple[Engine, Engine]) -> None:
    here, there = servers
    poll = asyncio.ensure_future(here.pop(PopRequest(ORDERS), wait_seconds=300))
    await until(lambda: here.parked_polls == 1)
    await there.push([message("1")])

    assert await answer(poll) == ["1"]


async def release(here: Engine, held: Delivery) -> None:
    assert await here.groups.release_lease(ORDERS, held.group, held.partition, held.token)


async def end(here: Engine, held: Delivery) -> None:
    assert await here.groups.end_leases(ORDERS, held.group, held.partition) == 1


async def seek(here: Engine, held: Delivery) -> None:
    await here.groups.seek(ORDERS, held.group, Start())


@pytest.mark.parametrize("verb", [release, end, seek])
async def test_what_an_operator_frees_there_wakes_a_poll_here(
    servers: tuple[Engine, Engine], verb: Callable[[Engine, Delivery], Awaitable[None]]
) -> None:
    here, there = servers
    await there.push([message("1")])
    (held,) = (await there.pop(PopRequest(ORDERS))).deliveries
    poll = await looked_and_waiting(here)
    await verb(there, held)

    assert await answer(poll) == ["1"]


async def test_a_replay_there_wakes_a_poll_here(servers: tuple[Engine, Engine]) -> None:
    here, there = servers
    await there.push([message("1")])
    await there.settle([settlement((await there.pop(PopRequest(ORDERS))).deliveries[0], Outcome.REJECT)])
    poll = await looked_and_waiting(here)
    await there.dead_letters.replay(DeadLetterFilter(queue=QueueKey("orders.dead")))

    assert await answer(poll) == ["1"]


async def looked_and_waiting(engine: Engine) -> asyncio.Task[PopResult]:
    """A pop that has looked for the last time before it sleeps: other servers know that it waits."""
    poll = asyncio.ensure_future(engine.pop(PopRequest(ORDERS), wait_seconds=300))
    await until(lambda: engine.parked_polls == 1 and not engine._in_flight._background)
    return poll


async def test_what_one_leases_the_other_can_settle(servers: tuple[Engine, Engine]) -> None:
    here, there = servers
    await here.push([message("1")])
    (delivery,) = (await there.pop(PopRequest(ORDERS))).deliveries
    (result,) = await here.settle([settlement(delivery)])

    assert result.status == "completed"


async def test_queues_of_a_server_that_is_gone_are_looked_after(
    servers: tuple[Engine, Engine], clock: ManualClock
) -> None:
    here, there = servers
    invoices = QueueKey("invoices")
    await there.push([message("1", invoices, deliver_at=Instant(clock.now() + seconds(200)))])
    await there.stop()
    clock.advance(EngineSettings().discover_seconds)
    await until(lambda: here.is_quiet)
    clock.advance(200)
    await until(lambda: here.is_quiet)

    assert (await here.browse.queue_stats(invoices)).last_seq == 1


async def test_a_queue_that_was_deleted_there_is_forgotten_here(
    servers: tuple[Engine, Engine], clock: ManualClock
) -> None:
    here, there = servers
    clock.advance(EngineSettings().discover_seconds)
    await until(lambda: here.is_quiet and there.is_quiet)
    assert there.known_queues == 1
    await here.delete_queue(ORDERS)
    clock.advance(EngineSettings().discover_seconds)
    await until(lambda: there.is_quiet)

    assert there.known_queues == 0


async def test_a_queue_that_changes_there_is_heard_of_here(servers: tuple[Engine, Engine], clock: ManualClock) -> None:
    """Within a second: a poll that found the queue paused is woken when it goes on."""
    here, there = servers
    await there.update_queue(ORDERS, QueueChanges(paused=True))
    await there.push([message("1")])
    waiting = asyncio.ensure_future(here.pop(PopRequest(ORDERS), wait_seconds=300))
    await until(lambda: here.parked_polls == 1)
    await there.update_queue(ORDERS, QueueChanges(paused=False))
    clock.advance(1)

    assert await answer(waiting) == ["1"]


async def test_operations_that_one_does_not_get_done_are_heard_of_and_performed_by_the_other(
    opening: Opening, clock: ManualClock
) -> None:
    """The clock stands still where the other one would look by itself: it is told."""
    settings = EngineSettings(operations=OperationSettings(drain=False))
    async with (
        opening(settings) as slow,
        opening() as other,
    ):
        await until(lambda: slow.is_quiet and other.is_quiet)
        slow.admission.push.load = 0.0
        [queued] = (await slow.push([message("1")])).operations or []

        clock.advance(TELL_SECONDS)

        async with asyncio.timeout(20):
            while (await slow.operations.find("default", queued.id)).status is not OperationStatus.COMPLETED:
                pass
        await until(lambda: other.operations.completed == {OperationKind.PUSH: 1})
        assert [delivery.payload for delivery in (await other.pop(PopRequest(ORDERS))).deliveries] == [b"1"]


@ON_SQLITE
async def test_an_ack_there_wakes_a_poll_here_that_waits_for_the_next_of_the_partition(
    servers: tuple[Engine, Engine],
) -> None:
    here, there = servers
    await there.push([message("1"), message("2")])
    (held,) = (await there.pop(PopRequest(ORDERS))).deliveries
    poll = await looked_and_waiting(here)
    await there.settle([settlement(held)])

    assert await answer(poll) == ["2"]


@ON_POSTGRES
async def test_a_server_that_was_cut_off_catches_up(
    servers: tuple[Engine, Engine], empty_tables_dsn: str, clock: ManualClock
) -> None:
    """What was changed meanwhile is read when the connection is back: nothing has to be told again."""
    here, there = servers
    await until(lambda: here.is_quiet)
    assert here.known_queues == 1
    connection = await asyncpg.connect(empty_tables_dsn)
    try:
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        await there.delete_queue(ORDERS)
        await connection.execute(cut)
    finally:
        await connection.close()
    while here.known_queues:  # the first look finds the connection lost
        clock.advance(1)
        await until(lambda: here.is_quiet)


@ON_POSTGRES
async def test_a_server_that_missed_what_aged_out_looks_at_everything(
    servers: tuple[Engine, Engine], empty_tables_dsn: str, clock: ManualClock
) -> None:
    here, there = servers
    await until(lambda: here.is_quiet)
    connection = await asyncpg.connect(empty_tables_dsn)
    try:
        await there.delete_queue(ORDERS)
        await there.create_queue(QueueKey("invoices"))
        await there.update_queue(QueueKey("invoices"), QueueChanges(max_depth=10))
        await connection.execute("DELETE FROM skep.system_event WHERE name = 'orders'")
    finally:
        await connection.close()
    clock.advance(1)

    await until(lambda: here.known_queues == 1 and here.is_quiet)
