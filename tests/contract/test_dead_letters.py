"""Dead letters: buried whole, browsed, replayed to the one group in order, purged."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code, SkepError
from skep.model import (
    DEFAULT_PARTITION,
    QUEUE_MODE_GROUP,
    DeadReason,
    Delivery,
    MessageState,
    Ordering,
    Outcome,
    Retry,
    Seq,
    SettleStatus,
)
from tests.contract.driver import Driver, attempts, payloads


async def bury(driver: Driver, *messages: str, partition: str = "p", group: str = "g", error: str = "bad") -> None:
    await driver.push(*messages, partition=partition)
    await driver.reject(*await driver.pop(group=group), error=error)


async def test_I11_hole_001_12_a_dead_letter_is_a_message_of_a_queue_like_any_other(driver: Driver) -> None:
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


async def test_I11_hole_002_5_a_dead_letter_tells_its_story_and_starts_anew(driver: Driver) -> None:
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


# replay


async def test_I14_a_replay_goes_to_the_group_that_gave_up_and_to_no_other(driver: Driver) -> None:
    await bury(driver, "a", group="g")
    await driver.ack(*await driver.pop(group="h"))

    (replayed,) = await driver.replay()

    assert (replayed.queue, replayed.seq, replayed.dead_seq) == (driver.key(), 2, 1)
    assert await driver.pop(group="h") == []
    (delivery,) = await driver.pop(group="g")
    assert (delivery.payload, delivery.id, delivery.attempt) == (b"a", replayed.id, 1)
    assert await driver.dead() == []
    await driver.ack(delivery)
    assert [s.pending for s in (await driver.queue_stats()).groups] == [0, 0]


async def test_a_group_made_later_does_not_see_a_replay_for_another(driver: Driver) -> None:
    await bury(driver, "a", group="g")
    await driver.replay()

    assert payloads(await driver.pop(group="later")) == ["a"]
    stats = await driver.stats(group="later")
    assert (stats.pushed, stats.in_flight) == (1, 1)


async def test_I4_a_replay_keeps_the_order(driver: Driver) -> None:
    await bury(driver, "a", "b", "c")
    await driver.push("later", partition="p")

    replayed = await driver.replay()

    assert [r.dead_seq for r in replayed] == [1, 2, 3]
    assert payloads(await driver.pop(group="g")) == ["later", "a", "b", "c"]


async def test_a_replayed_message_is_new_but_keeps_what_it_carries(driver: Driver) -> None:
    await driver.push("a", partition="p", transaction_id="t", headers=b'{"h":"1"}', content_type="text/plain")
    first = await driver.pop_one()
    await driver.reject(first)

    await driver.replay()

    second = await driver.pop_one()
    assert second.id != first.id
    kept = ("partition", "transaction_id", "trace_id", "headers", "content_type", "payload")
    assert [getattr(second, name) for name in kept] == [getattr(first, name) for name in kept]


async def test_hole_001_10_a_replay_bypasses_deduplication(driver: Driver) -> None:
    (first,) = await driver.push("a", transaction_id="t")
    await driver.reject(await driver.pop_one())

    (replayed,) = await driver.replay()
    assert replayed.id != first.id

    (duplicate,) = await driver.push("b", transaction_id="t")
    assert (duplicate.status.value, duplicate.id) == ("duplicate", first.id)


async def test_a_replay_takes_the_oldest_that_match_up_to_a_seq(driver: Driver) -> None:
    await bury(driver, *"abcde")

    assert [r.dead_seq for r in await driver.replay(limit=2)] == [1, 2]
    assert [r.dead_seq for r in await driver.replay(until=4)] == [3, 4]
    assert [r.dead_seq for r in await driver.replay(seqs=[Seq(1), Seq(5)])] == [5]
    assert await driver.replay() == []


async def test_I15_a_replay_to_a_queue_that_is_gone_moves_nothing(driver: Driver) -> None:
    await driver.create("gone", dead_letter_queue="graves")
    await driver.create("here", dead_letter_queue="graves")
    for queue in ("here", "gone"):
        await driver.push("x", queue=queue)
        await driver.reject(await driver.pop_one(queue))
    await driver.delete("gone")

    with pytest.raises(SkepError) as caught:
        await driver.replay("graves")

    assert caught.value.code is Code.QUEUE_NOT_FOUND
    assert len(await driver.dead("graves")) == 2
    assert (await driver.queue_stats("here")).last_seq == 1


async def test_a_replay_for_a_group_that_is_gone_makes_it_at_the_end(driver: Driver) -> None:
    await driver.push("before", partition="p")
    await driver.ack(*await driver.pop(group="g"))
    await bury(driver, "a", group="g")
    await driver.delete_group(group="g")

    await driver.replay()

    assert payloads(await driver.pop(group="g")) == ["a"]


async def test_I10_a_replayed_message_has_all_its_attempts_again(driver: Driver) -> None:
    await driver.create(max_attempts=2)
    await driver.push("a")
    for _ in range(2):
        await driver.nack(await driver.pop_one())
    await driver.replay()

    seen: list[Delivery] = []
    while found := await driver.pop():
        seen += found
        await driver.nack(*found)

    assert attempts(seen) == [1, 2]
    (letter,) = await driver.dead()
    assert (letter.source_seq, letter.attempts) == (2, 2)


# purge, and the dead-letter queue's own groups


async def test_a_purge_deletes_what_matches_up_to_a_limit(driver: Driver) -> None:
    await bury(driver, "a", "b", "c")

    assert await driver.purge(limit=2) == 2
    assert [letter.payload for letter in await driver.dead()] == [b"c"]
    assert await driver.purge(group="nobody") == 0
    assert await driver.purge() == 1
    assert await driver.pop("q.dead") == []


@pytest.mark.parametrize("verb", ["purge", "replay"])
async def test_I12_what_leaves_a_dead_letter_queue_expires_for_its_groups(driver: Driver, verb: str) -> None:
    await bury(driver, "a", "b", "c", "d")
    a, b = await driver.pop("q.dead", batch=2)
    await driver.ack(a)

    await getattr(driver, verb)()

    stats = await driver.stats("q.dead")
    assert (stats.completed, stats.in_flight) == (1, 1)
    assert [r.status.value for r in await driver.ack(b)] == ["completed"]
    assert await driver.pop("q.dead") == []
    stats = await driver.stats("q.dead")
    assert (stats.pushed, stats.completed, stats.expired, stats.pending) == (4, 2, 2, 0)
    await driver.push("e", queue="q.dead")
    assert payloads(await driver.pop("q.dead")) == ["e"]


async def test_I12_a_purged_message_whose_lease_runs_out_expires(driver: Driver) -> None:
    await bury(driver, "a", "b")
    await driver.pop("q.dead", lease_seconds=10)
    await driver.purge()
    driver.clock.advance(10)

    assert await driver.pop("q.dead") == []

    stats = await driver.stats("q.dead")
    assert (stats.pushed, stats.expired, stats.pending, stats.in_flight) == (2, 2, 0, 0)


async def test_I12_a_purge_of_what_a_group_has_not_discovered_is_counted(driver: Driver) -> None:
    await bury(driver, "a")
    await driver.ack(*await driver.pop("q.dead"))
    await bury(driver, "b", "c")
    await driver.purge(seqs=[Seq(2)])

    assert payloads(await driver.pop("q.dead")) == ["c"]
    stats = await driver.stats("q.dead")
    assert (stats.pushed, stats.completed, stats.expired, stats.in_flight) == (3, 1, 1, 1)


async def test_a_message_in_a_dead_letter_queue_is_never_given_up(driver: Driver) -> None:
    await bury(driver, "a")
    for n in range(1, 6):
        delivery = await driver.pop_one("q.dead")
        assert delivery.attempt == n
        await driver.nack(delivery)

    assert len(await driver.dead()) == 1


async def test_what_lies_behind_a_purged_message_is_as_old_as_itself(driver: Driver) -> None:
    await driver.push("purged")
    await driver.reject(await driver.pop_one())
    await driver.update("q.dead", max_wait_seconds=10)
    driver.clock.advance(9)
    await driver.push("young")
    await driver.reject(await driver.pop_one())
    await driver.nack(await driver.pop_one("q.dead"))
    await driver.purge(limit=1)

    driver.clock.advance(2)

    assert payloads(await driver.pop("q.dead")) == ["young"]


async def test_a_lease_outlasts_the_purge_of_one_behind_its_head(driver: Driver) -> None:
    await driver.push("first", "purged", "last")
    await driver.reject(*await driver.pop())
    first, *_ = await driver.pop("q.dead")
    await driver.purge(seqs=[2])
    await driver.nack(first)

    (result,) = await driver.ack(*await driver.pop("q.dead"))

    assert result.status is SettleStatus.COMPLETED
    assert payloads(await driver.pop("q.dead")) == ["last"]


@pytest.mark.parametrize("outcome", [Outcome.NACK, Outcome.REJECT])
async def test_I12_a_purged_message_of_an_unordered_queue_may_still_fail(driver: Driver, outcome: Outcome) -> None:
    await driver.create("grave", ordering=Ordering.UNORDERED)
    await driver.create(dead_letter_queue="grave")
    await driver.push("purged", "kept")
    await driver.reject(*await driver.pop())
    purged, kept = await driver.pop("grave")
    await driver.purge("grave", seqs=[purged.seq])

    await driver.settle(driver.settlement(purged, outcome, retry=Retry.NOW))
    await driver.ack(kept)

    assert await driver.pop("grave") == []
    stats = await driver.stats("grave")
    assert stats.completed == 1
    assert stats.dead + stats.expired == 1


async def test_a_fifo_queue_takes_dead_letters_and_replays_into_its_one_partition(driver: Driver) -> None:
    await driver.create("grave", ordering=Ordering.FIFO)
    await driver.create(dead_letter_queue="grave")
    await driver.push("a", partition="a")
    await driver.push("b", partition="b")
    await driver.reject(*await driver.pop())

    assert {delivery.partition for delivery in await driver.pop("grave")} == {DEFAULT_PARTITION}

    await driver.update(ordering=Ordering.FIFO)
    await driver.replay("grave")
    assert {delivery.partition for delivery in await driver.pop()} == {DEFAULT_PARTITION}


async def test_letters_of_a_deleted_queue_are_not_those_of_its_successor(driver: Driver) -> None:
    await driver.push("old")
    await driver.reject(await driver.pop_one())
    await driver.delete()
    await driver.push("new")
    await driver.ack(await driver.pop_one())

    page = await driver.browse(group=QUEUE_MODE_GROUP)

    assert [message.state for message in page.messages] == [MessageState.SETTLED]
