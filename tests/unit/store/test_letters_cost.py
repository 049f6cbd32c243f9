"""A replay or a purge with a filter goes on where its last step ended: twice as many letters take twice the work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from skep.config import Limits
from skep.engine.replaying import purge_all, replay_all
from skep.model import DeadLetterFilter
from skep.store.replay_steps import LOOKED_PER_STEP
from tests.contract.driver import Driver
from tests.support.costs import Counted, MakeCounted, counted_postgres, counted_sqlite

LETTERS = LOOKED_PER_STEP
BATCH = 20
MOST = 2.6
"""Times the work for twice the letters; one that begins anew for every batch takes four times as much."""


@pytest.fixture(params=["sqlite", "postgres"])
async def make(request: pytest.FixtureRequest) -> AsyncIterator[MakeCounted]:
    server = request.getfixturevalue("postgres_server") if request.param == "postgres" else None
    tables: str = "" if server is None else request.getfixturevalue("tables_to_copy")
    async with AsyncExitStack() as made:

        async def make() -> Counted:
            return await made.enter_async_context(
                counted_sqlite() if server is None else counted_postgres(server, tables)
            )

        yield make


async def bury(driver: Driver, letters: int, error: str) -> None:
    for _ in range(0, letters, 500):
        await driver.push_messages(*(driver.message("x", partition=f"p{n % 50}") for n in range(500)))
        await driver.reject(*await driver.pop(batch=500), error=error)


@pytest.mark.parametrize("verb", ["purge", "replay"])
async def test_twice_as_many_letters_take_about_twice_the_work(make: MakeCounted, verb: str) -> None:
    limits = Limits(replay_batch=BATCH)
    costs = []
    for letters in (LETTERS, 2 * LETTERS):
        driver, cost = await make()
        await bury(driver, letters, "kept")
        await bury(driver, letters // 2, "wanted")
        wanted = driver.dead_filter(error_contains="wanted")
        done: list[int] = []

        async def clear(driver: Driver = driver, wanted: DeadLetterFilter = wanted, done: list[int] = done) -> None:
            if verb == "purge":
                done.append(await purge_all(driver.store, driver.clock, limits, wanted))
            else:
                replay = replay_all(driver.store, driver.clock, driver.mint, limits, wanted, lambda *_: None)
                done.append((await replay).count)

        costs.append(await cost(clear))

        assert done == [letters // 2]
        assert await driver.store.count_dead_letters(driver.dead_filter()) == letters
    small, large = costs
    assert large.work <= small.work * MOST, costs
    assert large.statements <= small.statements * MOST, costs


async def test_a_step_looks_at_a_bounded_number_of_letters_and_says_where_it_ended(make: MakeCounted) -> None:
    driver, _ = await make()
    await bury(driver, LOOKED_PER_STEP + 500, "kept")
    wanted = driver.dead_filter(error_contains="wanted")

    first = await driver.store.purge(wanted, 10, driver.now)
    second = await driver.store.purge(wanted, 10, driver.now, first.after)

    assert (first.count, first.after) == (0, LOOKED_PER_STEP)
    assert (second.count, second.after) == (0, None)
