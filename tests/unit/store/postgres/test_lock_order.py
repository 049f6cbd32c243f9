"""The order of locks that functions/locks.sql gives: whoever waits for a lock holds none that comes after it.

Another session holds all locks of some kinds. A verb of the store runs into one after the other; each time PostgreSQL is asked
what else the verb holds, and then the verb gets that lock. Nobody can then wait for someone who waits for them, whatever the two do.
And `VERBS` says which locks each verb takes, so that none of them is lost.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import Instant, ManualClock
from skep.model import FROM_BEGINNING, ClearScope, Ordering, Outcome, QueueChanges, Retry, Seq
from skep.model.scheduled import Change, ScheduledFilter
from skep.model.transaction import Transaction
from skep.store.postgres import PostgresStore
from skep.store.postgres.retain import _retain
from skep.store.postgres.store import _compact
from tests.conftest import EMPTY
from tests.contract.driver import Driver
from tests.unit.store.postgres.holding import Session

STATE_TABLES = ["consumer_group", "partition_lease", "set_lease", "group_counter"]
GROUP, CONFIGURATION, LOG = 1936418164, 1936418161, 1936418160
ADVISORY = [GROUP, CONFIGURATION, LOG]
LOCK_ALL = [
    "SELECT pg_advisory_lock(1936418164, g.id) FROM consumer_group g",
    "SELECT pg_advisory_lock(1936418161, t.number) FROM (SELECT DISTINCT hashtext(q.tenant) AS number FROM queue q) t",
    "SELECT pg_advisory_lock(1936418160, q.id) FROM queue q",
]
UNLOCK = "SELECT pg_advisory_unlock($1::integer, ($2::bigint - CASE WHEN $2 >= 2147483648 THEN 4294967296 ELSE 0 END)::integer)"
NAMES = {(GROUP, "ShareLock"): "share", (GROUP, "ExclusiveLock"): "take", (CONFIGURATION, "ExclusiveLock"): "configuration", (LOG, "ExclusiveLock"): "log"}  # fmt: skip
HELD_WHILE_WAITING = """
SELECT w.classid::bigint AS awaited_class, w.objid::bigint AS awaited_number, w.mode, v.relname AS awaited_table,
       h.classid::bigint AS class, h.objid::bigint AS number, r.relname AS table
FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid AND h.granted
LEFT JOIN pg_class v ON v.oid = w.relation
LEFT JOIN pg_class r ON r.oid = h.relation AND r.relkind = 'r'
JOIN pg_stat_activity a ON a.pid = w.pid AND a.application_name LIKE 'skep %'
WHERE NOT w.granted AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

TENANTS = (f"tenant {number}" for number in itertools.count(1))

Verb = Callable[[Driver], Awaitable[Callable[[], Awaitable[Any]]]]


async def push(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x", transaction_id="t"))
    return lambda: driver.store.push([batch], driver.now)


async def push_plain(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x"))
    return lambda: driver.store.push([batch], driver.now)


async def push_and_pop(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.ack(*await driver.pop())
    batch = driver.batch(driver.message("x"))
    return lambda: driver.store.push_and_pop([batch], [driver.request()], driver.now)


async def settle_and_pop(driver: Driver) -> Callable[[], Awaitable[Any]]:
    held = await driver.pop_one()
    await driver.push("next")
    return lambda: driver.store.settle_and_pop([held.settlement()], [driver.request()], driver.now)


async def push_to_another_that_is_new(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x"), driver.message("y", "new"))
    return lambda: driver.store.push([batch], driver.now)


async def push_to_several(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a")
    batch = driver.batch(driver.message("x", "a"), driver.message("y"))
    return lambda: driver.store.push([batch], driver.now)


async def push_to_a_new_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x", "new"))
    return lambda: driver.store.push([batch], driver.now)


async def watch(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.watch([driver.key()], driver.later(60))


async def pop(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request()], driver.now)


async def pop_and_bury(driver: Driver) -> Callable[[], Awaitable[Any]]:
    driver.clock.advance(1_000)
    return pop_later(driver)


async def pop_for_a_new_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request(group="new")], driver.now)


async def auto_ack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request(auto_ack=True)], driver.now)


async def auto_ack_and_bury_for_a_new_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    driver.clock.advance(1_000)
    return lambda: driver.store.pop([driver.request(group="new", auto_ack=True)], driver.now)


def pop_later(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.pop([driver.request()], driver.now)


async def ack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one())
    return lambda: driver.store.settle([settlement], driver.now)


async def nack(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one(), Outcome.NACK, retry=Retry.NOW)
    return lambda: driver.store.settle([settlement], driver.now)


async def reject(driver: Driver) -> Callable[[], Awaitable[Any]]:
    settlement = driver.settlement(await driver.pop_one(), Outcome.REJECT)
    return lambda: driver.store.settle([settlement], driver.now)


async def reject_into_a_new_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a")
    await driver.push("1", queue="a")
    settlement = driver.settlement(await driver.pop_one("a"), Outcome.REJECT)
    return lambda: driver.store.settle([settlement], driver.now)


async def reject_in_two_queues(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.create("a", dead_letter_queue="q.dead")
    await driver.push("1", queue="a")
    held = [await driver.pop_one("a"), await driver.pop_one()]
    settlements = [driver.settlement(delivery, Outcome.REJECT) for delivery in held]
    return lambda: driver.store.settle(settlements, driver.now)


async def renew(driver: Driver) -> Callable[[], Awaitable[Any]]:
    delivery = await driver.pop_one()
    return lambda: driver.renew(delivery)


async def transact(driver: Driver) -> Callable[[], Awaitable[Any]]:
    one = Transaction([driver.settlement(await driver.pop_one())], driver.batch(driver.message("out")))
    return lambda: driver.store.transact([one], driver.now)


async def transact_together(driver: Driver) -> Callable[[], Awaitable[Any]]:
    several = [
        Transaction([driver.settlement(delivery)], driver.batch(driver.message("out")))
        for delivery in await driver.pop(batch=2)
    ]
    several.append(Transaction([], driver.batch(driver.message("out"))))
    return lambda: driver.store.transact(several, driver.now)


async def seek(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.seek(driver.key(), driver.request().group, FROM_BEGINNING, driver.now)


async def seek_of_a_new_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.seek(driver.key(), "new", FROM_BEGINNING, driver.now)


async def delete_group(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.delete_group(driver.key(), driver.request().group, driver.now)


async def release_lease(driver: Driver) -> Callable[[], Awaitable[Any]]:
    held = await driver.pop_one()
    return lambda: driver.store.release_lease(held.queue, held.group, held.partition, held.token, driver.now)


async def end_leases(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.pop(batch=1)
    return lambda: driver.store.end_leases(driver.key(), driver.request().group, "Default", driver.now)


async def report_progress(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.report_progress(driver.key(), "external", Seq(1), driver.now)


async def clear(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.clear(driver.key(), ClearScope.ALL, driver.now)


async def clear_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await waiting(driver)
    return lambda: driver.store.clear(driver.key(), ClearScope.SCHEDULED, driver.now)


async def purge(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.reject(await driver.pop_one())
    await driver.pop("q.dead")
    return lambda: driver.store.purge(driver.dead_filter(), 10, driver.now)


async def replay(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.reject(await driver.pop_one())
    await driver.pop("q.dead")
    ids = driver.mint.mint_many(10)
    return lambda: driver.store.replay(driver.dead_filter(), ids, Seq(2**60), driver.now)


async def delete_message(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """One that two groups have not settled, and one of them holds."""
    await driver.seek(FROM_BEGINNING, group="another")
    (held,) = await driver.pop(batch=1)
    return lambda: driver.store.delete_message(driver.key(), held.seq, None, driver.now)


async def expire(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.pop(group="another")
    driver.clock.advance(1_000)
    return lambda: driver.store.expire(driver.key(), driver.now, 100)


async def retain(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.update(retention_seconds=1, retention_ignores_groups=True)
    driver.clock.advance(1_000)
    return lambda: driver.store.retain(driver.key(), driver.now, 100)


async def retain_settled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    """Without the look for idle groups, which is a transaction of its own and reads the groups before."""
    await driver.update(retention_seconds=1)
    driver.clock.advance(1_000)
    store = driver.store
    assert isinstance(store, PostgresStore)
    return lambda: store.pool.transaction(_retain, driver.key(), driver.now, 100, 0)


async def waiting(driver: Driver) -> ScheduledFilter:
    """A filter that some scheduled messages fit."""
    await driver.push("5", "6", deliver_at=driver.later(10), transaction_id="t")
    return ScheduledFilter(tenant=driver.tenant, queue="q")


async def promote(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await waiting(driver)
    driver.clock.advance(20)
    return lambda: driver.store.promote(driver.key(), driver.now, 100)


async def count_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await waiting(driver)
    return lambda: driver.store.scheduled.mark(driver.key())


async def cancel_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.CANCEL, None, None, 10, driver.now)


async def move_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.MOVE, driver.later(99), None, 10, driver.now)


async def run_scheduled(driver: Driver) -> Callable[[], Awaitable[Any]]:
    wanted = await waiting(driver)
    return lambda: driver.store.scheduled.change(wanted, Change.RUN, None, None, 10, driver.now)


async def sweep(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.delete()
    return lambda: driver.store.sweep(driver.now, 100)


async def create_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.create("new")


async def change_of_settings(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.update_queue(driver.key(), QueueChanges(max_attempts=9), driver.now)


async def change_of_ordering(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.clear(ClearScope.ALL)
    changes = QueueChanges(ordering=Ordering.FIFO)
    return lambda: driver.store.update_queue(driver.key(), changes, driver.now)


async def delete_queue(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.delete_queue(driver.key(), driver.now)


async def look(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.queue_stats(driver.key(), driver.now)


async def look_at_leases(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.leases(driver.tenant, driver.now)


async def sample(driver: Driver) -> Callable[[], Awaitable[Any]]:
    return lambda: driver.store.sample(Instant(driver.now + 60_000_000))


async def compact(driver: Driver) -> Callable[[], Awaitable[Any]]:
    store = driver.store
    assert isinstance(store, PostgresStore)
    return lambda: store.pool.transaction(_compact)


VERBS: dict[Verb, str] = {
    push: "log",
    push_plain: "log",
    push_and_pop: "log",
    settle_and_pop: "",
    push_to_another_that_is_new: "log",
    push_to_several: "log log",
    push_to_a_new_queue: "configuration",
    watch: "log",
    pop: "share",
    pop_and_bury: "share log",
    pop_for_a_new_group: "log",
    auto_ack: "share",
    auto_ack_and_bury_for_a_new_group: "log log",
    ack: "",
    nack: "share",
    reject: "share log",
    reject_into_a_new_queue: "share configuration",
    reject_in_two_queues: "share share log",
    renew: "",
    transact: "share log",
    transact_together: "share log",
    seek: "take",
    seek_of_a_new_group: "log",
    delete_group: "take",
    end_leases: "",
    release_lease: "",
    report_progress: "log",
    promote: "log",
    count_scheduled: "log",
    cancel_scheduled: "log",
    move_scheduled: "log",
    run_scheduled: "log",
    clear: "take log",
    clear_scheduled: "log",
    purge: "take log",
    delete_message: "take take log",
    replay: "take log log",
    expire: "share share log",
    retain: "take log",
    retain_settled: "log",
    sweep: "",
    create_queue: "configuration",
    change_of_settings: "configuration",
    change_of_ordering: "take configuration log",
    delete_queue: "configuration log",
    look: "",
    look_at_leases: "",
    sample: "",
    compact: "",
}
"""The verbs, and what each waits for, in that order: `share` or `take` a group, a tenant's configuration, a log."""
IN_TWO_STEPS = auto_ack_and_bury_for_a_new_group, Ordering.UNORDERED
"""Locks logs in another order than that of their ids (docs/log.md)."""
UNORDERED = {**VERBS, settle_and_pop: "share", ack: "share"}
"""The same of an unordered queue, where an ack of single messages may make a row."""


ORDERINGS = pytest.mark.parametrize(
    "ordering", [Ordering.PER_KEY, pytest.param(Ordering.UNORDERED, marks=pytest.mark.slow)]
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_store(emptied_dsn: str) -> AsyncIterator[PostgresStore]:
    """One for all verbs: the sessions of a new one would plan all that these need, which takes longer than they do."""
    connection = await asyncpg.connect(emptied_dsn)
    await connection.execute(EMPTY)
    await connection.close()
    store = PostgresStore(emptied_dsn)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting_session(emptied_dsn: str) -> AsyncIterator[Session]:
    """A session that is not the store's."""
    connection = await asyncpg.connect(emptied_dsn, server_settings={"search_path": "skep"})
    yield connection
    connection.terminate()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def holders(emptied_dsn: str) -> AsyncIterator[dict[str, Session]]:
    """A session for each of the tables that are compacted."""
    sessions = {
        table: await asyncpg.connect(emptied_dsn, server_settings={"search_path": "skep"}) for table in STATE_TABLES
    }
    yield sessions
    for session in sessions.values():
        session.terminate()


async def ready(store: PostgresStore, ordering: Ordering, verb: Verb) -> Callable[[], Awaitable[Any]]:
    """A tenant of its own with a queue, messages and a group that pops them; and a verb that is about to be called."""
    driver = Driver(store, ManualClock(), next(TENANTS), checks=False)
    await driver.create("q.dead")
    await driver.create(ordering=ordering, max_age_seconds=100, dead_letter_queue="q.dead")
    await driver.push("1", "2", "3", "4")
    await driver.ack(await driver.pop_one())
    return await verb(driver)


async def waits(
    session: Session, call: Awaitable[Any], release: Callable[[asyncpg.Record], Awaitable[Any]]
) -> list[list[asyncpg.Record]]:
    """What a call holds at each lock of others that it waits for. It then gets that lock, and ends.

    It is not cut off: its session would end with it, and the next would plan everything anew.
    """
    task = asyncio.ensure_future(call)
    found: list[list[asyncpg.Record]] = []
    while not task.done():
        if held := await session.fetch(HELD_WHILE_WAITING):
            found.append(held)
            await release(held[0])
    await asyncio.gather(task, return_exceptions=True)
    return found


@ORDERINGS
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.asyncio(loop_scope="module")
async def test_who_waits_for_a_table_holds_none_that_comes_after_it(
    lasting_store: PostgresStore, lasting_session: Session, holders: dict[str, Session], verb: Verb, ordering: Ordering
) -> None:
    call = await ready(lasting_store, ordering, verb)
    for table, holder in holders.items():
        await holder.execute(f"BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
    found = await waits(lasting_session, call(), lambda row: holders[row["awaited_table"]].execute("ROLLBACK"))
    for holder in holders.values():
        if holder.is_in_transaction():
            await holder.execute("ROLLBACK")

    for rows in found:
        table, held = rows[0]["awaited_table"], {row["table"] for row in rows}
        # Who has read the group, the first of them, keeps a compaction from getting any: its own order does not matter then.
        later = STATE_TABLES[STATE_TABLES.index(table) + 1 :]
        assert "consumer_group" in held or not held & set(later), f"while it waits for {table}"
        assert table != "consumer_group" or not {row["class"] for row in rows} & set(ADVISORY)


@ORDERINGS
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.asyncio(loop_scope="module")
async def test_who_waits_for_a_group_or_a_log_holds_nothing_that_comes_after_it(
    lasting_store: PostgresStore, lasting_session: Session, verb: Verb, ordering: Ordering
) -> None:
    call = await ready(lasting_store, ordering, verb)
    for lock in LOCK_ALL:
        await lasting_session.execute(lock)
    found = await waits(
        lasting_session,
        call(),
        lambda row: lasting_session.execute(UNLOCK, row["awaited_class"], row["awaited_number"]),
    )
    await lasting_session.execute("SELECT pg_advisory_unlock_all()")

    for rows in found:
        later = ADVISORY[ADVISORY.index(rows[0]["awaited_class"]) + 1 :]
        assert not {row["class"] for row in rows} & set(later), f"while it waits for {rows[0]['awaited_class']}"
        logs = [row["number"] for row in rows if row["class"] == LOG]
        assert (verb, ordering) == IN_TWO_STEPS or all(number < rows[0]["awaited_number"] for number in logs)
    awaited = [NAMES[rows[0]["awaited_class"], rows[0]["mode"]] for rows in found]
    assert " ".join(awaited) == (UNORDERED if ordering is Ordering.UNORDERED else VERBS)[verb]


async def test_compaction_and_a_pop_that_has_read_its_group_both_get_on(
    driver: Driver, store: PostgresStore, other: Session
) -> None:
    await driver.push("1")
    await driver.pop(partition="nobody's")
    popping = other.transaction()
    await popping.start()
    await other.execute("SELECT * FROM consumer_group")
    compacting = asyncio.ensure_future(store.pool.once(lambda c: c.execute("SELECT compact()")))
    while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        assert not compacting.done()

    await other.execute("SET LOCAL lock_timeout = '100ms'")
    assert await other.fetchval("SELECT count(*) FROM partition_lease") == 1
    await popping.commit()
    await compacting
