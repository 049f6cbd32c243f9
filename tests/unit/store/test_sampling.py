"""What a look at all queues writes: a row for what changed, and none for what did not, however many queues there are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from skep.clock import Instant, ManualClock
from skep.store.postgres import PostgresStore
from skep.store.postgres import sampling as postgres_sampling
from skep.store.rules import KEPT_SAMPLES_SECONDS, KEYFRAME_SECONDS, PAST_SECONDS
from skep.store.sqlite import SqliteStore
from skep.store.sqlite import sampling as sqlite_sampling
from tests.contract.driver import Driver

QUEUES = 15
LOOK_SECONDS = 10
LONG_AGO = Instant(0)
OF_QUEUES = {
    "sample": "SELECT queue_id, group_id, at FROM sample",
    "past": "SELECT queue_id, minute, at FROM past",
}

Row = tuple[Any, ...]


@pytest.fixture(params=["sqlite", "postgres"])
def closed_store(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteStore | PostgresStore:
    """A store with no queue but the test's own."""
    if request.param == "sqlite":
        return SqliteStore(tmp_path / "skep.db")
    return PostgresStore(request.getfixturevalue("empty_tables_dsn"))


@pytest.fixture
async def driver(closed_store: SqliteStore | PostgresStore, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Driver]:
    """Looks take a few queues in each transaction."""
    monkeypatch.setattr(sqlite_sampling, "PIECE", 4)
    monkeypatch.setattr(postgres_sampling, "PIECE", 4)
    await closed_store.open()
    driver = Driver(closed_store, ManualClock(), "tenant")
    driver.clock.advance(60 - driver.now / 1_000_000 % 60)
    yield driver
    await driver.store.close()


async def rows(driver: Driver, table: str) -> set[Row]:
    """All rows there are, as far as they tell them apart."""
    store = driver.store
    if isinstance(store, SqliteStore):
        return set(await store._write(lambda session: session.rows(OF_QUEUES[table])))
    assert isinstance(store, PostgresStore)
    async with store.pool.connection() as connection:
        return {tuple(row) for row in await connection.fetch(OF_QUEUES[table])}


async def look(driver: Driver, after_seconds: float = LOOK_SECONDS) -> None:
    driver.clock.advance(after_seconds)
    await driver.store.sample(driver.now)


async def make_queues(driver: Driver) -> None:
    """Queues with a message and a group each."""
    for number in range(QUEUES):
        await driver.push("a", queue=f"q{number}")
        await driver.pop(f"q{number}")
    await look(driver)


async def test_an_idle_store_writes_no_samples(driver: Driver) -> None:
    await make_queues(driver)
    before = {table: await rows(driver, table) for table in OF_QUEUES}

    for _ in range(8):
        await look(driver)

    assert {table: await rows(driver, table) for table in OF_QUEUES} == before
    assert len(before["sample"]) == 2 * QUEUES
    assert len(before["past"]) == 2 * (QUEUES + 1)


async def test_one_busy_queue_among_many_writes_one_row_for_itself_and_its_group(driver: Driver) -> None:
    await make_queues(driver)
    for _ in range(3):
        await driver.push("b", queue="q3")
        await look(driver)
    before = {table: await rows(driver, table) for table in OF_QUEUES}

    await driver.push("c", queue="q3")
    await look(driver)

    samples = await rows(driver, "sample") - before["sample"]
    past = await rows(driver, "past") - before["past"]
    assert sorted((group > 0, at) for _, group, at in samples) == [(False, driver.now), (True, driver.now)]
    assert sorted((queue > 0, at) for queue, _, at in past) == [(False, driver.now), (True, driver.now)]


async def test_nothing_is_written_again_after_a_restart(driver: Driver) -> None:
    await make_queues(driver)
    before = {table: await rows(driver, table) for table in OF_QUEUES}
    await driver.store.close()
    driver.store._sampling = type(driver.store._sampling)()  # type: ignore[attr-defined]
    await driver.store.open()

    await look(driver)

    assert {table: await rows(driver, table) for table in OF_QUEUES} == before


@pytest.mark.parametrize("closed_store", ["sqlite"], indirect=True)
async def test_a_push_does_not_wait_for_a_look_at_all_queues(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a start: nothing is in memory yet, and there is one writer for all."""
    await make_queues(driver)
    monkeypatch.setattr(sqlite_sampling, "PIECE", 1)
    driver.store._sampling = type(driver.store._sampling)()  # type: ignore[attr-defined]
    driver.clock.advance(LOOK_SECONDS)
    looking = asyncio.create_task(driver.store.sample(driver.now))
    await asyncio.sleep(0)

    for _ in range(3):
        await driver.store.push([driver.batch(driver.message("b", "q1"))], driver.now)

    assert not looking.done()
    await looking


async def test_rows_of_a_busy_queue_are_thinned_out_to_those_of_the_last_minute(driver: Driver) -> None:
    for number in range(24):
        await driver.push(str(number))
        await look(driver)

    assert len(await rows(driver, "sample")) <= KEPT_SAMPLES_SECONDS // LOOK_SECONDS + 2
    assert len(await rows(driver, "past")) == 2 * (24 * LOOK_SECONDS // 60 + 2)


async def test_thinned_history_has_the_right_totals(driver: Driver) -> None:
    for number in range(20):
        await driver.push(*map(str, range(number % 4)), queue="q")
        await look(driver)
    for _ in range(20):
        await look(driver)

    [found] = await driver.store.past(driver.tenant, ["q"], LONG_AGO)
    [whole] = await driver.store.past(driver.tenant, None, LONG_AGO)

    grown = [after.pushed - before.pushed for before, after in pairwise(found)]
    assert sum(grown) == sum(number % 4 for number in range(20))
    assert (found[-1].pushed, found[-1].depth) == (sum(grown), sum(grown))
    assert [one.pushed for one in whole] == [one.pushed for one in found]


async def test_the_quiet_time_before_a_change_is_flat(driver: Driver) -> None:
    await driver.push("a")
    await look(driver)
    first = driver.now
    for _ in range(60):
        await look(driver)
    quiet_until = driver.now
    await driver.push("b", "c")
    await look(driver)

    [found] = await driver.store.past(driver.tenant, ["q"], LONG_AGO)

    assert [(one.pushed, one.at) for one in found[1:]] == [
        (1, first), (1, min(quiet_until, driver.now // 60_000_000 * 60_000_000 - 1)), (3, driver.now),
    ]  # fmt: skip


@pytest.mark.parametrize("quiet_looks", [0, 3, 60])
async def test_rates_are_of_the_last_minute_however_long_nothing_was_noted(driver: Driver, quiet_looks: int) -> None:
    await driver.push("a")
    await driver.pop()
    for _ in range(7 + quiet_looks):
        await look(driver)
    for _ in range(3):
        await driver.push(*map(str, range(20)))
        await look(driver)

    stats = await driver.queue_stats()

    assert (stats.rates.pushed, stats.groups[0].rates.pushed) == (1.0, 1.0)
    for _ in range(6):
        await look(driver)
    stats = await driver.queue_stats()
    assert (stats.rates.pushed, stats.groups[0].rates.pushed) == (0.0, 0.0)


async def test_what_does_not_change_is_noted_again_before_it_ages_out(driver: Driver) -> None:
    await driver.push("a")
    for _ in range(2 * (PAST_SECONDS + 2 * KEYFRAME_SECONDS) // KEYFRAME_SECONDS):
        await look(driver, KEYFRAME_SECONDS / 2)
        while (await driver.store.sweep(driver.now, 1000)).more:
            pass

    samples = await rows(driver, "sample")
    [found] = await driver.store.past(driver.tenant, ["q"], driver.later(-PAST_SECONDS))

    assert 1 <= len(samples) <= 3
    assert found[0].at <= driver.later(-PAST_SECONDS)
    assert {one.depth for one in found} == {1}
