"""A pop that hands out one message that came before costs the same, however much it asks for and however much waits behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from skep.model import Delivery, Ordering
from tests.contract.driver import Driver
from tests.support.costs import Counted, MakeCounted, counted_postgres, counted_sqlite

HELD = 200
"""How many messages the consumer held that died."""
FEW, MANY = 3_000, 12_000
"""How many messages came after it."""
SLACK = 1.3
"""Searches take a few steps more in a larger tree."""


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


async def push(driver: Driver, messages: int) -> None:
    for start in range(0, messages, 1_000):
        numbers = range(start, min(messages, start + 1_000))
        await driver.push_messages(*(driver.message(str(n), partition=f"p{n % 50}") for n in numbers))


async def lose_a_consumer(driver: Driver) -> None:
    """Each of its messages comes again, and alone."""
    await push(driver, HELD)
    assert len(await driver.pop(batch=HELD, lease_seconds=10)) == HELD
    driver.clock.advance(10)


@pytest.mark.parametrize("case", ["undiscovered", "discovered", "one attempt"])
async def test_a_pop_of_one_message_costs_the_same_however_many_wait_behind_it(make: MakeCounted, case: str) -> None:
    comes_again = case != "one attempt"
    costs = []
    for waiting in (FEW, MANY):
        driver, cost = await make()
        await driver.create(ordering=Ordering.UNORDERED, max_attempts=5 if comes_again else 1, max_depth=0)
        if comes_again:
            await lose_a_consumer(driver)
        await push(driver, waiting)
        if case == "discovered":
            await driver.pop(partition="nobody's")
        found: list[Delivery] = []

        async def pop(driver: Driver = driver, waiting: int = waiting, found: list[Delivery] = found) -> None:
            found += await driver.pop(batch=waiting - 1)

        costs.append(await cost(pop))
        assert [one.attempt for one in found] == [2 if comes_again else 1]
    few, many = costs
    assert many.work <= few.work * SLACK, costs
    assert many.statements == few.statements, costs
