"""Receipts: what was done once is answered as it was then, and done again only after the receipt has run out."""

from __future__ import annotations

import asyncio

from skep.errors import Code
from skep.ids import id_text
from skep.model import PushBatch, PushStatus
from tests.contract.driver import PLENTY, Driver, payloads


async def test_I15_a_push_with_a_receipt_is_stored_once(driver: Driver) -> None:
    first = driver.batch(driver.message("a"), receipt=driver.receipt("k", '{"n":1}'))
    again = driver.batch(driver.message("b"), receipt=driver.receipt("k", '{"n":2}'))

    (stored,) = await driver.push_batches(first)
    (repeated,) = await driver.push_batches(again)

    assert [r.status for r in stored.results] == [PushStatus.STORED]
    assert stored.recorded is None
    assert (repeated.results, repeated.recorded) == ([], b'{"n":1}')
    assert not repeated.refused
    assert payloads(await driver.pop()) == ["a"]


async def test_I1_a_push_that_a_queue_does_not_take_leaves_no_receipt(driver: Driver) -> None:
    """PostgreSQL sees that the payload is not sealed when it has taken the receipt already."""
    await driver.create(encryption_enabled=True)
    said = driver.receipt("k")

    (refused,) = await driver.push_batches(driver.batch(driver.message("a"), receipt=said))
    (again,) = await driver.push_batches(driver.batch(driver.message("a"), receipt=said))

    assert [r.code for outcome in (refused, again) for r in outcome.results] == [Code.NOT_ENCRYPTED] * 2
    assert await driver.recorded("k") == [None]


async def test_a_repeat_costs_no_new_push_of_its_call(driver: Driver) -> None:
    await driver.push_batches(driver.batch(driver.message("a"), receipt=driver.receipt("a", '"first"')))

    new, repeated = await driver.push_batches(
        driver.batch(driver.message("b"), receipt=driver.receipt("b")),
        driver.batch(driver.message("again"), receipt=driver.receipt("a")),
    )

    assert (new.recorded, repeated.recorded) == (None, b'"first"')
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_of_two_batches_with_one_receipt_in_one_call_the_first_wins(driver: Driver) -> None:
    outcomes = await driver.push_batches(
        driver.batch(driver.message("a"), receipt=driver.receipt("k", '"first"')),
        driver.batch(driver.message("plain")),
        driver.batch(driver.message("b"), receipt=driver.receipt("k", '"second"')),
        driver.batch(driver.message("c"), receipt=driver.receipt("other")),
    )

    assert [outcome.recorded for outcome in outcomes] == [None, None, b'"first"', None]
    assert payloads(await driver.pop()) == ["a", "plain", "c"]
    assert await driver.recorded("k", "other") == ['"first"', '"done"']


async def test_a_refused_batch_leaves_no_receipt(driver: Driver) -> None:
    await driver.create(max_depth=1)
    both = [driver.message("a"), driver.message("b")]

    outcomes = await driver.push_batches(
        driver.batch(*both, receipt=driver.receipt("k", '"first"')),
        driver.batch(driver.message("c"), receipt=driver.receipt("k", '"second"')),
        driver.batch(driver.message("d"), receipt=driver.receipt("l")),
    )

    assert [outcome.refused for outcome in outcomes] == [True, False, True]
    assert payloads(await driver.pop()) == ["c"]
    assert await driver.recorded("k", "l") == ['"second"', None]


async def test_without_a_queue_there_is_no_receipt_either(driver: Driver) -> None:
    batch = driver.batch(driver.message("a", "nowhere"), receipt=driver.receipt("k"))

    (outcome,) = await driver.push_batches(batch, create_queues=False)

    assert [r.code for r in outcome.results] == [Code.QUEUE_NOT_FOUND]
    assert await driver.recorded("k") == [None]


async def test_a_receipt_that_has_run_out_makes_room(driver: Driver) -> None:
    await driver.push_batches(driver.batch(driver.message("a"), receipt=driver.receipt("k", '"old"')))
    driver.clock.advance(60)
    assert await driver.recorded("k") == [None]

    (outcome,) = await driver.push_batches(
        driver.batch(driver.message("b"), receipt=driver.receipt("k", '"new"', window_seconds=5))
    )

    assert outcome.recorded is None
    assert payloads(await driver.pop()) == ["a", "b"]
    assert await driver.recorded("k") == ['"new"']
    driver.clock.advance(5)
    assert await driver.recorded("k") == [None]


async def test_sweeping_removes_receipts_that_have_run_out_and_no_others(driver: Driver) -> None:
    for number in range(5):
        receipt = driver.receipt(str(number), window_seconds=10 if number % 2 else 20)
        await driver.push_batches(driver.batch(driver.message("x"), receipt=receipt))
    driver.clock.advance(10)

    await driver.store.sweep(driver.now, PLENTY)

    # As of an instant before they ran out, only what was really removed is missing.
    keys = [driver.receipt(str(number)).key for number in range(5)]
    found = await driver.store.records.receipts(keys, driver.later(-10))
    assert [receipt is not None for receipt in found] == [True, False, True, False, True]


async def test_scope_and_tenant_are_part_of_a_receipts_key(driver: Driver) -> None:
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    outcomes = [
        await d.push_batches(d.batch(d.message("x"), receipt=d.receipt("k", scope=scope)))
        for d, scope in ((driver, "a"), (driver, "b"), (other, "a"))
    ]

    assert [outcome.recorded for (outcome,) in outcomes] == [None] * 3


async def test_duplicates_and_receipts_know_nothing_of_each_other(driver: Driver) -> None:
    message = driver.message("a", transaction_id="t")
    await driver.push_messages(message)

    (outcome,) = await driver.push_batches(driver.batch(message, receipt=driver.receipt("k")))

    assert [r.status for r in outcome.results] == [PushStatus.DUPLICATE]
    assert await driver.recorded("k") == ['"done"']


async def test_I3_the_receipt_of_a_duplicate_names_the_message_that_is_stored(driver: Driver) -> None:
    message = driver.message("a", transaction_id="t")
    (first,) = (await driver.push_messages(message)).results
    batch, other = driver.batch(message), driver.batch(driver.message("b", transaction_id="u"))
    named = [
        PushBatch(one.messages, one.ids, driver.receipt(key, f'{{"id":"{id_text(one.ids[0])}"}}'))
        for key, one in (("k", batch), ("l", other))
    ]

    await driver.push_batches(*named)
    # the second way through the store: one of the receipts lives
    again = await driver.push_batches(
        named[0], driver.batch(message, receipt=driver.receipt("m", f'"{id_text(batch.ids[0])}"'))
    )

    assert await driver.recorded("k", "l") == [
        f'{{"id":"{id_text(first.id)}"}}', f'{{"id":"{id_text(other.ids[0])}"}}',
    ]  # fmt: skip
    assert again[0].recorded == f'{{"id":"{id_text(first.id)}"}}'.encode()


async def test_many_pushes_with_receipts_at_once_store_each_key_once(driver: Driver) -> None:
    await driver.create()
    calls = [
        [driver.batch(driver.message(key), receipt=driver.receipt(key, f'"{call}"')) for key in "abcdefgh"]
        for call in range(6)
    ]

    answers = await asyncio.gather(*(driver.push_batches(*batches) for batches in calls))

    stored = [outcome for outcomes in answers for outcome in outcomes if outcome.recorded is None]
    assert len(stored) == 8
    assert sorted(payloads(await driver.pop())) == list("abcdefgh")
    for number in range(8):
        said = {outcomes[number].recorded for outcomes in answers}
        assert len(said) == 2, "one stored it, and all others got that one's answer"


async def test_a_receipt_that_has_run_out_before_it_is_written_counts_for_nothing(driver: Driver) -> None:
    late = driver.receipt("k", window_seconds=0)
    batches = [driver.batch(driver.message(payload), receipt=late) for payload in "ab"]

    assert [outcome.recorded for outcome in await driver.push_batches(*batches)] == [None, None]
    assert (await driver.transact([], [], receipts=[late])).committed
    assert (await driver.transact([], [], receipts=[driver.receipt("l"), late, late])).conflict_at == 2
    assert await driver.recorded("k", "l") == [None, None]
