"""A pop gets what is ready while a chore of the same queue has not committed yet."""

from __future__ import annotations

import pytest

from skep.model import Ordering
from skep.store.postgres import PostgresStore
from skep.store.postgres.chores import expire_some
from tests.contract.driver import Driver


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_a_pop_gets_what_is_ready_while_expired_messages_are_looked_for(
    driver: Driver, store: PostgresStore, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, max_attempts=3)
    await driver.push("first", partition="a")
    await driver.push("second", partition="b")
    [first] = await driver.pop(batch=1)

    async with store.pool.connection() as connection, connection.transaction():
        await expire_some(connection, driver.key(), driver.now, 100, 0)
        ready = await driver.pop(batch=1)

    assert [first.payload, *(delivery.payload for delivery in ready)] == [b"first", b"second"]
