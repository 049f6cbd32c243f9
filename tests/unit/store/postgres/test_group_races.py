"""Leases are taken away (seek, clear, delete) while others pop and settle: nothing of either is left half done.

Each test stops one call right before its commit, and begins the other one meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import Instant, ManualClock
from skep.errors import Code, SkepError
from skep.model import (
    FROM_BEGINNING,
    FROM_NOW,
    ClearScope,
    Delivery,
    Ordering,
    Outcome,
    PushStatus,
    QueueChanges,
    Retry,
    Seq,
)
from skep.model.transaction import Transaction, fingerprint_of
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, seqs
from tests.unit.store.postgres.conftest import TENANTS
from tests.unit.store.postgres.holding import Held, Session, waiting_or_done

MESSAGES = 20
DAY = 86_400
ORPHANS = """
SELECT (SELECT count(*) FROM {table} l WHERE NOT EXISTS (SELECT 1 FROM consumer_group g WHERE g.id = l.group_id))
"""

Action = Callable[[Driver], Awaitable[Any]]
Begun = Callable[[Driver], Awaitable[Callable[[], Any]]]


@pytest.fixture
def driver(servers: tuple[PostgresStore, PostgresStore], dsn: str) -> Driver:
    """One server, in a tenant of its own and a database that was emptied."""
    return Driver(servers[0], ManualClock(), next(TENANTS))


@pytest.fixture
def second(servers: tuple[PostgresStore, PostgresStore]) -> PostgresStore:
    """Another server."""
    return servers[1]


@pytest_asyncio.fixture(loop_scope="module")
async def other(dsn: str) -> AsyncIterator[Session]:
    """A session that is neither's."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    yield connection
    connection.terminate()


async def orphans(session: Session) -> dict[str, int]:
    """Rows of groups that are not there."""
    found = {table: await session.fetchval(ORPHANS.format(table=table)) for table in ("partition_lease", "set_lease")}
    found["group_counter"] = await session.fetchval(ORPHANS.format(table="group_counter"))
    return {table: count for table, count in found.items() if count}


# what is under way: each leaves a row behind that it has inserted itself


async def popping(driver: Driver) -> Callable[[], Any]:
    """A pop that takes some messages of a set, and leaves the others in a row of their own."""
    await driver.ack(await driver.pop_one())
    request = driver.request(batch=5)
    return lambda: driver.store.pop([request], driver.now)


async def nacking(driver: Driver) -> Callable[[], Any]:
    """A nack, which moves its message into a row of its own."""
    (first, *_) = await driver.pop(batch=5)
    settlement = driver.settlement(first, Outcome.NACK, retry=Retry.NOW)
    return lambda: driver.store.settle([settlement], driver.now)


async def releasing(driver: Driver) -> Callable[[], Any]:
    """A release, which does the same."""
    (first, *_) = await driver.pop(batch=5)
    settlement = driver.settlement(first, Outcome.RELEASE)
    return lambda: driver.store.settle([settlement], driver.now)


async def transacting(driver: Driver) -> Callable[[], Any]:
    """The same by a transaction that pushes something, too."""
    (first, *_) = await driver.pop(batch=5)
    settlement = driver.settlement(first, Outcome.NACK, retry=Retry.NOW)
    message = driver.message("out", "next")
    transaction = Transaction(
        [settlement], driver.batch(message), [], [], fingerprint_of([settlement], [message], [], [])
    )
    return lambda: driver.store.transact([transaction], driver.now)


UNDER_WAY = [popping, nacking, releasing, transacting]


async def beside(driver: Driver, second: PostgresStore, session: Session, begun: Begun, action: Action) -> Driver:
    """Run an action of another server while a call is under way; a driver that knows only what is there after both."""
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=0)
    await driver.push(*map(str, range(MESSAGES)))
    held = await Held.begin(driver.store, await begun(driver))
    acting = asyncio.ensure_future(action(Driver(second, driver.clock, driver.tenant)))
    await waiting_or_done(session, acting)
    await held.finish()
    await acting
    return Driver(driver.store, driver.clock, driver.tenant)


async def everything(driver: Driver) -> list[Delivery]:
    """All that can be had, each lease still live."""
    got: list[Delivery] = []
    while more := await driver.pop():
        got += more
    return got


@pytest.mark.parametrize("begun", UNDER_WAY)
async def test_I5_I12_a_seek_ends_every_lease_that_was_in_the_making(
    driver: Driver, second: PostgresStore, other: Session, begun: Begun
) -> None:
    driver = await beside(driver, second, other, begun, lambda d: d.seek(FROM_BEGINNING))

    got = await everything(driver)
    assert Counter(seqs(got)) == dict.fromkeys(range(1, MESSAGES + 1), 1)
    assert {delivery.attempt for delivery in got} == {1}
    await driver.ack(*got)
    stats = await driver.stats()
    assert (stats.pushed, stats.completed) == (MESSAGES, MESSAGES)
    assert (await driver.queue_stats()).depth == 0


async def test_a_seek_that_took_effect_says_so_though_the_group_is_deleted_right_after(
    driver: Driver, second: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.create()
    await driver.push("a", "b")
    await driver.pop(group="g")
    assert isinstance(driver.store, PostgresStore)
    tell = driver.store.tell_waiting

    async def delete_and_tell(queues: list[int], now: Instant) -> None:
        """What comes right after the commit."""
        assert await second.delete_group(driver.key(), "g", now)
        await tell(queues, now)

    monkeypatch.setattr(driver.store, "tell_waiting", delete_and_tell)

    assert (await driver.store.seek(driver.key(), "g", FROM_BEGINNING, driver.now)).pending == 2


@pytest.mark.parametrize("begun", UNDER_WAY)
async def test_I12_a_seek_past_everything_leaves_nothing_to_come(
    driver: Driver, second: PostgresStore, other: Session, begun: Begun
) -> None:
    driver = await beside(driver, second, other, begun, lambda d: d.seek(FROM_NOW))

    assert await everything(driver) == []
    await driver.update(max_depth=3)
    pushed = [result.status for _ in range(5) for result in await driver.push("x")]
    assert pushed == [PushStatus.STORED] * 3 + [PushStatus.REFUSED] * 2


@pytest.mark.parametrize("begun", UNDER_WAY)
async def test_I12_clearing_leaves_nothing_to_come(
    driver: Driver, second: PostgresStore, other: Session, begun: Begun
) -> None:
    driver = await beside(driver, second, other, begun, lambda d: d.clear(ClearScope.ALL))

    assert await everything(driver) == []
    stats = await driver.stats()
    assert stats.completed + stats.expired == MESSAGES


@pytest.mark.parametrize("begun", UNDER_WAY)
async def test_a_deleted_group_leaves_no_row_behind(
    driver: Driver, second: PostgresStore, other: Session, begun: Begun
) -> None:
    driver = await beside(driver, second, other, begun, lambda d: d.delete_group())

    assert await orphans(other) == {}
    await driver.clear(ClearScope.ALL)
    assert (await driver.update(ordering=Ordering.PER_KEY)).settings.ordering is Ordering.PER_KEY


@pytest.mark.parametrize("begun", UNDER_WAY)
async def test_a_deleted_queue_is_swept_whole(
    driver: Driver, second: PostgresStore, other: Session, begun: Begun
) -> None:
    async def delete_and_sweep(driver: Driver) -> None:
        await driver.delete()
        for _ in range(3):
            await driver.store.sweep(driver.now, 1000)

    await beside(driver, second, other, begun, delete_and_sweep)
    while (await second.sweep(driver.now, 1000)).more:
        pass

    assert await orphans(other) == {}
    queue_rows = "SELECT count(*) FROM {} t WHERE NOT EXISTS (SELECT 1 FROM queue q WHERE q.id = t.queue_id)"
    for table in ("consumer_group", "set_lease", "partition_lease", "group_counter", "message"):
        assert await other.fetchval(queue_rows.format(table)) == 0, table


@pytest.mark.parametrize("begun", [popping, nacking, releasing])
async def test_I12_purging_dead_letters_beside_those_who_read_them_counts_each_once(
    driver: Driver, second: PostgresStore, other: Session, begun: Begun
) -> None:
    await driver.create("q", ordering=Ordering.UNORDERED, max_attempts=0)
    await driver.create("q.source", dead_letter_queue="q")
    await driver.push(*map(str, range(MESSAGES)), queue="q.source")
    await driver.reject(*await driver.pop("q.source"))
    held = await Held.begin(driver.store, await begun(driver))
    purging = asyncio.ensure_future(second.purge(driver.dead_filter("q"), MESSAGES, driver.now))
    await waiting_or_done(other, purging)
    await held.finish()
    assert (await purging).count == MESSAGES

    left = await other.fetchval("SELECT coalesce(sum(cardinality(seqs)), 0) FROM set_lease WHERE token IS NULL")
    assert left == 0, "nothing that is free is left of what is gone"
    await driver.check_accounts()


async def test_I11_purging_dead_letters_beside_a_correction_of_their_times_leaves_none_without_its_message(
    driver: Driver, second: PostgresStore, other: Session
) -> None:
    await driver.create("q", dead_letter_queue="q.dead")
    await driver.push(*map(str, range(MESSAGES)))
    right = driver.now
    driver.clock.advance(DAY)
    await driver.reject(*await driver.pop())
    await driver.store.put_right(driver.now, 1000)
    driver.clock = ManualClock(right)
    await driver.store.put_right(driver.now, 1000)
    driver.clock.advance(DAY / 2)
    assert (await driver.store.put_right(driver.now, 1000)).more, "messages are corrected first, then the rest"

    held = await Held.begin(driver.store, lambda: driver.store.put_right(driver.now, 1000))
    purging = asyncio.ensure_future(second.purge(driver.dead_filter("q.dead"), MESSAGES, driver.now))
    await waiting_or_done(other, purging)
    assert (await held.finish()).done >= MESSAGES
    assert (await purging).count == MESSAGES

    assert await other.fetchval("SELECT count(*) FROM dead_letter") == 0


async def test_I12_retention_that_ignores_groups_beside_a_pop_lets_go_of_all_it_deletes(
    driver: Driver, second: PostgresStore, other: Session
) -> None:
    await driver.create(ordering=Ordering.UNORDERED, retention_seconds=10, retention_ignores_groups=True)
    await driver.push(*map(str, range(MESSAGES)))
    driver.clock.advance(60)
    held = await Held.begin(driver.store, await popping(driver))
    retaining = asyncio.ensure_future(second.retain(driver.key(), driver.now, 1000))
    await waiting_or_done(other, retaining)
    (popped,) = await held.finish()

    assert (await retaining).done == MESSAGES
    stats = await driver.stats()
    assert (stats.pending, stats.in_flight, stats.expired) == (0, 5, MESSAGES - 6)
    await driver.ack(*popped.deliveries)
    assert (await driver.queue_stats()).depth == 0


async def test_retention_beside_the_switch_that_makes_it_wait_for_the_archive_deletes_nothing_after_it(
    driver: Driver, second: PostgresStore, other: Session
) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("1")
    await driver.pop(auto_ack=True)
    driver.clock.advance(60)
    changes = QueueChanges(retention_requires_archive=True)
    held = await Held.begin(driver.store, lambda: driver.store.update_queue(driver.key(), changes, driver.now))
    retaining = asyncio.ensure_future(second.retain(driver.key(), driver.now, 1000))
    await waiting_or_done(other, retaining)

    await held.finish()

    assert (await retaining).done == 0


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_pops_of_one_group_do_not_wait_for_each_other(
    driver: Driver, second: PostgresStore, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    for partition in "abcd":
        await driver.push("1", partition=partition)
    await driver.ack(await driver.pop_one())
    held = await Held.begin(driver.store, lambda: driver.pop(batch=1, auto_ack=True))

    (result,) = await second.pop([driver.request(batch=1)], driver.now)

    assert len(result.deliveries) == 1
    await held.finish()


# the other way round: a pop that comes while the group, or the queue, is on its way out


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_a_pop_beside_the_deletion_of_its_group_begins_anew(
    driver: Driver, second: PostgresStore, other: Session, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push("1", "2")
    await driver.pop(batch=1)
    held = await Held.begin(driver.store, lambda: driver.delete_group())
    request = driver.request()
    popping_ = asyncio.ensure_future(second.pop([request], driver.now))
    await waiting_or_done(other, popping_)
    await held.finish()

    (result,) = await popping_
    assert seqs(result.deliveries) == [1, 2]
    assert await orphans(other) == {}


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_no_group_is_made_for_a_queue_that_is_deleted_meanwhile(
    driver: Driver, other: Session, ordering: Ordering
) -> None:
    queue = await driver.create(ordering=ordering)
    await driver.push("1")
    deleting = other.transaction()
    await deleting.start()
    await other.execute("SELECT lock_log($1)", queue.id)
    calls = [
        asyncio.ensure_future(driver.store.pop([driver.request(group="a")], driver.now)),
        asyncio.ensure_future(driver.store.seek(driver.key(), "b", FROM_BEGINNING, driver.now)),
        asyncio.ensure_future(driver.store.report_progress(driver.key(), "c", Seq(1), driver.now)),
    ]
    for call in calls:
        await waiting_or_done(other, call)
    await other.execute("UPDATE queue SET deleted_at = 1 WHERE id = $1", queue.id)
    await deleting.commit()

    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [r.code if isinstance(r, SkepError) else r for r in results] == [Code.QUEUE_NOT_FOUND] * 3
    assert await other.fetchval("SELECT count(*) FROM consumer_group") == 0


async def test_pops_beside_deletions_of_their_group_and_queue_say_nothing_wrong(
    driver: Driver, second: PostgresStore, other: Session
) -> None:
    """Not stopped anywhere: a pop in one statement has no place to stop at."""
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push("1")
    over = asyncio.Event()
    wrong: list[BaseException] = []

    async def pop() -> None:
        while not over.is_set():
            try:
                await driver.store.pop([driver.request(batch=1)], driver.now)
            except SkepError as error:
                if error.code is not Code.QUEUE_NOT_FOUND:
                    wrong.append(error)
            except AssertionError as error:
                wrong.append(error)

    poppers = [asyncio.ensure_future(pop()) for _ in range(4)]
    for _ in range(100):
        await second.delete_group(driver.key(), driver.request().group, driver.now)
    for _ in range(40):
        await second.delete_queue(driver.key(), driver.now)
        await Driver(second, driver.clock, driver.tenant).create(ordering=Ordering.UNORDERED)
    over.set()
    await asyncio.gather(*poppers)
    while (await second.sweep(driver.now, 1000)).more:
        pass

    assert wrong == []
    assert await orphans(other) == {}
