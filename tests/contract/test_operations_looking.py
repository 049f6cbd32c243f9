"""Operations that are looked at, cancelled while they wait, and forgotten when they are old."""

from __future__ import annotations

from typing import Any

from skep.clock import Instant, seconds
from skep.ids import Id
from skep.model.operation import OperationFilter, OperationKind, OperationStatus
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops


async def test_a_cancelled_operation_never_happens(driver: Driver, ops: Ops) -> None:
    await driver.create()
    kept, other = await ops.push("a"), await ops.push("b")

    assert await driver.store.cancel_operation(driver.tenant, kept.id, driver.now)
    assert not await driver.store.cancel_operation(driver.tenant, kept.id, driver.now)
    assert not await driver.store.cancel_operation("someone-else", other.id, driver.now)

    await ops.drain()
    assert await ops.status(kept) is OperationStatus.CANCELLED
    assert payloads(await driver.pop()) == ["b"]


async def test_what_is_being_processed_cannot_be_cancelled(driver: Driver, ops: Ops) -> None:
    kept = await ops.push("a")
    token, claimed = await ops.claim()

    assert not await driver.store.cancel_operation(driver.tenant, kept.id, driver.now)

    await ops.perform(token, claimed)
    assert await ops.status(kept) is OperationStatus.COMPLETED


async def test_operations_are_listed_newest_first_by_pages(driver: Driver, ops: Ops) -> None:
    kept = [await ops.push(str(n), partition=f"P{n % 2}") for n in range(5)]
    await driver.store.cancel_operation(driver.tenant, kept[4].id, driver.now)

    async def page(after: int | None = None, limit: int = 10, **fields: Any) -> tuple[list[Id], int | None]:
        wanted = OperationFilter(tenant=driver.tenant, **fields)
        found = await driver.store.list_operations(wanted, after, limit)
        return [one.id for one in found.operations], found.after

    ids = [one.id for one in kept]
    assert await page() == (ids[::-1], None)
    first, after = await page(limit=3)
    assert first == ids[:1:-1]
    assert await page(after) == (ids[1::-1], None)
    assert (await page(status=OperationStatus.CANCELLED))[0] == [ids[4]]
    assert (await page(status=OperationStatus.PENDING, partition="P1"))[0] == [ids[3], ids[1]]
    assert (await page(queue="other"))[0] == []
    assert (await page(kind=OperationKind.ACK_BATCH))[0] == []
    assert await driver.store.operation("someone-else", ids[0]) is None


async def test_figures_and_what_waits(driver: Driver, ops: Ops) -> None:
    await ops.push("a", partition="A")
    started = driver.now
    await ops.push("b", partition="B")
    driver.clock.advance(2)
    token, claimed = await ops.claim(operations=1)
    await ops.perform(token, claimed)

    waiting = await driver.store.waiting_operations(driver.now, 100)
    figures = await driver.store.operation_figures(driver.tenant, 100)

    assert (waiting.depth, waiting.oldest_at, waiting.stuck) == ({OperationKind.PUSH: 1}, started, 0)
    assert [(f.kind, f.priority, f.status, f.count, f.average_seconds) for f in figures] == [
        (OperationKind.PUSH, 5, OperationStatus.COMPLETED, 1, 2.0),
        (OperationKind.PUSH, 5, OperationStatus.PENDING, 1, None),
    ]
    driver.clock.advance(58)
    assert (await driver.store.waiting_operations(driver.now, 100)).stuck == 1


async def test_both_kinds_of_ended_operations_age_out(driver: Driver, ops: Ops) -> None:
    await driver.create()
    done, failed, live = await ops.push("a"), await ops.push("b"), await ops.push("c")
    token, claimed = await ops.claim()
    await ops.perform(token, claimed[:1])
    await ops.back(token, claimed[1], None, error="no")
    driver.clock.advance(100)
    before, later = Instant(driver.now - seconds(101)), driver.now

    assert await driver.store.sweep_operations(before, before, 10) == 0
    assert await driver.store.sweep_operations(later, before, 10) == 1
    assert await driver.store.operation(driver.tenant, done.id) is None
    assert await ops.status(failed) is OperationStatus.FAILED
    assert await driver.store.sweep_operations(later, later, 10) == 1
    assert await driver.store.operation(driver.tenant, failed.id) is None
    assert await ops.status(live) is OperationStatus.PROCESSING
