"""Tokens: who has an old token, or another one, changes nothing and is told so. Until somebody else has claimed, a late holder is in time."""

from __future__ import annotations

import msgspec
import pytest

from skep.errors import Code
from skep.model import Delivery, Ordering, Outcome, Retry, Seq, SettleStatus
from tests.contract.driver import Driver, attempts, seqs

OK = SettleStatus.COMPLETED


async def three_leased(driver: Driver) -> list[Delivery]:
    await driver.push("a", "b", "c")
    return await driver.pop()


@pytest.mark.parametrize("outcome", list(Outcome))
async def test_I6_stale_token_changes_nothing(driver: Driver, outcome: Outcome) -> None:
    await driver.push("a")
    stale = await driver.pop_one(lease_seconds=10)
    driver.clock.advance(10)
    fresh = await driver.pop_one()
    before = await driver.stats()

    (result,) = await driver.settle(driver.settlement(stale, outcome, retry=Retry.NOW))

    assert (result.status, result.code) == (SettleStatus.REFUSED, Code.STALE_LEASE)
    assert await driver.stats() == before
    assert await driver.dead() == []
    assert await driver.pop() == []
    assert [r.status for r in await driver.ack(fresh)] == [OK]


async def test_I6_another_token_is_refused(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()

    (result,) = await driver.ack(delivery, token=driver.token())

    assert result.code is Code.STALE_LEASE
    assert (await driver.stats()).in_flight == 1


async def test_I6_a_token_counts_for_its_own_group_partition_and_queue_only(driver: Driver) -> None:
    await driver.push("a", queue="q")
    await driver.push("a", queue="r")
    delivery = await driver.pop_one("q", group="g")
    others = [await driver.pop_one("q", group="h"), await driver.pop_one("r", group="g")]

    results = await driver.ack(*others, token=delivery.token)

    assert [r.code for r in results] == [Code.STALE_LEASE] * 2


async def test_I6_a_token_of_a_fifo_queue_counts_for_its_one_partition_only(driver: Driver) -> None:
    await driver.create(ordering=Ordering.FIFO)
    await driver.push("a", partition="p")
    delivery = await driver.pop_one()
    elsewhere = msgspec.structs.replace(delivery, partition="p")

    assert [r.code for r in await driver.ack(elsewhere)] == [Code.STALE_LEASE]
    assert (await driver.renew(elsewhere)).code is Code.STALE_LEASE
    assert [r.status for r in await driver.ack(delivery)] == [OK]


async def test_a_seq_that_was_not_leased_is_refused(driver: Driver) -> None:
    await driver.push("a", "b")
    a = await driver.pop_one()
    other = driver.settlement(a)
    other = type(other)(queue=other.queue, partition=other.partition, seq=Seq(2), token=a.token)

    (result,) = await driver.settle(other)

    assert result.code is Code.NOT_IN_LEASE
    assert [r.status for r in await driver.ack(a)] == [OK]


async def test_a_late_ack_is_good_until_somebody_else_has_claimed(driver: Driver) -> None:
    await driver.push("a")
    late = await driver.pop_one(lease_seconds=10)
    driver.clock.advance(1000)

    assert [r.status for r in await driver.ack(late)] == [OK]
    assert await driver.pop() == []


async def test_an_unknown_queue_or_group_is_a_stale_lease(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()
    known = driver.settlement(delivery)
    strange = [
        type(known)(queue=driver.key("nowhere"), partition=known.partition, seq=known.seq, token=known.token),
        type(known)(queue=known.queue, partition=known.partition, seq=known.seq, token=known.token, group="none"),
        type(known)(queue=known.queue, partition="nowhere", seq=known.seq, token=known.token),
    ]

    results = await driver.settle(*strange)

    assert [r.code for r in results] == [Code.STALE_LEASE] * 3


# renew


async def test_a_renewal_moves_the_deadline(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one(lease_seconds=10)
    driver.clock.advance(9)

    result = await driver.renew(delivery, 20)
    assert (result.deadline, result.code) == (driver.later(20), None)

    driver.clock.advance(19)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert attempts(await driver.pop()) == [2]


async def test_I6_a_renewal_with_a_stale_token_changes_nothing(driver: Driver) -> None:
    await driver.push("a")
    stale = await driver.pop_one(lease_seconds=10)
    driver.clock.advance(10)
    fresh = await driver.pop_one(lease_seconds=10)

    result = await driver.renew(stale, 1000)

    assert (result.deadline, result.code) == (None, Code.STALE_LEASE)
    driver.clock.advance(10)
    assert seqs(await driver.pop()) == [fresh.seq]


async def test_a_late_renewal_is_good_until_somebody_else_has_claimed(driver: Driver) -> None:
    await driver.push("a")
    late = await driver.pop_one(lease_seconds=10)
    driver.clock.advance(100)

    assert (await driver.renew(late, 10)).deadline == driver.later(10)
    assert await driver.pop() == []
