"""Dead letters: buried whole, browsed by whatever tells them apart."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code, SkepError
from skep.model import (
    DeadLetterOrigin,
    DeadReason,
    Delivery,
    Ordering,
    Seq,
)
from tests.contract.driver import Driver


async def bury(driver: Driver, *messages: str, partition: str = "p", group: str = "g", error: str = "bad") -> None:
    await driver.push(*messages, partition=partition)
    await driver.reject(*await driver.pop(group=group), error=error)


async def test_I11_a_dead_letter_is_a_message_of_a_queue_like_any_other(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    message = driver.message(
        b"\x00payload",
        partition="p",
        transaction_id="t",
        trace_id=trace_id,
        headers=b'{"h":"1"}',
        content_type="text/plain",
    )
    outcome = await driver.push_messages(message)
    driver.clock.advance(5)
    await driver.reject(await driver.pop_one(group="g"), error="broken")

    (letter,) = await driver.dead()
    (delivery,) = await driver.pop("q.dead")

    assert letter.id == delivery.id == outcome.results[0].id
    assert letter.partition == delivery.partition == "p"
    assert letter.transaction_id == delivery.transaction_id == "t"
    assert letter.trace_id == delivery.trace_id == trace_id
    assert letter.headers == delivery.headers == message.headers
    assert letter.content_type == delivery.content_type == "text/plain"
    assert letter.payload == delivery.payload == message.payload
    assert (letter.queue, letter.seq) == (driver.key("q.dead"), delivery.seq)


async def test_I11_a_dead_letter_tells_its_story_and_starts_anew(driver: Driver) -> None:
    await driver.create(max_attempts=2)
    pushed_at = driver.now
    await driver.push("a", partition="p")
    await driver.nack(await driver.pop_one(group="g"))
    driver.clock.advance(5)
    await driver.nack(await driver.pop_one(group="g"), error="broken")

    (letter,) = await driver.dead()
    assert (letter.source_queue, letter.source_seq, letter.group) == ("q", 1, "g")
    assert (letter.reason, letter.error, letter.attempts) == (DeadReason.MAX_ATTEMPTS, "broken", 2)
    assert (letter.created_at, letter.failed_at) == (pushed_at, driver.now)

    (delivery,) = await driver.pop("q.dead")
    assert (delivery.attempt, delivery.created_at) == (1, driver.now)


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED])
@pytest.mark.parametrize("auto_ack", [False, True])
async def test_a_popped_dead_letter_tells_where_it_comes_from_and_why_it_died(
    driver: Driver, ordering: Ordering, auto_ack: bool
) -> None:
    await driver.create("graves", ordering=ordering)
    await driver.create(max_attempts=2, dead_letter_queue="graves")
    await driver.push("a", "b", partition="p")
    for attempt in range(2):
        driver.clock.advance(5)
        await driver.nack(await driver.pop_one(group="g"), error=f"broken {attempt}")
    died_at = driver.now
    driver.clock.advance(5)
    await driver.reject(await driver.pop_one(group="g"))

    first, second = await driver.pop("graves", auto_ack=auto_ack, batch=2)

    told = DeadLetterOrigin("q", Seq(1), "p", "g", DeadReason.MAX_ATTEMPTS, "broken 1", 2, died_at)
    assert first.dead_letter == told
    assert second.dead_letter == DeadLetterOrigin("q", Seq(2), "p", "g", DeadReason.REJECTED, None, 1, driver.now)


async def test_what_did_not_die_tells_of_no_death(driver: Driver) -> None:
    await driver.push("a")
    await driver.reject(await driver.pop_one())
    await driver.push("pushed there by hand", queue="q.dead")
    await driver.push("b")

    letters = await driver.pop("q.dead", batch=2)

    assert [one.dead_letter is None for one in letters] == [False, True]
    assert (await driver.pop_one()).dead_letter is None


async def test_I11_a_message_without_a_trace_id_keeps_its_own_as_one(driver: Driver) -> None:
    (result,) = await driver.push("a")
    driver.clock.advance(100)
    await driver.reject(await driver.pop_one())

    (letter,) = await driver.dead()

    assert letter.trace_id == result.id
    found = await driver.store.trace(driver.tenant, result.id)
    assert [m.queue.name for m in found] == ["q", "q.dead"]


async def test_a_burial_is_never_refused_for_depth(driver: Driver) -> None:
    await driver.create("graves", max_depth=1)
    await driver.create(dead_letter_queue="graves")
    await driver.push("a", "b", "c")

    results = await driver.reject(*await driver.pop())

    assert [r.status.value for r in results] == ["dead"] * 3
    assert len(await driver.dead("graves")) == 3


async def test_a_buried_message_blocks_no_transaction_id(driver: Driver) -> None:
    await driver.push("a", transaction_id="t")
    await driver.reject(await driver.pop_one())

    (result,) = await driver.push("b", queue="q.dead", transaction_id="t")

    assert result.status.value == "stored"


async def test_dead_letters_come_in_order_and_in_pages(driver: Driver) -> None:
    await bury(driver, "a", "b", "c")

    first = await driver.store.dead_letters(driver.dead_filter(), None, 2)
    rest = await driver.store.dead_letters(driver.dead_filter(), first[-1].seq, 2)

    assert [letter.payload for letter in first] == [b"a", b"b"]
    assert [letter.payload for letter in rest] == [b"c"]


async def test_a_page_of_dead_letters_ends_with_the_one_that_reaches_its_bytes(driver: Driver) -> None:
    await bury(driver, "a", "bcd", "e", "f")

    async def page(max_bytes: int, after: Seq | None = None, limit: int = 10) -> list[bytes]:
        found = await driver.store.dead_letters(driver.dead_filter(), after, limit, max_bytes)
        return [letter.payload for letter in found]

    assert await page(1) == [b"a"], "always one"
    assert await page(3) == [b"a", b"bcd"]
    assert await page(4) == [b"a", b"bcd"]
    assert await page(5) == [b"a", b"bcd", b"e"]
    assert await page(100, limit=2) == [b"a", b"bcd"]
    assert await page(2, after=(await driver.dead())[1].seq) == [b"e", b"f"]


async def test_every_filter_narrows(driver: Driver) -> None:
    await bury(driver, "a", partition="1", group="g", error="timeout at 100%")
    middle = driver.later(1)
    driver.clock.advance(2)
    await driver.create("r", dead_letter_queue="q.dead", max_attempts=1)
    await driver.push("b", queue="r", partition="2")
    await driver.nack(await driver.pop_one("r", group="h"), error="refused")
    a, b = await driver.dead()

    async def found(**narrow: Any) -> list[bytes]:
        letters = await driver.dead(**narrow)
        assert await driver.store.count_dead_letters(driver.dead_filter(**narrow)) == len(letters)
        return [letter.payload for letter in letters]

    assert await found() == [b"a", b"b"]
    assert await found(ids=[a.id]) == [b"a"]
    assert await found(ids=[]) == []
    assert await found(seqs=[b.seq]) == [b"b"]
    assert await found(source_queue="r") == [b"b"]
    assert await found(partition="1") == [b"a"]
    assert await found(group="h") == [b"b"]
    assert await found(reason=DeadReason.REJECTED) == [b"a"]
    assert await found(reason=DeadReason.MAX_ATTEMPTS) == [b"b"]
    assert await found(error_contains="100%") == [b"a"]
    assert await found(error_contains="1_0") == []
    assert await found(since=middle) == [b"b"]
    assert await found(until=middle) == [b"a"]
    assert await found(group="g", partition="2") == []


async def test_dead_letters_of_an_unknown_queue_are_an_error(driver: Driver) -> None:
    with pytest.raises(SkepError) as caught:
        await driver.store.dead_letters(driver.dead_filter("nowhere"), None, 1)

    assert caught.value.code is Code.QUEUE_NOT_FOUND


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_I10_I11_a_crowd_of_leases_that_ran_out_is_buried_bit_by_bit_and_each_message_once(
    driver: Driver, ordering: Ordering
) -> None:
    crowd = 130
    await driver.create(ordering=ordering, max_attempts=3)
    await driver.push_messages(*(driver.message(f"{n:03}", partition=f"p{n:03}") for n in range(crowd)))
    await driver.pop(batch=crowd, lease_seconds=10)
    await driver.push_messages(*(driver.message(f"next {n:03}", partition=f"p{n:03}") for n in range(crowd)))
    await driver.update(max_attempts=1)
    driver.clock.advance(10)

    popped: list[Delivery] = []
    buried = [0]
    while len(popped) < crowd or buried[-1] < crowd:
        # Every one of these steps leaves the account right: the driver looks.
        result = await driver.pop_result(batch=7)
        popped += result.deliveries
        buried.append((await driver.stats()).dead)
        assert result.deliveries or result.more or buried[-1] == crowd, "nobody would pop again"

    letters = await driver.dead()
    assert sorted(letter.payload.decode() for letter in letters) == [f"{n:03}" for n in range(crowd)]
    assert sorted(delivery.payload.decode() for delivery in popped) == [f"next {n:03}" for n in range(crowd)]
    assert buried == sorted(buried)
