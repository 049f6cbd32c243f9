"""A database of before: what was purged and counted nowhere is counted when the store is opened, and no group is idle at once."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import apsw
import asyncpg
from structlog.testing import capture_logs

from skep.clock import ManualClock
from skep.model import Seq
from skep.store.migrate import Migration, load_migrations
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver, payloads

QUEUE = """
    INSERT INTO queue (tenant, name, priority, ordering, lease_seconds, max_attempts, initial_backoff_ms, max_backoff_ms,
                       max_depth, max_age_seconds, retention_seconds, completed_retention_seconds, retention_ignores_groups,
                       delayed_processing_seconds, window_buffer_seconds, max_wait_seconds, dedup_window_seconds, paused,
                       holds_dead_letters, floor_seq, created_at, updated_at)
    VALUES ('t', 'q.dead', 0, 'per_key', 300, 0, 0, 0, 0, 0, 0, 0, {no}, 0, 0, 0, 0, {no}, {yes}, 5, 1, 1)
"""
GROUPS = """
    INSERT INTO consumer_group (queue_id, name, start_seq, scan_seq, created_at)
    VALUES (1, 'before', 0, 0, 1), (1, 'amid', 2, 2, 1), (1, 'behind', 5, 5, 1)
"""
LEFT = (1, 3)
"""Of five letters these are left."""


def steps_before(package: str, name: str) -> list[Migration]:
    found = load_migrations(files(package).joinpath("migrations"))
    return found[: [step.name for step in found].index(name)]


async def check(store: Store) -> None:
    with capture_logs() as told:
        await store.open()
    [upgrade] = [entry for entry in told if entry["event"] == "the schema is being brought up to date"]
    assert upgrade["schema"] < upgrade["to"]
    clock = ManualClock()
    driver = Driver(store, clock, "t")
    await driver.check_accounts()
    stats = await driver.queue_stats("q.dead")
    lags = {group.group: (group.lag_messages, group.expired, group.idle) for group in stats.groups}
    assert (stats.depth, stats.gaps) == (2, 3)
    assert lags == {"before": (2, 3, False), "amid": (1, 2, False), "behind": (0, 0, False)}
    assert payloads(await driver.pop("q.dead", group="before")) == ["1", "3"]
    assert (await driver.stats("q.dead", "before")).expired == 3
    for group in lags:
        await driver.delete_group("q.dead", group)
    assert (await driver.queue_stats("q.dead")).depth == 2
    assert [message.seq for message in (await driver.browse("q.dead")).messages] == [Seq(1), Seq(3)]
    await store.close()


async def test_an_sqlite_file_counts_its_gaps(tmp_path: Path) -> None:
    path = tmp_path / "skep.db"
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE migration (number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL) STRICT")
    for step in steps_before("skep.store.sqlite", "gaps"):
        db.execute(step.sql)
        db.execute("INSERT INTO migration VALUES (?, ?, ?)", (step.number, step.name, step.checksum))
    db.execute(QUEUE.format(yes=1, no=0))
    db.execute(GROUPS)
    db.executemany(
        "INSERT INTO message (position, queue_id, created_at, priority, id, partition, payload) VALUES (?, 1, 1, 0, ?, 'p', ?)",
        [((1 << 40) + seq, bytes([seq]) * 16, str(seq).encode()) for seq in LEFT],
    )
    db.close()

    await check(SqliteStore(path))


async def test_a_postgresql_database_counts_its_gaps(blank_dsn: str) -> None:
    connection = await asyncpg.connect(blank_dsn)
    await connection.execute("CREATE SCHEMA skep; SET search_path = skep")
    await connection.execute(
        "CREATE TABLE migration (number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL)"
    )
    for step in steps_before("skep.store.postgres", "gaps"):
        await connection.execute(step.sql)
        await connection.execute("INSERT INTO migration VALUES ($1, $2, $3)", step.number, step.name, step.checksum)
    await connection.execute(QUEUE.format(yes="true", no="false"))
    await connection.execute(GROUPS)
    await connection.executemany(
        "INSERT INTO message (seq, queue_id, created_at, priority, id, partition, payload)"
        " VALUES ($1, 1, 1, 0, gen_random_uuid(), 'p', $2)",
        [(seq, str(seq).encode()) for seq in LEFT],
    )
    await connection.close()

    await check(PostgresStore(blank_dsn))
