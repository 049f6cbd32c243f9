"""Looking at messages: filters, states, pages, previews, single messages and traces."""

from __future__ import annotations

import pytest

from skep.ids import IdMint
from skep.model import (
    FROM_BEGINNING,
    QUEUE_MODE_GROUP,
    ClearScope,
    MessageFilter,
    MessagePage,
    MessageState,
    Ordering,
    PushBatch,
    Seq,
)
from skep.model.scheduled import ScheduledFilter
from tests.contract.driver import Driver


def found(page: MessagePage) -> list[str]:
    return [message.payload.decode() for message in page.messages]


async def test_messages_come_in_log_order_either_way(driver: Driver) -> None:
    await driver.push("a", "b", "c")

    assert found(await driver.browse()) == ["a", "b", "c"]
    assert found(await driver.browse(descending=True)) == ["c", "b", "a"]


@pytest.mark.parametrize("descending", [False, True])
async def test_pages_follow_each_other_without_gap_or_repeat(driver: Driver, descending: bool) -> None:
    await driver.push(*map(str, range(7)))
    seen: list[str] = []
    after: Seq | None = None
    for _ in range(20):
        page = await driver.browse(limit=3, after=after, descending=descending)
        assert len(page.messages) <= 3
        seen += found(page)
        after = page.after
        if after is None:
            break

    expected = list(map(str, range(7)))
    assert seen == (expected[::-1] if descending else expected)


async def test_every_filter_narrows(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    await driver.push("a", partition="1", transaction_id="t")
    driver.clock.advance(10)
    middle = driver.now
    await driver.push("b", partition="2", trace_id=trace_id)

    assert found(await driver.browse(partition="1")) == ["a"]
    assert found(await driver.browse(transaction_id="t")) == ["a"]
    assert found(await driver.browse(transaction_id="nobody's")) == []
    assert found(await driver.browse(trace_id=trace_id)) == ["b"]
    assert found(await driver.browse(since=middle)) == ["b"]
    assert found(await driver.browse(until=middle)) == ["a"]
    assert found(await driver.browse(partition="1", since=middle)) == []


@pytest.mark.parametrize("preview_bytes", [None, 0, 10])
async def test_an_empty_payload_is_shown_as_one(driver: Driver, preview_bytes: int | None) -> None:
    await driver.push("")
    await driver.push("", deliver_at=driver.later(60))

    (message,) = (await driver.browse(preview_bytes=preview_bytes)).messages
    scheduled = ScheduledFilter(tenant=driver.tenant)
    (waiting,) = (await driver.store.scheduled.page(scheduled, None, 10, preview_bytes)).messages

    assert [(one.payload, one.payload_bytes) for one in (message, waiting)] == [(b"", 0)] * 2


async def test_a_message_without_a_trace_id_is_found_by_its_own_id(driver: Driver) -> None:
    first, second = await driver.push("a", "b")

    assert found(await driver.browse(trace_id=second.id)) == ["b"]
    assert [m.id for m in await driver.store.trace(driver.tenant, first.id)] == [first.id]


@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("back_seconds", [0.9, 1.5, 60])
async def test_a_message_is_found_by_its_own_id_after_the_clock_went_back(
    driver: Driver, count: int, back_seconds: float
) -> None:
    await driver.push("before")
    driver.clock.advance(-back_seconds)
    ids = IdMint(driver.clock).mint_many(count)
    await driver.push_batches(PushBatch([driver.message(str(number)) for number in range(count)], ids))

    for id_ in (ids[0], ids[-1]):
        (message,) = await driver.store.trace(driver.tenant, id_)
        assert message.id == message.trace_id == id_
        assert [m.id for m in (await driver.browse(trace_id=id_)).messages] == [id_]


async def test_a_message_whose_id_was_made_a_while_before_it_is_pushed_is_found_after_the_clock_went_back(
    driver: Driver,
) -> None:
    await driver.push("before")
    driver.clock.advance(-2.7)
    [id_] = IdMint(driver.clock).mint_many(1)
    driver.clock.advance(0.9)
    await driver.push_batches(PushBatch([driver.message("late")], [id_]))

    assert [message.id for message in await driver.store.trace(driver.tenant, id_)] == [id_]


async def test_a_preview_cuts_the_payload_and_tells_its_size(driver: Driver) -> None:
    await driver.push("0123456789", headers=b'{"h":"1"}', priority=3)

    (message,) = (await driver.browse(preview_bytes=4)).messages

    assert (message.payload, message.payload_bytes) == (b"0123", 10)
    assert (message.headers, message.priority, message.created_at) == (b'{"h":"1"}', 3, driver.now)


async def test_one_message_comes_whole(driver: Driver) -> None:
    (result,) = await driver.push("0123456789", partition="p", transaction_id="t")
    assert result.seq is not None

    message = await driver.store.message(driver.key(), result.seq)

    assert message is not None
    assert (message.payload, message.payload_bytes, message.partition) == (b"0123456789", 10, "p")
    assert (message.id, message.transaction_id, message.trace_id) == (result.id, "t", result.id)
    assert await driver.store.message(driver.key(), Seq(99)) is None


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_states_are_those_of_the_group(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("acked", "rejected", "leased", "waiting")
    acked, rejected, _ = sorted(await driver.pop(batch=3, group="g"), key=lambda d: d.seq)
    await driver.ack(acked)
    await driver.reject(rejected)
    await driver.push("new")

    async def in_state(state: MessageState) -> list[str]:
        return found(await driver.browse(group="g", state=state))

    assert await in_state(MessageState.IN_FLIGHT) == ["leased"]
    assert await in_state(MessageState.PENDING) == ["waiting", "new"]
    assert await in_state(MessageState.DEAD) == ["rejected"]
    assert await in_state(MessageState.SETTLED) == ["acked"]
    every = await driver.browse(group="g")
    assert [m.state for m in every.messages] == [
        MessageState.SETTLED,
        MessageState.DEAD,
        MessageState.IN_FLIGHT,
        MessageState.PENDING,
        MessageState.PENDING,
    ]


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_what_died_and_was_sought_back_to_is_pending_again(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    await driver.reject(await driver.pop_one(group="g"))

    await driver.seek(FROM_BEGINNING, group="g")

    assert found(await driver.browse(group="g", state=MessageState.DEAD)) == []
    assert found(await driver.browse(group="g", state=MessageState.PENDING)) == ["a"]
    await driver.pop_one(group="g")
    assert found(await driver.browse(group="g", state=MessageState.IN_FLIGHT)) == ["a"]


async def test_a_message_waiting_for_its_retry_is_pending(driver: Driver) -> None:
    await driver.push("a", "b")
    deliveries = await driver.pop(group="g")
    await driver.nack(deliveries[0], retry_at=driver.later(100), retry="at")

    page = await driver.browse(group="g", state=MessageState.PENDING)

    assert found(page) == ["a", "b"]


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_a_message_that_was_held_when_its_queue_was_cleared_is_found_by_its_state(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push("held", "cleared")
    held = await driver.pop_one(group="g")
    await driver.clear(ClearScope.PENDING)
    assert found(await driver.browse(group="g", state=MessageState.IN_FLIGHT)) == ["held"]

    await driver.nack(held)

    assert found(await driver.browse(group="g", state=MessageState.PENDING)) == ["held"]
    assert found(await driver.browse(group="g", state=MessageState.PENDING, since=driver.later(-1))) == ["held"]
    assert (await driver.stats(group="g")).pending == 1
    assert found(await driver.browse(group="g")) == []
    assert [delivery.payload for delivery in await driver.pop(group="g")] == [b"held"]


async def test_a_trace_is_followed_across_queues_oldest_first(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    await driver.push("1", queue="orders", trace_id=trace_id)
    driver.clock.advance(1)
    await driver.push("2", queue="bills", trace_id=trace_id)
    await driver.push("other", queue="bills")
    driver.clock.advance(1)
    await driver.push("3", queue="mails", trace_id=trace_id)
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    await other.push("not ours", trace_id=trace_id)

    messages = await driver.store.trace(driver.tenant, trace_id)

    assert [(m.queue.name, m.payload) for m in messages] == [("orders", b"1"), ("bills", b"2"), ("mails", b"3")]
    assert len(await driver.store.trace(driver.tenant, trace_id, limit=2)) == 2
    assert await driver.store.trace(driver.tenant, driver.mint.mint()) == []


async def test_a_trace_has_whole_payloads_up_to_so_many_bytes_oldest_first(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    for queue, payload in (("orders", "4444"), ("bills", "333"), ("mails", "22"), ("orders", "")):
        await driver.push(payload, queue=queue, trace_id=trace_id)
        driver.clock.advance(1)

    async def payloads_within(max_bytes: int, limit: int = 10) -> list[bytes]:
        messages = await driver.store.trace(driver.tenant, trace_id, limit, max_bytes)
        assert [m.payload_bytes for m in messages] == [4, 3, 2, 0][:limit]
        return [m.payload for m in messages]

    assert await payloads_within(9) == [b"4444", b"333", b"22", b""]
    assert await payloads_within(8) == [b"4444", b"333", b"", b""]
    assert await payloads_within(3) == [b"", b"", b"", b""]
    assert await payloads_within(7, limit=2) == [b"4444", b"333"]


async def test_an_implied_trace_has_its_payload_if_it_fits(driver: Driver) -> None:
    (first,) = await driver.push("1234")

    assert [m.payload for m in await driver.store.trace(driver.tenant, first.id, 10, 4)] == [b"1234"]
    assert [m.payload for m in await driver.store.trace(driver.tenant, first.id, 10, 3)] == [b""]


async def test_a_transaction_id_is_found_in_whatever_queue_it_is(driver: Driver) -> None:
    await driver.push("1", queue="orders", transaction_id="t-1")
    driver.clock.advance(1)
    await driver.push("2", queue="bills", transaction_id="t-1")
    await driver.push("other", queue="bills", transaction_id="t-2")
    other = Driver(driver.store, driver.clock, driver.tenant + "-other")
    await other.push("not ours", transaction_id="t-1")
    await driver.push("gone", queue="old", transaction_id="t-1")
    await driver.delete("old")

    found = await driver.store.with_transaction_id(driver.tenant, "t-1")

    assert [(m.queue.name, m.transaction_id, m.payload) for m in found] == [
        ("bills", "t-1", b""),
        ("orders", "t-1", b""),
    ]
    assert len(await driver.store.with_transaction_id(driver.tenant, "t-1", limit=1)) == 1
    assert await driver.store.with_transaction_id(driver.tenant, "no such") == []


async def test_messages_in_a_state_are_found_behind_many_that_are_not(driver: Driver) -> None:
    await driver.push(*(str(n) for n in range(450)))
    await driver.ack(*await driver.pop(batch=440))

    async def found(state: MessageState, *, descending: bool) -> list[int]:
        """The first dozen, page by page: one may be short, or empty, and still have a next."""
        seqs, after = list[int](), None
        while len(seqs) < 12:
            wanted = MessageFilter(
                queue=driver.key(), group=QUEUE_MODE_GROUP, state=state, limit=6, after=after, descending=descending
            )
            page = await driver.store.messages(wanted, driver.now)
            seqs += [message.seq for message in page.messages]
            after = page.after
            if after is None:
                break
        return seqs

    assert await found(MessageState.PENDING, descending=False) == list(range(441, 451))
    assert await found(MessageState.SETTLED, descending=True) == list(range(440, 428, -1))


async def test_what_was_replayed_for_one_group_is_not_listed_as_anothers(driver: Driver) -> None:
    await driver.push("died")
    await driver.reject(*await driver.pop(group="billing"))
    await driver.pop(group="audit")
    await driver.replay(group="billing")

    async def waiting(group: str) -> list[str]:
        page = await driver.browse(group=group, state=MessageState.PENDING)
        return [message.payload.decode() for message in page.messages]

    assert await waiting("billing") == ["died"]
    assert await waiting("audit") == []
