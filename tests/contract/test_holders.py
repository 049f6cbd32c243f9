"""A lease knows who holds it, since when and until when, as the pop said it."""

from __future__ import annotations

import pytest

from skep.clock import seconds
from skep.model import Ordering
from tests.contract.driver import Driver

ORDERINGS = [Ordering.PER_KEY, Ordering.UNORDERED]
FIRST, SECOND = 'name="mailer", host="web-3"', 'name="mailer", host="web-4"'


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_lease_tells_who_holds_it_since_when_and_until_when(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, lease_seconds=60)
    await driver.push("a", partition="p")
    await driver.pop_one(consumer=FIRST)
    leased_at = driver.now
    driver.clock.advance(5)

    [lease] = await driver.store.leases(driver.tenant, driver.now)

    assert (lease.consumer, lease.leased_at, lease.deadline) == (FIRST, leased_at, leased_at + seconds(60))
    assert (lease.first_seq, lease.last_seq, lease.messages) == (1, 1, 1)


async def test_consumers_that_pop_at_once_hold_each_their_own(driver: Driver) -> None:
    await driver.push("a", partition="p")
    await driver.push("b", partition="r")
    requests = [driver.request(consumer=who, batch=1) for who in (FIRST, SECOND, None)]

    results = await driver.store.pop(requests, driver.now)

    held = {delivery.partition: request.consumer
            for request, result in zip(requests, results, strict=True) for delivery in result.deliveries}  # fmt: skip
    leases = await driver.store.leases(driver.tenant, driver.now)
    assert {lease.partition: lease.consumer for lease in leases} == held
    assert set(held.values()) == {FIRST, SECOND}


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_who_takes_over_a_lease_that_ran_out_holds_it(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, lease_seconds=10)
    await driver.push("a")
    await driver.pop_one(consumer=FIRST)
    driver.clock.advance(11)
    await driver.pop_one(consumer=SECOND)
    [taken_over] = await driver.store.leases(driver.tenant, driver.now)
    driver.clock.advance(11)
    await driver.pop_one()
    [unnamed] = await driver.store.leases(driver.tenant, driver.now)

    assert (taken_over.consumer, unnamed.consumer) == (SECOND, None)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_lease_tells_its_last_message_though_others_lie_between(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    for partition in ("p", "r", "p", "r", "p"):
        await driver.push("a", partition=partition)
    await driver.pop(batch=3, partition="p")

    [lease] = await driver.store.leases(driver.tenant, driver.now)

    assert (lease.first_seq, lease.last_seq, lease.messages) == (1, 5, 3)


async def test_a_renewal_keeps_the_holder(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one(consumer=FIRST)
    driver.clock.advance(5)
    await driver.renew(delivery)

    [lease] = await driver.store.leases(driver.tenant, driver.now)
    assert lease.consumer == FIRST
