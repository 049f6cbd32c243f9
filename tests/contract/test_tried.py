"""Pushes of which nobody knows whether they were stored: done again, they are stored once."""

from __future__ import annotations

import msgspec

from skep.clock import Instant, seconds
from skep.model import PushBatch, PushStatus, Tried
from skep.model.record import Receipt, ReceiptKey
from tests.contract.driver import Driver


def tried(driver: Driver, batch: PushBatch, since: Instant, *, receipt: str | None = None) -> PushBatch:
    key = None if receipt is None else Receipt(ReceiptKey("spool", receipt, driver.tenant), b"{}", driver.later(10_000))
    return msgspec.structs.replace(batch, tried=Tried(since, driver.now, driver.store.session), receipt=key)


async def log(driver: Driver) -> list[str]:
    return [message.payload.decode() for message in (await driver.browse(limit=1000)).messages]


async def test_I13_a_push_that_was_stored_after_all_is_not_stored_again(driver: Driver) -> None:
    batch = driver.batch(driver.message("1"), driver.message("2", partition="b"))
    since = driver.now
    await driver.store.push([batch], driver.now)
    driver.clock.advance(5)
    await driver.push("3")

    (outcome,) = await driver.store.push([tried(driver, batch, since)], driver.now)

    assert (outcome.results, outcome.refused) == ([], False)
    assert outcome.recorded is not None
    assert await log(driver) == ["1", "2", "3"]
    await driver.check_accounts()


async def test_I13_a_push_that_was_not_stored_is(driver: Driver) -> None:
    await driver.push("0")
    batch = driver.batch(driver.message("1"), driver.message("2"))
    since = driver.now
    driver.clock.advance(100)

    (outcome,) = await driver.store.push([tried(driver, batch, since)], driver.now)

    assert [result.status for result in outcome.results] == [PushStatus.STORED] * 2
    assert await log(driver) == ["0", "1", "2"]


async def test_I13_it_and_its_receipt_go_together(driver: Driver) -> None:
    stored, lost = (driver.batch(driver.message(payload)) for payload in "12")
    since = driver.now
    await driver.store.push([stored], driver.now)
    again = [tried(driver, stored, since, receipt="a"), tried(driver, lost, since, receipt="b")]

    outcomes = await driver.store.push(again, driver.now)
    assert [outcome.recorded for outcome in outcomes] == [b"{}", None]
    keys = [ReceiptKey("spool", name, driver.tenant) for name in "ab"]
    assert all(await driver.store.records.receipts(keys, driver.now))

    driver.clock.advance(1000)
    outcomes = await driver.store.push(again, driver.now)
    assert [outcome.recorded for outcome in outcomes] == [b"{}", b"{}"]
    assert await log(driver) == ["1", "2"]


async def test_I13_among_others_each_is_judged_by_itself(driver: Driver) -> None:
    first, second, third = (driver.batch(driver.message(payload)) for payload in "123")
    since = driver.now
    await driver.store.push([second], driver.now)

    await driver.store.push([tried(driver, first, since), tried(driver, second, since), third], driver.now)

    assert await log(driver) == ["2", "1", "3"]


async def test_I13_a_scheduled_message_is_found_in_the_schedule_and_where_it_went_from_there(driver: Driver) -> None:
    batch = driver.batch(driver.message("1", deliver_at=driver.later(50)))
    since = driver.now
    await driver.store.push([batch], driver.now)
    again = tried(driver, batch, since)

    driver.clock.advance(1)
    assert (await driver.store.push([again], driver.now))[0].results == []
    driver.clock.advance(3600)
    await driver.store.promote(driver.key(), driver.now, 100)
    driver.clock.advance(3600)
    assert (await driver.store.push([again], driver.now))[0].results == []
    assert await log(driver) == ["1"]


async def test_I13_a_message_whose_log_is_ahead_of_the_clock_is_found(driver: Driver) -> None:
    """created_at follows the last message's, which another server with another clock may have pushed."""
    await driver.store.push([driver.batch(driver.message("0"))], driver.later(30))
    batch = driver.batch(driver.message("1"))
    since = driver.now
    await driver.store.push([batch], driver.now)

    assert (await driver.store.push([tried(driver, batch, since)], driver.now))[0].results == []
    assert await log(driver) == ["0", "1"]


async def test_I13_a_duplicate_among_them_does_not_hide_the_others(driver: Driver) -> None:
    await driver.push("0", transaction_id="t")
    batch = driver.batch(driver.message("1", transaction_id="t"), driver.message("2"))
    since = driver.now
    await driver.store.push([batch], driver.now)

    assert (await driver.store.push([tried(driver, batch, since)], driver.now))[0].results == []
    assert await log(driver) == ["0", "2"]


async def test_I15_over_several_queues(driver: Driver) -> None:
    stored = driver.batch(driver.message("1", "a"), driver.message("2", "b"))
    lost = driver.batch(driver.message("3", "a"), driver.message("4", "c"))
    since = driver.now
    await driver.store.push([stored], driver.now)

    await driver.store.push([tried(driver, stored, since), tried(driver, lost, since)], driver.now)

    found = {name: [m.payload for m in (await driver.browse(name)).messages] for name in "abc"}
    assert found == {"a": [b"1", b"3"], "b": [b"2"], "c": [b"4"]}


async def test_only_the_time_of_the_attempt_is_looked_at(driver: Driver) -> None:
    """The bound that keeps the look short: nothing that far from the attempt can have come of it."""
    batch = driver.batch(driver.message("1"))
    await driver.store.push([batch], driver.now)
    driver.clock.advance(seconds(1000) / 1_000_000)
    (outcome,) = await driver.store.push([tried(driver, batch, driver.now)], driver.now)
    assert outcome.results or type(driver.store).__name__ == "ReferenceStore"
