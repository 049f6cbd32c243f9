"""A pop that meets leases which ran out with their last attempt buries a few of them, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from skep.model import Ordering, PopResult
from skep.store.postgres.tidy import BURIALS_PER_POP
from skep.store.sqlite.pop_state import MAX_BURIALS_PER_CLAIM
from tests.contract.driver import Driver, payloads
from tests.support.costs import Counted, MakeCounted, counted_postgres, counted_sqlite

FEW, SOME = 10, 300
MOST_BURIALS = max(BURIALS_PER_POP, MAX_BURIALS_PER_CLAIM)
SLACK = 1.3
"""Searches take a few steps more in a larger tree."""
PASS = 100

MANY = pytest.mark.parametrize("many", [1_200, pytest.param(5_000, marks=pytest.mark.slow)])
ORDERINGS = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])


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


async def run_out(driver: Driver, ordering: Ordering, leases: int) -> None:
    """As many leases, each of one message, as ran out with the last attempt."""
    await driver.create(ordering=ordering, max_attempts=3, max_depth=0)
    for start in range(0, leases, 1_000):
        numbers = range(start, min(leases, start + 1_000))
        await driver.push_messages(*(driver.message(str(n), partition=f"p{n:05}") for n in numbers))
    assert len(await driver.pop(batch=leases, lease_seconds=10)) == leases
    await driver.update(max_attempts=1)
    driver.clock.advance(10)


@ORDERINGS
async def test_a_pop_that_wants_many_messages_buries_no_more(make: MakeCounted, ordering: Ordering) -> None:
    driver, _ = await make()
    await run_out(driver, ordering, SOME)
    await driver.pop(batch=SOME)

    assert 0 < (await driver.stats()).dead <= MOST_BURIALS


@MANY
@ORDERINGS
async def test_a_pop_costs_the_same_however_many_leases_ran_out_with_their_last_attempt(
    make: MakeCounted, ordering: Ordering, many: int
) -> None:
    costs = []
    for leases in (FEW, SOME, many):
        driver, cost = await make()
        await run_out(driver, ordering, leases)
        found: list[PopResult] = []

        async def pop(driver: Driver = driver, found: list[PopResult] = found) -> None:
            found.append(await driver.pop_result(batch=10))

        costs.append(await cost(pop))

        stats = await driver.stats()
        assert found[0].deliveries == []
        assert stats.dead <= MOST_BURIALS
        assert (stats.dead + stats.pending, stats.in_flight) == (leases, 0)
        assert found[0].more == (stats.pending > 0)
    of_few, of_some, of_many = costs
    assert of_many.work <= of_some.work * SLACK, costs
    assert of_many.work <= of_few.work * SLACK * MOST_BURIALS / FEW, costs
    assert of_many.statements <= of_few.statements + 10, costs


@MANY
@ORDERINGS
async def test_a_pass_in_the_background_buries_as_many_as_it_is_told_to(
    make: MakeCounted, ordering: Ordering, many: int
) -> None:
    costs = []
    for leases in (SOME, many):
        driver, cost = await make()
        await run_out(driver, ordering, leases)

        async def expire(driver: Driver = driver) -> None:
            assert (await driver.expire(limit=PASS)).done == PASS

        costs.append(await cost(expire))

        assert (await driver.stats()).dead == PASS
    assert costs[1].work <= costs[0].work * SLACK, costs
    assert costs[1].statements == costs[0].statements, costs


@ORDERINGS
async def test_what_became_ready_since_is_had_by_those_who_pop_on(make: MakeCounted, ordering: Ordering) -> None:
    driver, _ = await make()
    await run_out(driver, ordering, SOME)
    await driver.push("new", partition="new")

    popped: list[str] = []
    pops = 0
    while not popped:
        result = await driver.pop_result(batch=10)
        popped += payloads(result.deliveries)
        pops += 1
        assert result.more or popped, "nobody would pop again"

    assert popped == ["new"]
    assert pops <= SOME // min(BURIALS_PER_POP, MAX_BURIALS_PER_CLAIM) + 1
