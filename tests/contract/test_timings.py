"""How long messages wait and how long they are held, from the newest leases of their queue."""

from __future__ import annotations

import pytest

from skep.clock import Instant
from skep.model import QUEUE_MODE_GROUP, Ordering, Retry
from skep.model.history import LeaseTime
from tests.contract.driver import Driver

ORDERINGS = [Ordering.PER_KEY, Ordering.UNORDERED]
SECOND = 1_000_000
LONG_AGO = Instant(0)


def figures(times: list[LeaseTime]) -> list[tuple[str, int | None, int | None]]:
    return [(one.group, one.wait_micros, one.held_micros) for one in times]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_lease_tells_how_long_its_message_waited_and_was_held(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    driver.clock.advance(3)
    delivery = await driver.pop_one()
    driver.clock.advance(2)
    await driver.ack(delivery)

    [only] = await driver.store.lease_times(driver.key(), LONG_AGO)

    assert only == LeaseTime(QUEUE_MODE_GROUP, driver.now, 3 * SECOND, 2 * SECOND)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_another_attempt_has_no_wait_and_a_lease_that_ran_out_no_handler_time(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, lease_seconds=10, initial_backoff_ms=0)
    await driver.push("a")
    await driver.pop_one()
    driver.clock.advance(11)
    again = await driver.pop_one()
    driver.clock.advance(4)
    await driver.nack(again, retry=Retry.NOW)

    times = await driver.store.lease_times(driver.key(), LONG_AGO)

    assert figures(times) == [(QUEUE_MODE_GROUP, None, 4 * SECOND), (QUEUE_MODE_GROUP, 0, None)]


async def test_times_are_those_of_a_queue_and_told_by_group(driver: Driver) -> None:
    for queue in ("q", "r"):
        await driver.push("a", queue=queue)
    for queue, group, held in (("q", "mail", 1), ("q", "bill", 5), ("r", "mail", 9)):
        delivery = await driver.pop_one(queue, group=group)
        driver.clock.advance(held)
        await driver.ack(delivery)

    times = await driver.store.lease_times(driver.key("q"), LONG_AGO)

    assert [(one.group, one.held_micros) for one in times] == [("bill", 5 * SECOND), ("mail", SECOND)]


async def test_what_ended_before_is_left_out(driver: Driver) -> None:
    for _ in range(2):
        await driver.push("a")
        await driver.ack(await driver.pop_one())
        driver.clock.advance(60)

    assert len(await driver.store.lease_times(driver.key(), driver.later(-60))) == 1


async def test_a_message_that_is_gone_leaves_its_handler_time(driver: Driver) -> None:
    await driver.create(completed_retention_seconds=1)
    await driver.push("a")
    delivery = await driver.pop_one()
    driver.clock.advance(2)
    await driver.ack(delivery)
    for _ in range(3):
        driver.clock.advance(60)
        await driver.retain()

    [only] = await driver.store.lease_times(driver.key(), LONG_AGO)
    assert (only.wait_micros, only.held_micros) == (None, 2 * SECOND)
