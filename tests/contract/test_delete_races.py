"""A message that is deleted while others work on it: it happens before or after each of their calls, never amid one."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from skep.errors import Code, SkepError
from skep.model import (
    FROM_BEGINNING,
    ClearScope,
    Delivery,
    Ordering,
    PushStatus,
    Seq,
    SettleStatus,
)
from tests.contract.driver import Driver, seqs

MANY = 12
ORDERINGS = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
Rival = Callable[[Driver, list[Delivery]], Awaitable[Any]]


async def ack(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.ack(*held)


async def renew(driver: Driver, held: list[Delivery]) -> Any:
    return await asyncio.gather(*(driver.renew(delivery) for delivery in held))


async def nack(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.nack(*held)


async def reject(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.reject(*held)


async def pop(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.pop()


async def seek(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.seek(FROM_BEGINNING)


async def clear(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.clear(ClearScope.ALL)


async def retain(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.retain()


async def expire(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.expire()


async def maintain(driver: Driver, held: list[Delivery]) -> Any:
    return await driver.store.maintain()


async def delete_all(driver: Driver, wanted: list[int]) -> list[int]:
    """Delete these at once; those that were there to be deleted."""

    async def delete(seq: int) -> int | None:
        try:
            await driver.store.delete_message(driver.key(), Seq(seq), None, driver.now)
        except SkepError as error:
            if error.code not in (Code.MESSAGE_SETTLED, Code.MESSAGE_NOT_FOUND):
                raise
            return None
        return seq

    return [seq for seq in await asyncio.gather(*map(delete, wanted)) if seq is not None]


async def drain(driver: Driver) -> list[int]:
    """Everything that the group can still have, now and after its leases ran out."""
    driver.clock.advance(1_000)
    got: list[int] = []
    while more := await driver.pop():
        got += seqs(more)
        await driver.ack(*more)
    return got


@ORDERINGS
@pytest.mark.parametrize("rival", [ack, nack, reject, renew, pop, seek, clear, expire, retain, maintain])
async def test_I12_I8_a_deletion_beside_any_verb_leaves_every_account_right_and_is_final(
    driver: Driver, ordering: Ordering, rival: Rival
) -> None:
    await driver.create(
        ordering=ordering, max_attempts=5, retention_seconds=1, retention_ignores_groups=rival is retain
    )
    for number in range(MANY):
        await driver.push("x", "y", partition=f"p{number % 4}")
    held = await driver.pop(batch=MANY)
    if rival is retain:
        driver.clock.advance(10)
    victims = [delivery.seq for delivery in held[::2]] + [2 * MANY - 1, 2 * MANY]

    deleted, _ = await asyncio.gather(delete_all(driver, victims), rival(driver, held))

    await driver.check_accounts()
    assert not set(deleted) & set(await drain(driver))
    there = {message.seq for message in (await driver.browse(limit=100)).messages}
    assert not set(deleted) & there
    stats = await driver.stats()
    assert (stats.pending, stats.in_flight) == (0, 0)
    assert stats.pushed == stats.completed + stats.dead + stats.expired


@ORDERINGS
async def test_I6_of_an_ack_and_a_deletion_at_once_one_counts(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push_messages(*(driver.message(str(n), partition=f"p{n}") for n in range(MANY)))
    held = await driver.pop()

    acked, deleted = await asyncio.gather(
        asyncio.gather(*(driver.ack(delivery) for delivery in held)), delete_all(driver, seqs(held))
    )

    completed = {d.seq for d, (result,) in zip(held, acked, strict=True) if result.status is SettleStatus.COMPLETED}
    assert completed | set(deleted) == set(seqs(held))
    assert not completed & set(deleted), "what was acked was not deleted, and what was deleted was not acked"
    stats = await driver.stats()
    assert (stats.completed, stats.expired) == (len(completed), len(deleted))


@ORDERINGS
async def test_of_many_deletions_of_one_message_at_once_one_counts(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    await driver.pop()

    assert await delete_all(driver, [1] * MANY) == [1]
    assert (await driver.stats()).expired == 1


@ORDERINGS
async def test_I4_pushes_beside_deletions_keep_their_seqs_and_the_depth_is_exact(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push(*map(str, range(MANY)))

    pushed, deleted = await asyncio.gather(
        asyncio.gather(*(driver.push("x") for _ in range(MANY))), delete_all(driver, list(range(1, MANY + 1)))
    )

    assert Counter(result.status for (result,) in pushed) == {PushStatus.STORED: MANY}
    assert sorted(result.seq or 0 for (result,) in pushed) == list(range(MANY + 1, 2 * MANY + 1))
    assert sorted(deleted) == list(range(1, MANY + 1))
    assert (await driver.queue_stats()).depth == MANY
