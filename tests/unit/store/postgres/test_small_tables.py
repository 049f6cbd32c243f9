"""Tables with few rows that several servers change: apps, endpoints, keys, events, operations and staged chunks.

Each test stops one call right before its commit, or where it waits, and begins another one meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import Ordering, QueueChanges, QueueKey
from skep.model.data_key import WrappedKey
from skep.model.operation import NewOperations, OperationKind
from skep.model.record import Report
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops
from tests.contract.test_staging import Stage
from tests.unit.store.postgres.conftest import TENANTS
from tests.unit.store.postgres.holding import Held, Session, waiting_or_done

pytestmark = pytest.mark.asyncio(loop_scope="module")
URL = "https://example.com/hook"
LOGS = "SELECT pg_advisory_xact_lock(1936418160, id) FROM queue"


@pytest.fixture
def driver(servers: tuple[PostgresStore, PostgresStore], dsn: str) -> Driver:
    """One server, in a tenant of its own and a database that was emptied."""
    return Driver(servers[0], ManualClock(), next(TENANTS))


@pytest.fixture
def second(servers: tuple[PostgresStore, PostgresStore], driver: Driver) -> Driver:
    """Another server."""
    return Driver(servers[1], driver.clock, driver.tenant)


@pytest_asyncio.fixture(loop_scope="module")
async def other(dsn: str) -> AsyncIterator[Session]:
    """A session that is neither's."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    yield connection
    connection.terminate()


async def beside(held: Held, session: Session, call: Any) -> Any:
    """The answer of a call that begins while another is held, which then ends."""
    task = asyncio.ensure_future(call)
    await waiting_or_done(session, task)
    await held.finish()
    return await task


async def test_apps_that_are_applied_at_once_have_revisions_of_their_own(
    driver: Driver, second: Driver, other: Session
) -> None:
    held = await Held.begin(driver.store, lambda: driver.store.records.put_app("a", b"{}", driver.now))
    applied = await beside(held, other, second.store.records.put_app("b", b"{}", driver.now))

    assert applied.revision == 2
    assert await driver.store.records.apps_revision() == 2


async def test_an_app_is_not_applied_over_one_that_is_just_being_applied(
    driver: Driver, second: Driver, other: Session
) -> None:
    held = await Held.begin(driver.store, lambda: driver.store.records.put_app("a", b"{}", driver.now))
    with pytest.raises(SkepError) as refused:
        await beside(held, other, second.store.records.put_app("b", b"{}", driver.now, expected=0))

    assert refused.value.code is Code.STORE_BUSY


async def test_an_endpoint_that_is_gone_stays_so_though_another_server_has_just_delivered(
    driver: Driver, second: Driver, other: Session
) -> None:
    async def report(store: Any, outcome: Report) -> Any:
        return await store.records.report_endpoint(
            driver.tenant, URL, outcome, driver.now, threshold=9, open_seconds=60
        )

    await report(driver.store, Report.FAILED)
    held = await Held.begin(driver.store, lambda: report(driver.store, Report.GONE))
    endpoint = await beside(held, other, report(second.store, Report.DELIVERED))

    assert (endpoint.failures, endpoint.stopped_at) == (0, driver.now)


def key(driver: Driver, queue: str, master: str = "old") -> WrappedKey:
    return WrappedKey(
        id=driver.mint.mint(),
        queue=QueueKey(queue, driver.tenant),
        master=master,
        wrapped=b"wrapped",
        created_at=driver.now,
    )


@pytest.mark.parametrize("verb", ["shred", "rewrap"])
async def test_a_key_that_is_made_while_others_are_shredded_or_rewrapped_stays(
    driver: Driver, second: Driver, other: Session, verb: str
) -> None:
    mine, made = key(driver, "mine"), key(driver, "theirs")
    await driver.store.put_data_key(mine)
    held = await Held.begin(driver.store, lambda: driver.store.put_data_key(made))
    if verb == "shred":
        done = await beside(held, other, second.store.shred_data_keys(driver.tenant, "mine", driver.now))
    else:
        done = await beside(held, other, second.store.rewrap_data_keys([key(driver, "mine")], "none"))

    assert done == (1 if verb == "shred" else 0)
    assert made in await driver.store.data_keys()


async def test_changes_are_announced_in_the_order_of_their_commits(
    driver: Driver, second: Driver, other: Session
) -> None:
    await driver.create("a")
    await second.create("b")
    start = (await driver.store.system_events(None)).position
    held = await Held.begin(driver.store, lambda: driver.store.shred_data_keys("first", None, driver.now))
    task = asyncio.ensure_future(second.store.update_queue(second.key("b"), QueueChanges(priority=1), driver.now))
    await waiting_or_done(other, task)
    seen = await second.store.system_events(start)
    await held.finish()
    await task
    rest = await second.store.system_events(seen.position)

    assert [event.key.tenant for event in (*seen.events, *rest.events)] == ["first", driver.tenant]


async def test_an_operation_that_comes_while_its_queue_becomes_fifo_is_for_the_one_partition(
    driver: Driver, second: Driver, other: Session
) -> None:
    await driver.create()
    changing = QueueChanges(ordering=Ordering.FIFO)
    held = await Held.begin(driver.store, lambda: driver.store.update_queue(driver.key(), changing, driver.now))
    kept = await beside(held, other, Ops(second).push("1", partition="p"))

    assert kept.partition == "Default"


async def test_a_queue_does_not_become_fifo_over_an_operation_that_is_just_being_kept(
    driver: Driver, second: Driver, other: Session
) -> None:
    await driver.create()
    batch = driver.batch(driver.message("1", partition="p"))
    async with other.transaction():
        await other.execute("LOCK TABLE operation IN ROW EXCLUSIVE MODE")
        changing = QueueChanges(ordering=Ordering.FIFO)
        task = asyncio.ensure_future(driver.store.update_queue(driver.key(), changing, driver.now))
        await waiting_or_done(other, task)
        assert not task.done(), "it waits for whoever is about to keep one"
    await task
    ((kept,),) = await second.store.enqueue(
        [NewOperations(OperationKind.PUSH, [driver.mint.mint()], push=batch)], driver.now
    )

    assert kept.partition == "Default"


async def test_I2_an_operation_that_is_being_performed_is_claimed_by_nobody_else(
    driver: Driver, second: Driver, other: Session
) -> None:
    await driver.create()
    await Ops(driver).push("1")
    token, claimed = await Ops(driver).claim()
    async with other.transaction():
        await other.execute(LOGS)
        performing = asyncio.ensure_future(driver.store.perform(token, claimed, driver.now))
        await waiting_or_done(other, performing)
        driver.clock.advance(3_600)
        _, again = await Ops(second).claim()
    performed = await performing

    assert again == []
    assert performed.lost == []
    assert payloads(await driver.pop()) == ["1"]


async def test_chunks_are_not_dropped_while_they_are_published(driver: Driver, second: Driver, other: Session) -> None:
    await driver.create()
    stage = Stage(driver)
    await stage.plain("1", "2")
    async with other.transaction():
        await other.execute(LOGS)
        publishing = asyncio.ensure_future(stage.publish((0, 0, 2)))
        await waiting_or_done(other, publishing)
        dropping = asyncio.ensure_future(second.store.abort(stage.epoch))
        await waiting_or_done(other, dropping, calls=2)
    answer = await publishing

    assert answer.messages == 2
    assert await dropping == 0


async def test_acks_lock_leases_in_their_order_whether_anything_is_left_of_them_or_not(
    driver: Driver, other: Session
) -> None:
    """Partition b has more to do, and c has not: c must not be locked by one who waits for b."""
    await driver.push("1", "2", partition="b")
    await driver.push("3", partition="c")
    first, last = (await driver.pop(partition="b", batch=1), await driver.pop(partition="c"))
    settlements = [driver.settlement(one) for one in (*first, *last)]
    async with other.transaction():
        await other.execute("SELECT 1 FROM partition_lease WHERE partition = 'b' FOR UPDATE")
        acking = asyncio.ensure_future(driver.store.settle(settlements, driver.now))
        await waiting_or_done(other, acking)
        await other.execute("SELECT 1 FROM partition_lease WHERE partition = 'c' FOR UPDATE NOWAIT")
    results = await acking

    assert [result.status for result in results] == ["completed", "completed"]


async def test_nothing_of_a_deleted_queue_is_left_but_the_history_of_its_leases(driver: Driver, other: Session) -> None:
    await driver.push("1", "2")
    await driver.ack(*await driver.pop())
    await driver.forget(1)
    queue_id = await other.fetchval("SELECT id FROM queue WHERE tenant = $1", driver.tenant)
    await driver.delete()
    while (await driver.store.sweep(driver.now, 1_000)).more:
        pass

    tables = await other.fetch(
        "SELECT table_name FROM information_schema.columns WHERE table_schema = 'skep' AND column_name = 'queue_id'"
    )
    left = [
        row["table_name"]
        for row in tables
        if await other.fetchval(f"SELECT count(*) FROM {row['table_name']} WHERE queue_id = $1", queue_id)
    ]
    assert "forgotten" in {row["table_name"] for row in tables}
    assert left == ["lease_history"], "that goes by its age"
