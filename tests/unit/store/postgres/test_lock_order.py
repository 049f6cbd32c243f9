"""The order of locks that functions/locks.sql gives: whoever waits for a lock holds none that comes after it.

Another session holds all locks of some kinds. A verb of the store runs into one after the other; each time PostgreSQL is asked
what else the verb holds, and then the verb gets that lock. Nobody can then wait for someone who waits for them, whatever the two do.
And the table of `docs/log.md` says which locks each verb takes, so that none of them is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.model import Ordering
from skep.store.postgres import PostgresStore
from tests.conftest import EMPTY
from tests.contract.driver import Driver
from tests.unit.store.postgres.conftest import TENANTS
from tests.unit.store.postgres.holding import Session
from tests.unit.store.postgres.verbs import (
    VERBS,
    Verb,
    auto_ack_and_bury_for_a_new_group,
    transact,
    transact_a_rejection,
    transact_effects,
)

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
       h.classid::bigint AS class, h.objid::bigint AS number, r.relname AS table,
       h.mode = 'RowExclusiveLock' AS writes
FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid AND h.granted
LEFT JOIN pg_class v ON v.oid = w.relation
LEFT JOIN pg_class r ON r.oid = h.relation AND r.relkind = 'r'
JOIN pg_stat_activity a ON a.pid = w.pid AND a.application_name LIKE 'skep %'
WHERE NOT w.granted AND w.database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""

IN_TWO_STEPS = auto_ack_and_bury_for_a_new_group, Ordering.UNORDERED
"""Locks logs in another order than that of their ids (docs/log.md)."""
SETTLES_AND_PUSHES = {transact, transact_effects, transact_a_rejection}
"""Count what they settle before they open the log that they push to (docs/log.md)."""

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
        written = {row["table"] for row in rows if row["writes"]}
        assert verb in SETTLES_AND_PUSHES or "group_counter" not in written, "counters come last"
        logs = [row["number"] for row in rows if row["class"] == LOG]
        assert (verb, ordering) == IN_TWO_STEPS or all(number < rows[0]["awaited_number"] for number in logs)
    awaited = [NAMES[rows[0]["awaited_class"], rows[0]["mode"]] for rows in found]
    line = VERBS[verb]
    assert " ".join(awaited) == (line.waits_unordered if ordering is Ordering.UNORDERED else line.waits)


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
