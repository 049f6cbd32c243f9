"""Dead letters that leave their queue: replayed to the one group in order, or purged; and its own groups' accounts."""

from __future__ import annotations

import pytest

from skep.errors import Code, SkepError
from skep.model import (
    DEFAULT_PARTITION,
    QUEUE_MODE_GROUP,
    Delivery,
    MessageState,
    Ordering,
    Outcome,
    Retry,
    Seq,
    SettleStatus,
    Start,
    StartMode,
)
from tests.contract.driver import Driver, attempts, payloads


async def bury(driver: Driver, *messages: str, partition: str = "p", group: str = "g", error: str = "bad") -> None:
    await driver.push(*messages, partition=partition)
    await driver.reject(*await driver.pop(group=group), error=error)


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


async def test_I14_a_replay_for_one_group_does_not_come_with_the_work_of_another(driver: Driver) -> None:
    await bury(driver, "a", group="g")
    assert await driver.pop(group="h", partition="elsewhere") == []  # which finds "a" on its way
    await driver.replay()

    (delivery,) = await driver.pop(group="h")

    assert delivery.seq == 1


async def test_I14_a_replay_for_one_group_is_passed_over_between_messages_of_another(driver: Driver) -> None:
    await bury(driver, "a", group="g")
    await driver.replay()
    await driver.push("c", partition="p")

    assert [delivery.seq for delivery in await driver.pop(group="h")] == [1, 3]


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


async def test_a_replay_bypasses_deduplication(driver: Driver) -> None:
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


async def test_I8_a_replay_for_a_group_that_is_gone_makes_it_at_the_beginning_like_its_first_pop(
    driver: Driver,
) -> None:
    await bury(driver, "a", group="g")
    await driver.delete_group(group="g")
    await driver.push("before", partition="p")

    await driver.replay()

    assert payloads(await driver.pop(group="g", batch=9)) == ["a", "before", "a"]


async def test_I8_a_replay_into_a_queue_made_anew_skips_nothing_for_the_group(driver: Driver) -> None:
    await driver.create(dead_letter_queue="graves")
    await bury(driver, "a", group="g")
    await driver.delete()
    await driver.create(dead_letter_queue="graves")
    await driver.push("before", partition="p")

    await driver.replay("graves")

    assert payloads(await driver.pop(group="g", batch=9)) == ["before", "a"]
    (group,) = (await driver.queue_stats()).groups
    assert (group.pushed, group.in_flight) == (2, 2)


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
    assert stats.retried == 2, "the lease ran out like any other"
    ((_, lease),) = await driver.store.lease_history(driver.key("q.dead"))
    assert (lease.outcome, lease.messages) == ("expired", 2)


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


async def test_a_dead_letter_in_a_fifo_queue_remembers_its_partition_and_goes_back_to_it(driver: Driver) -> None:
    await driver.create("grave", ordering=Ordering.FIFO)
    await driver.create(dead_letter_queue="grave")
    await driver.push("a", partition="a")
    await driver.push("b", partition="b")
    await driver.reject(*await driver.pop())

    assert [letter.partition for letter in await driver.dead("grave")] == ["a", "b"]
    assert [letter.partition for letter in await driver.dead("grave", partition="b")] == ["b"]
    await driver.pop("grave", batch=1, lease_seconds=1)
    await driver.replay("grave")
    assert [(d.payload, d.partition) for d in await driver.pop()] == [(b"a", "a"), (b"b", "b")]
    driver.clock.advance(1)
    assert await driver.pop("grave") == []
    assert (await driver.stats("grave")).expired == 2


async def test_letters_of_a_deleted_queue_are_not_those_of_its_successor(driver: Driver) -> None:
    await driver.push("old")
    await driver.reject(await driver.pop_one())
    await driver.delete()
    await driver.push("new")
    await driver.ack(await driver.pop_one())

    page = await driver.browse(group=QUEUE_MODE_GROUP)

    assert [message.state for message in page.messages] == [MessageState.SETTLED]


async def test_a_start_at_a_time_is_not_led_astray_by_what_was_purged(driver: Driver) -> None:
    await bury(driver, "a", "b", "c")
    await driver.purge(seqs=[Seq(2), Seq(3)])

    stats = await driver.seek(Start(StartMode.TIME, driver.now + 1), "q.dead", "g")
    assert (stats.pushed, stats.pending, stats.progress_seq) == (0, 0, 3)
    stats = await driver.seek(Start(StartMode.TIME, driver.now), "q.dead", "g")
    assert payloads(await driver.pop("q.dead", group="g")) == ["a"]


async def test_I12_a_letter_replayed_under_a_lease_expires_when_it_is_nacked(driver: Driver) -> None:
    await driver.push("a", "b", partition="p")
    await driver.settle(*(driver.settlement(d, Outcome.REJECT) for d in await driver.pop()))
    first, second = await driver.pop("q.dead")
    await driver.replay("q.dead")

    await driver.settle(driver.settlement(first), driver.settlement(second, Outcome.NACK, retry=Retry.NOW))

    nacked = await driver.stats("q.dead")
    assert (nacked.completed, nacked.pending, nacked.expired) == (1, 0, 1)
    assert await driver.pop("q.dead") == []
