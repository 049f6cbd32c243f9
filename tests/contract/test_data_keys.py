"""Keys of payloads: kept wrapped, rewrapped where they are still as they were, and destroyed for good."""

from __future__ import annotations

import hashlib

import msgspec

from skep.ids import Id
from skep.model import QueueKey
from skep.model.data_key import WrappedKey
from tests.contract.driver import Driver


def key(driver: Driver, number: int, queue: str, master: str = "old") -> WrappedKey:
    return WrappedKey(
        id=Id(hashlib.sha256(f"{driver.tenant}/{number}".encode()).digest()[:16]), queue=QueueKey(queue, driver.tenant), master=master,
        wrapped=b"wrapped by " + master.encode(), created_at=driver.clock.now(),
    )  # fmt: skip


async def mine(driver: Driver) -> list[WrappedKey]:
    return [one for one in await driver.store.data_keys() if one.queue.tenant == driver.tenant]


async def test_keys_come_in_the_order_in_which_they_were_made(driver: Driver) -> None:
    made = []
    for number in (3, 1, 2):
        made.append(key(driver, number, "payments"))
        await driver.store.put_data_key(made[-1])
        driver.clock.advance(1)
    assert await mine(driver) == made


async def test_only_what_is_still_wrapped_as_it_was_is_rewrapped(driver: Driver) -> None:
    first = key(driver, 1, "payments")
    await driver.store.put_data_key(first)
    driver.clock.advance(1)
    second = key(driver, 2, "orders", "newest")
    await driver.store.put_data_key(second)
    again = [msgspec.structs.replace(one, master="new", wrapped=b"again") for one in (first, second)]
    assert await driver.store.rewrap_data_keys(again, "old") == 1
    assert await mine(driver) == [again[0], second]
    assert await driver.store.rewrap_data_keys(again, "old") == 0


async def test_the_keys_of_a_queue_or_of_a_tenant_are_destroyed(driver: Driver) -> None:
    for number, queue in enumerate(("payments", "payments", "orders", "invoices")):
        await driver.store.put_data_key(key(driver, number, queue))
    assert await driver.store.shred_data_keys(driver.tenant, "payments", driver.clock.now()) == 2
    assert {one.queue.name for one in await mine(driver)} == {"orders", "invoices"}
    assert await driver.store.shred_data_keys("another", None, driver.clock.now()) == 0
    assert await driver.store.shred_data_keys(driver.tenant, None, driver.clock.now()) == 2
    assert await mine(driver) == []


async def test_what_a_key_seals_is_counted_for_all_who_use_it_until_it_is_destroyed(driver: Driver) -> None:
    first, second = key(driver, 1, "payments"), key(driver, 2, "orders")
    for one in (first, second):
        await driver.store.put_data_key(one)
    assert [await driver.store.reserve_seals(first.id, messages) for messages in (5, 7)] == [5, 12]
    assert await driver.store.reserve_seals(second.id, 1) == 1
    again = msgspec.structs.replace(first, master="new", wrapped=b"again")
    await driver.store.rewrap_data_keys([again], "old")
    assert await driver.store.reserve_seals(first.id, 1) == 13
    await driver.store.shred_data_keys(driver.tenant, "payments", driver.clock.now())
    assert await driver.store.reserve_seals(first.id, 1) is None
