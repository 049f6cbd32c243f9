"""One server at a time claims operations: another leaves the claim to it."""

from __future__ import annotations

from typing import cast

import asyncpg
import pytest

from skep.model.operation import ClaimedOperations, ClaimLimits, OperationKind
from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import Connection
from skep.store.postgres.operations import SQL, claim_next
from skep.store.rules import HeadWalk
from tests.contract.driver import Driver
from tests.contract.queueing import Ops, texts

CLAIM_LOCK = 1936418163


@pytest.fixture
def ops(driver: Driver) -> Ops:
    return Ops(driver)


async def test_who_finds_another_claimer_leaves_the_claim_to_it(
    driver: Driver, ops: Ops, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    await driver.push("a", partition="z")
    (delivery,) = await driver.pop()
    await ops.push("first by partition", partition="a")
    await ops.settle(driver.settlement(delivery))

    async with other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock($1)", CLAIM_LOCK)
        _, none = await ops.claim()
    _, first = await ops.claim()
    _, second = await ops.claim()

    assert none == []
    assert [one.kind for one in first] == [OperationKind.ACK_BATCH]
    assert texts(second) == ["first by partition"]


class Crossed:
    """A connection: another claimer begins before its claim by partition."""

    def __init__(self, connection: Connection, other: asyncpg.Connection[asyncpg.Record]) -> None:
        self._connection, self._other = connection, other

    async def fetch(self, query: str, *values: object) -> list[asyncpg.Record]:
        if query == SQL["claim_heads"]:
            await self._other.execute("SELECT pg_advisory_lock($1)", CLAIM_LOCK)
        return await self._connection.fetch(query, *values)


async def test_who_finds_another_claimer_at_the_claim_by_partition_looks_there_again(
    driver: Driver,
    store: PostgresStore,
    ops: Ops,
    other: asyncpg.Connection[asyncpg.Record],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("skep.store.postgres.operations.CLAIM_PASSED", 1)
    await ops.push("blocked", partition="b")
    token, (blocked,) = await ops.claim()
    await ops.back(token, blocked, 60)
    await ops.push("free", partition="c")
    walk = HeadWalk()
    walk.found((driver.tenant, "q", "push", "b"))

    async with store.pool.connection() as connection:
        crossed = cast("Connection", Crossed(connection, other))
        found = await claim_next(crossed, "w", driver.token(), ClaimLimits(), driver.now, walk)
    await other.execute("SELECT pg_advisory_unlock($1)", CLAIM_LOCK)

    assert (found, walk.after) == (ClaimedOperations([]), (driver.tenant, "q", "push", "b"))
    assert texts((await ops.claim())[1]) == ["free"]
