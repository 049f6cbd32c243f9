"""What a store remembers: figures by the minute, deliveries of a message, events of traces, and why messages died."""

from __future__ import annotations

import pytest

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import SEALED_TYPE, DeadReason, Edited, Seq
from skep.model.history import Journey, Moment, TraceEvent
from skep.store.rules import PAST_SECONDS, TRACE_EVENTS_SECONDS
from tests.contract.driver import Driver

LONG_AGO = Instant(0)


def at_a_minute(driver: Driver) -> None:
    """Advance the clock to the beginning of a minute; the clock of each test is its own, the store's samples are not."""
    driver.clock.advance(60 - driver.now / 1_000_000 % 60)


async def test_a_minute_remembers_the_last_that_was_seen_in_it(driver: Driver) -> None:
    at_a_minute(driver)
    await driver.push("a", "b")
    born = Moment(Instant(driver.now - 10_000_000), 0, 0, 0, 0, 0)
    await driver.store.sample(driver.now)
    driver.clock.advance(20)
    await driver.ack(await driver.pop_one())
    await driver.store.sample(driver.now)
    last = driver.now
    driver.clock.advance(60)
    await driver.store.sample(driver.now)

    [found] = await driver.store.past(driver.tenant, ["q"], LONG_AGO)

    assert found == [born, Moment(last, 2, 1, 0, 0, 1)]
    assert await driver.store.past(driver.tenant, ["q", "nosuch"], driver.now) == [found[1:], []]


async def test_what_happened_before_the_first_sample_is_in_the_past(driver: Driver) -> None:
    """A queue begins with nothing, so its first minute counts; so does a tenant's."""
    at_a_minute(driver)
    await driver.push("a", "b")
    born = Moment(driver.now, 0, 0, 0, 0, 0)
    driver.clock.advance(20)
    await driver.push("c", queue="r")
    second = Moment(Instant(driver.now - 10_000_000), 0, 0, 0, 0, 0)
    seen = driver.now
    await driver.store.sample(driver.now)
    driver.clock.advance(20)
    await driver.store.sample(driver.now)

    first, other = await driver.store.past(driver.tenant, ["q", "r"], LONG_AGO)
    [whole] = await driver.store.past(driver.tenant, None, LONG_AGO)

    assert first == [born, Moment(seen, 2, 0, 0, 0, 2)]
    assert other == [second, Moment(seen, 1, 0, 0, 0, 1)]
    assert whole == [born, Moment(seen, 3, 0, 0, 0, 3)]


async def test_a_first_sample_right_after_the_first_push_makes_no_peak(driver: Driver) -> None:
    at_a_minute(driver)
    driver.clock.advance(13)
    await driver.push("a")
    driver.clock.advance(1)
    await driver.store.sample(driver.now)

    [[born, first]] = await driver.store.past(driver.tenant, ["q"], LONG_AGO)

    assert first.at - born.at >= 1_000_000


async def test_a_queue_that_is_made_later_makes_no_dent_in_its_tenant(driver: Driver) -> None:
    at_a_minute(driver)
    await driver.push("a")
    for _ in range(4):
        driver.clock.advance(60)
        await driver.store.sample(driver.now)
    last_quiet = driver.now
    await driver.push("b", queue="r")
    driver.clock.advance(60)
    await driver.store.sample(driver.now)

    [whole] = await driver.store.past(driver.tenant, None, LONG_AGO)

    assert [one.pushed for one in whole] == [0, 1, 1, 2]
    assert [one.at for one in whole[2:]] == [last_quiet, driver.now]


async def test_a_tenant_as_a_whole_is_the_sum_of_its_queues_without_those_of_dead_letters(driver: Driver) -> None:
    at_a_minute(driver)
    await driver.create("q", max_attempts=1)
    await driver.push("a", "b")
    await driver.push("c", queue="r")
    await driver.reject(await driver.pop_one())
    await driver.store.sample(driver.now)

    [found] = await driver.store.past(driver.tenant, None, LONG_AGO)

    assert found[-1] == Moment(driver.now, 3, 0, 0, 1, 2)
    assert await driver.store.past("another", None, LONG_AGO) == [[]]


async def test_the_past_ages_out(driver: Driver) -> None:
    if type(driver.store).__name__ == "ReferenceStore":
        pytest.skip("the model forgets nothing")
    at_a_minute(driver)
    await driver.push("a")
    await driver.store.sample(driver.now)
    await driver.store.note_trace_events(driver.tenant, [event(driver, "done")])
    driver.clock.advance(max(PAST_SECONDS, TRACE_EVENTS_SECONDS) + 61)

    while (await driver.store.sweep(driver.now, 1000)).more:
        pass

    assert await driver.store.past(driver.tenant, ["q"], LONG_AGO) == [[]]
    assert await driver.store.trace_names(driver.tenant) == []


def event(driver: Driver, name: str, trace_id: Id | None = None, data: bytes = b"{}") -> TraceEvent:
    return TraceEvent(trace_id=trace_id or driver.mint.mint(), name=name, data=data, at=driver.now)


async def test_events_of_a_trace_come_in_the_order_of_telling(driver: Driver) -> None:
    trace_id, message_id = driver.mint.mint_many(2)
    first = event(driver, "charged card", trace_id, b'{"amount":3}')
    driver.clock.advance(1)
    second = TraceEvent(
        trace_id=trace_id, name="sent mail", data=b"{}", at=driver.now, message_id=message_id, queue="orders"
    )
    await driver.store.note_trace_events(driver.tenant, [first, second, event(driver, "other")])

    found = await driver.store.trace_events(driver.tenant, trace_id)

    assert [(one.name, one.data, one.at) for one in found] == [
        ("charged card", b'{"amount":3}', first.at), ("sent mail", b"{}", second.at),
    ]  # fmt: skip
    assert (found[1].message_id, found[1].queue, found[1].trace_id) == (message_id, "orders", trace_id)
    assert len(await driver.store.trace_events(driver.tenant, trace_id, 1)) == 1
    assert await driver.store.trace_events("another", trace_id) == []


async def test_events_are_found_by_name_newest_first(driver: Driver) -> None:
    for number in range(3):
        driver.clock.advance(1)
        told = [event(driver, "b", data=b"%d" % number), event(driver, "a"), event(driver, "c")]
        await driver.store.note_trace_events(driver.tenant, told)

    newest = await driver.store.named_trace_events(driver.tenant, "b", None, 2)
    older = await driver.store.named_trace_events(driver.tenant, "b", newest[-1].position)

    assert [one.data for one in newest + older] == [b"2", b"1", b"0"]
    names = await driver.store.trace_names(driver.tenant)
    assert [(one.name, one.last_at) for one in names] == [("a", driver.now), ("b", driver.now), ("c", driver.now)]
    assert [one.name for one in await driver.store.trace_names(driver.tenant, "a", 1)] == ["b"]
    assert await driver.store.trace_names("another") == []


async def test_deliveries_of_a_message_are_found_among_those_of_others(driver: Driver) -> None:
    await driver.create("q", max_attempts=5, initial_backoff_ms=0)
    for number in range(20):
        await driver.push(f"m{number}", partition=f"p{number % 3}")
        driver.clock.advance(1)
        for delivery in await driver.pop(batch=10):
            if number == 7 and delivery.partition == "p1":
                await driver.nack(delivery)
            else:
                await driver.ack(delivery)
    created_at = (await driver.browse()).messages[7].created_at

    [found, other, nothing] = await driver.store.deliveries(
        [
            Journey(driver.key(), "p1", Seq(8), created_at),
            Journey(driver.key(), "p2", Seq(9), created_at),
            Journey(driver.key("nosuch"), "p1", Seq(1), created_at),
        ]
    )

    assert [(lease.attempt, lease.outcome) for lease in found] == [(1, "retried"), (2, "completed")]
    assert [lease.outcome for lease in other] == ["completed"]
    assert nothing == []


async def test_deaths_are_told_newest_first_without_the_messages(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    for delivery in await driver.pop(batch=3):
        driver.clock.advance(1)
        await driver.reject(delivery, error=f"no {delivery.seq}")

    deaths = await driver.store.deaths(driver.key("q.dead"), 2)

    assert [(one.seq, one.error, one.reason, one.source_queue) for one in deaths] == [
        (3, "no 3", DeadReason.REJECTED, "q"), (2, "no 2", DeadReason.REJECTED, "q"),
    ]  # fmt: skip
    assert deaths[0].failed_at == driver.now
    with pytest.raises(SkepError) as refused:
        await driver.store.deaths(driver.key(), 2)
    assert refused.value.code is Code.NOT_A_DEAD_LETTER_QUEUE


async def test_a_dead_letter_is_replayed_with_another_payload(driver: Driver) -> None:
    await driver.push('{"amount":-1}', partition="p", transaction_id="t")
    await driver.reject(await driver.pop_one(), error="negative")
    wanted = driver.dead_filter()

    step = await driver.store.replay(wanted, [driver.mint.mint()], Seq(1), driver.now, Edited(b'{"amount":1}'))
    [replayed] = step.replayed

    again = await driver.pop_one()
    assert (again.seq, again.partition, again.payload) == (replayed.seq, "p", b'{"amount":1}')
    assert again.transaction_id == "t"
    assert await driver.dead() == []


async def test_an_encrypted_queue_takes_no_edited_payload_that_is_plain(driver: Driver) -> None:
    await driver.push('{"amount":-1}')
    await driver.reject(await driver.pop_one(), error="negative")
    await driver.update(encryption_enabled=True)
    ids = [driver.mint.mint()]

    with pytest.raises(SkepError) as refused:
        await driver.store.replay(driver.dead_filter(), ids, Seq(1), driver.now, Edited(b'{"amount":1}'))
    assert refused.value.code is Code.NOT_ENCRYPTED
    assert len(await driver.dead()) == 1
    step = await driver.store.replay(driver.dead_filter(), ids, Seq(1), driver.now, Edited(b"sealed", SEALED_TYPE))

    again = await driver.pop_one()
    assert (len(step.replayed), again.payload, again.content_type) == (1, b"sealed", SEALED_TYPE)
