"""Groups and queues that are made, or deleted, while another call waits for a lock.

A group is made under the log's lock. So who has taken all groups and then waits for the log may find another group when it has the
log; and who makes a group holds the log, and must not wait for that group.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from skep.errors import Code, SkepError
from skep.model import FROM_BEGINNING, QUEUE_MODE_GROUP, ClearScope, Ordering
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, seqs
from tests.unit.store.postgres.holding import Held, Session, waiting_or_done

MESSAGES = 20
LOCK_LOG, UNLOCK_LOG = "SELECT pg_advisory_lock(1936418160, $1)", "SELECT pg_advisory_unlock(1936418160, $1)"
TAKE_GROUP, LEAVE_GROUP = "SELECT pg_advisory_lock(1936418164, $1)", "SELECT pg_advisory_unlock(1936418164, $1)"
MAKE_GROUP = "SELECT ensure_group($1, $2, 'all', NULL, 0)"
HOLDS_A_LOG = """
SELECT EXISTS (SELECT 1 FROM pg_locks h WHERE h.pid = w.pid AND h.granted AND h.classid = 1936418160)
FROM pg_locks w JOIN pg_stat_activity a ON a.pid = w.pid AND a.application_name LIKE 'skep %'
WHERE NOT w.granted AND w.classid = 1936418164
"""
WAITS_FOR_ANOTHER_LOCK = """
SELECT count(*) FROM pg_locks w JOIN pg_stat_activity a ON a.pid = w.pid AND a.application_name LIKE 'skep %'
WHERE NOT w.granted AND w.classid IS DISTINCT FROM 1936418160
"""
FREE = "SELECT coalesce(sum(cardinality(seqs)), 0) FROM set_lease WHERE token IS NULL"

Call = Callable[[Driver], Awaitable[Any]]


@pytest_asyncio.fixture(loop_scope="module")
async def second(store: PostgresStore, dsn: str) -> AsyncIterator[PostgresStore]:
    """Another server."""
    second = PostgresStore(dsn)
    await second.open()
    yield second
    await second.close()


async def clear(driver: Driver) -> Any:
    return await driver.store.clear(driver.key("q.dead"), ClearScope.ALL, driver.now)


async def purge(driver: Driver) -> Any:
    return await driver.store.purge(driver.dead_filter(), MESSAGES, driver.now)


@pytest.mark.parametrize("ending", [clear, purge])
async def test_I12_who_ends_leases_waits_for_a_group_that_came_while_it_waited_for_the_log(
    driver: Driver, second: PostgresStore, other: Session, ending: Call
) -> None:
    dead = await driver.create("q.dead", ordering=Ordering.UNORDERED, max_attempts=0)
    await driver.create(dead_letter_queue="q.dead")
    await driver.push(*map(str, range(MESSAGES)))
    await driver.reject(*await driver.pop())
    await other.execute(LOCK_LOG, dead.id)
    ending_ = asyncio.ensure_future(ending(Driver(second, driver.clock, driver.tenant)))
    await waiting_or_done(other, ending_)
    await other.execute(MAKE_GROUP, dead.id, QUEUE_MODE_GROUP)
    await driver.store.settle(
        [(await driver.store.pop([driver.request("q.dead", batch=1)], driver.now))[0].deliveries[0].settlement()],
        driver.now,
    )
    # It leaves what it does not take in a row that nobody else sees yet.
    request = driver.request("q.dead", batch=5)
    held = await Held.begin(driver.store, lambda: driver.store.pop([request], driver.now))
    await other.execute(UNLOCK_LOG, dead.id)
    while not ending_.done() and not await other.fetchval(WAITS_FOR_ANOTHER_LOCK):
        pass
    await held.finish()
    await ending_

    assert await other.fetchval(FREE) == 0
    await driver.check_accounts()


async def pop(driver: Driver) -> Any:
    (result,) = await driver.store.pop([driver.request()], driver.now)
    assert seqs(result.deliveries) == [1, 2]


async def seek(driver: Driver) -> Any:
    await driver.store.seek(driver.key(), QUEUE_MODE_GROUP, FROM_BEGINNING, driver.now)


@pytest.mark.parametrize("call", [pop, seek])
async def test_who_would_make_a_group_that_another_has_does_not_wait_for_it_with_the_log_in_hand(
    driver: Driver, other: Session, call: Call
) -> None:
    queue = await driver.create()
    await driver.push("1", "2")
    await other.execute(LOCK_LOG, queue.id)
    calling = asyncio.ensure_future(call(driver))
    await waiting_or_done(other, calling)
    group = await other.fetchval(MAKE_GROUP, queue.id, QUEUE_MODE_GROUP)
    await other.execute(TAKE_GROUP, group)
    await other.execute(UNLOCK_LOG, queue.id)
    while (holds_a_log := await other.fetchval(HOLDS_A_LOG)) is None:
        assert not calling.done()
    await other.execute(LEAVE_GROUP, group)
    await calling

    assert not holds_a_log


async def test_a_seek_beside_the_deletion_of_its_group_makes_it_anew(
    driver: Driver, second: PostgresStore, other: Session
) -> None:
    await driver.create()
    await driver.push("1", "2")
    await driver.pop()
    held = await Held.begin(driver.store, lambda: driver.delete_group())
    seeking = asyncio.ensure_future(second.seek(driver.key(), QUEUE_MODE_GROUP, FROM_BEGINNING, driver.now))
    await waiting_or_done(other, seeking)
    await held.finish()
    await seeking

    assert seqs(await driver.pop()) == [1, 2]


async def push(driver: Driver, **fields: Any) -> Any:
    (outcome,) = await driver.store.push([driver.batch(driver.message("x", **fields))], driver.now, create_queues=False)
    (result,) = outcome.results
    assert result.code is not None
    raise SkepError(result.code, "refused")


async def push_with_a_key(driver: Driver) -> Any:
    await push(driver, transaction_id="t")


@pytest.mark.parametrize("call", [pop, push, push_with_a_key])
async def test_who_waited_finds_that_the_queue_was_deleted_meanwhile(
    driver: Driver, other: Session, call: Call
) -> None:
    queue = await driver.create()
    await driver.push("1", "2")
    await driver.pop(partition="nobody's")
    await other.execute(LOCK_LOG, queue.id)
    await other.execute("SELECT pg_advisory_lock(1936418164, g.id) FROM consumer_group g")
    calling = asyncio.ensure_future(call(driver))
    await waiting_or_done(other, calling)
    await other.execute("UPDATE queue SET deleted_at = 1 WHERE id = $1", queue.id)
    await other.execute("SELECT pg_advisory_unlock_all()")

    with pytest.raises(SkepError) as refused:
        await calling
    assert refused.value.code is Code.QUEUE_NOT_FOUND


async def test_a_pop_does_not_wait_for_who_discovers(driver: Driver, other: Session) -> None:
    await driver.push("1")
    await driver.ack(*await driver.pop())
    await driver.push("2")
    async with other.transaction():
        await other.execute("SELECT 1 FROM consumer_group FOR UPDATE")
        (result,) = await driver.store.pop([driver.request()], driver.now)

    assert result.deliveries == []
    assert seqs(await driver.pop()) == [2]


@pytest.mark.parametrize(
    "hold",
    ["SELECT 1 FROM consumer_group FOR UPDATE", "SELECT pg_advisory_xact_lock(1936418164, id) FROM consumer_group"],
)
async def test_a_push_for_who_waits_leaves_a_group_alone_that_another_has(
    driver: Driver, other: Session, hold: str
) -> None:
    await driver.push("1")
    await driver.ack(*await driver.pop())
    async with other.transaction():
        await other.execute(hold)
        (outcome,), popped = await driver.store.push_and_pop(
            [driver.batch(driver.message("2"))], [driver.request()], driver.now
        )

    assert ([result.seq for result in outcome.results], popped) == ([2], [None])
    assert seqs(await driver.pop()) == [2]
