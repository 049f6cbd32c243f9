"""Push: what is stored, duplicates, limits, and batches that are whole or not at all."""

from __future__ import annotations

import pytest

from skep.clock import Instant
from skep.errors import Code
from skep.model import DEFAULT_PARTITION, SEALED_TYPE, Ordering, PushStatus, Seq
from tests.contract.driver import Driver, ids, payloads, seqs


async def test_a_pushed_message_keeps_all_it_came_with(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    message = driver.message(
        b"\x00\xff raw",
        partition="p",
        transaction_id="t",
        trace_id=trace_id,
        headers=b'{"a":"b"}',
        content_type="application/octet-stream",
        priority=4,
    )
    batch = driver.batch(message)

    ((result,),) = [outcome.results for outcome in await driver.push_batches(batch)]

    assert result.status is PushStatus.STORED
    assert (result.id, result.seq) == (batch.ids[0], 1)
    assert (result.transaction_id, result.trace_id) == ("t", trace_id)
    (delivery,) = await driver.pop()
    assert delivery.payload == message.payload
    assert (delivery.id, delivery.seq, delivery.partition) == (batch.ids[0], 1, "p")
    assert (delivery.transaction_id, delivery.trace_id) == ("t", trace_id)
    assert (delivery.headers, delivery.content_type, delivery.priority) == (message.headers, message.content_type, 4)
    assert delivery.created_at == driver.now


async def test_a_message_without_a_partition_is_in_the_default_one(driver: Driver) -> None:
    await driver.push("a")

    assert [d.partition for d in await driver.pop(partition=DEFAULT_PARTITION)] == ["Default"]


async def test_a_message_without_a_trace_id_starts_a_trace_of_its_own(driver: Driver) -> None:
    (result,) = await driver.push("a")

    delivery = await driver.pop_one()

    assert result.trace_id == result.id == delivery.trace_id


async def test_a_push_makes_the_queue(driver: Driver) -> None:
    (result,) = await driver.push("a", queue="fresh")

    assert result.status is PushStatus.STORED
    assert await driver.store.get_queue(driver.key("fresh")) is not None


async def test_a_push_to_an_unknown_queue_is_refused_where_that_is_wanted(driver: Driver) -> None:
    await driver.create("known")

    outcome = await driver.push_messages(
        driver.message("a", "known"), driver.message("b", "unknown"), create_queues=False
    )

    assert [r.status for r in outcome.results] == [PushStatus.REFUSED, PushStatus.REFUSED]
    assert [r.code for r in outcome.results] == [Code.BATCH_REFUSED, Code.QUEUE_NOT_FOUND]
    assert outcome.refused
    assert await driver.store.get_queue(driver.key("unknown")) is None
    assert await driver.pop("known") == []


async def test_seqs_are_gapless_and_in_commit_order(driver: Driver) -> None:
    outcomes = await driver.push_batches(
        driver.batch(driver.message("a"), driver.message("b", partition="p")),
        driver.batch(driver.message("c")),
    )
    (fourth,) = await driver.push("d")

    assert [r.seq for outcome in outcomes for r in outcome.results] == [1, 2, 3]
    assert fourth.seq == 4


async def test_results_come_in_the_order_of_the_messages_over_many_queues(driver: Driver) -> None:
    outcome = await driver.push_messages(
        driver.message("1", "a"), driver.message("2", "b"), driver.message("3", "a"), driver.message("4", "b")
    )

    assert [r.seq for r in outcome.results] == [1, 1, 2, 2]
    assert payloads(await driver.pop("a")) == ["1", "3"]
    assert payloads(await driver.pop("b")) == ["2", "4"]


async def test_an_empty_batch_does_nothing(driver: Driver) -> None:
    outcome = await driver.push_messages()

    assert outcome.results == []
    assert await driver.store.list_queues(driver.tenant) == []


@pytest.mark.parametrize("behind", [500_000, 5_000_000])
async def test_created_at_never_falls_along_the_log(driver: Driver, behind: int) -> None:
    first = driver.now
    await driver.push("a")

    earlier = Instant(first - behind)
    await driver.store.push([driver.batch(driver.message("b"))], earlier)

    assert [d.created_at for d in await driver.pop()] == [first, first]


# duplicates


async def test_I3_a_repeated_transaction_id_gets_the_first_answer(driver: Driver) -> None:
    (first,) = await driver.push("a", transaction_id="t")

    (second,) = await driver.push("b", transaction_id="t")

    assert first.status is PushStatus.STORED
    assert second.status is PushStatus.DUPLICATE
    assert (second.id, second.seq) == (first.id, first.seq)
    assert payloads(await driver.pop()) == ["a"]


async def test_I3_a_duplicate_names_the_trace_of_the_first_message(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    (own,) = await driver.push("a", transaction_id="own")
    (given,) = await driver.push("a", transaction_id="given", trace_id=trace_id)

    (own_again,) = await driver.push("b", transaction_id="own")
    (given_again,) = await driver.push("b", transaction_id="given")
    within = await driver.push("c", "d", transaction_id="within")

    assert own_again.trace_id == own.id
    assert given_again.trace_id == given.trace_id == trace_id
    assert within[1].trace_id == within[0].trace_id == within[0].id


async def test_I3_a_duplicate_of_a_scheduled_message_names_its_trace(driver: Driver) -> None:
    trace_id = driver.mint.mint()
    later = Instant(driver.now + 60_000_000)
    (own,) = await driver.push("a", transaction_id="own", deliver_at=later)
    await driver.push("a", transaction_id="given", trace_id=trace_id, deliver_at=later)

    (own_again,) = await driver.push("b", transaction_id="own", deliver_at=later)
    (given_again,) = await driver.push("b", transaction_id="given")

    assert (own_again.status, own_again.trace_id) == (PushStatus.DUPLICATE, own.id)
    assert (given_again.status, given_again.trace_id) == (PushStatus.DUPLICATE, trace_id)


async def test_I3_duplicates_within_one_batch_are_found(driver: Driver) -> None:
    results = await driver.push("a", "b", transaction_id="t")

    assert [r.status for r in results] == [PushStatus.STORED, PushStatus.DUPLICATE]
    assert results[0].id == results[1].id
    assert results[0].seq == results[1].seq == 1
    assert payloads(await driver.pop()) == ["a"]


async def test_I3_duplicates_across_the_batches_of_one_call_are_found(driver: Driver) -> None:
    first, second = await driver.push_batches(
        driver.batch(driver.message("a", transaction_id="t")), driver.batch(driver.message("b", transaction_id="t"))
    )

    assert second.results[0].status is PushStatus.DUPLICATE
    assert ids(first.results) == ids(second.results)


async def test_I3_a_transaction_id_counts_per_queue_and_partition(driver: Driver) -> None:
    outcome = await driver.push_messages(
        driver.message("a", "q", partition="1", transaction_id="t"),
        driver.message("b", "q", partition="2", transaction_id="t"),
        driver.message("c", "r", partition="1", transaction_id="t"),
    )

    (elsewhere,) = await driver.push("d", partition="3", transaction_id="t")
    assert [r.status for r in (*outcome.results, elsewhere)] == [PushStatus.STORED] * 4


async def test_I3_the_key_outlives_its_message_and_ends_with_its_window(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=60)
    (first,) = await driver.push("a", transaction_id="t")
    await driver.ack(await driver.pop_one())

    driver.clock.advance(59)
    (within,) = await driver.push("b", transaction_id="t")
    driver.clock.advance(1)
    (after,) = await driver.push("c", transaction_id="t")
    (again,) = await driver.push("d", transaction_id="t")

    assert within.status is PushStatus.DUPLICATE
    assert after.status is PushStatus.STORED
    assert after.id != first.id
    assert (again.status, again.id, again.seq) == (PushStatus.DUPLICATE, after.id, after.seq)


async def test_I3_the_same_batch_tried_again_is_stored_once(driver: Driver) -> None:
    batch = driver.batch(driver.message("a", transaction_id="1"), driver.message("b", transaction_id="2"))
    (first,) = await driver.push_batches(batch)

    (second,) = await driver.push_batches(batch)

    assert [r.status for r in second.results] == [PushStatus.DUPLICATE] * 2
    assert ids(second.results) == ids(first.results)
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_I3_transaction_ids_differ_by_every_character(driver: Driver) -> None:
    names = ["t", "T", "t ", "ť", "t" * 255]

    outcome = await driver.push_messages(*(driver.message(name, transaction_id=name) for name in names))

    assert [r.status for r in outcome.results] == [PushStatus.STORED] * len(names)


async def test_messages_without_a_transaction_id_are_never_duplicates(driver: Driver) -> None:
    results = await driver.push("same", "same")

    assert [r.status for r in results] == [PushStatus.STORED] * 2


# depth


async def test_depth_and_what_remains_come_back(driver: Driver) -> None:
    await driver.create(max_depth=5)

    outcome = await driver.push_messages(driver.message("a"), driver.message("b"), driver.message("c", "free"))

    assert (outcome.depths[driver.key()].depth, outcome.depths[driver.key()].remaining) == (2, 3)
    assert (outcome.depths[driver.key("free")].depth, outcome.depths[driver.key("free")].remaining) == (1, None)


async def test_I15_a_batch_over_the_limit_is_refused_whole(driver: Driver) -> None:
    await driver.create(max_depth=3)
    await driver.push("a", "b")

    outcome = await driver.push_messages(driver.message("c"), driver.message("other", "r"), driver.message("d"))

    assert [r.code for r in outcome.results] == [Code.QUEUE_FULL, Code.BATCH_REFUSED, Code.QUEUE_FULL]
    assert outcome.refused
    assert payloads(await driver.pop()) == ["a", "b"]
    (result,) = await driver.push("fits", queue="r")
    assert result.seq == 1


async def test_I15_a_refused_batch_leaves_no_trace_of_its_transaction_ids(driver: Driver) -> None:
    await driver.create(max_depth=1)
    outcome = await driver.push_messages(
        driver.message("x", transaction_id="t1"), driver.message("y", transaction_id="t2")
    )
    assert outcome.refused

    (result,) = await driver.push("x", transaction_id="t1")

    assert result.status is PushStatus.STORED


async def test_a_refused_batch_does_not_hinder_the_others_of_the_call(driver: Driver) -> None:
    await driver.create(max_depth=2)

    first, second, third = await driver.push_batches(
        driver.batch(driver.message("a")),
        driver.batch(driver.message("b"), driver.message("c")),
        driver.batch(driver.message("d")),
    )

    assert not first.refused
    assert second.refused
    assert not third.refused
    assert [r.seq for r in third.results] == [2]
    assert payloads(await driver.pop()) == ["a", "d"]


async def test_a_push_up_to_the_limit_fits_and_duplicates_take_no_room(driver: Driver) -> None:
    await driver.create(max_depth=2)

    results = await driver.push("a", transaction_id="t") + await driver.push("b")
    (duplicate,) = await driver.push("a", transaction_id="t")
    (full,) = await driver.push("c")

    assert [r.status for r in results] == [PushStatus.STORED] * 2
    assert duplicate.status is PushStatus.DUPLICATE
    assert full.code is Code.QUEUE_FULL


async def test_a_queue_with_everything_done_is_empty_not_full(driver: Driver) -> None:
    await driver.create(max_depth=2)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop())

    results = await driver.push("c", "d")

    assert [r.status for r in results] == [PushStatus.STORED] * 2


async def test_a_batch_is_stored_once_and_not_in_every_partition(driver: Driver) -> None:
    await driver.push("a", partition="p1")
    await driver.push("b", partition="p2")

    await driver.push("c", "d")

    assert sorted(payloads(await driver.pop())) == ["a", "b", "c", "d"]


async def test_depth_is_that_of_the_slowest_group(driver: Driver) -> None:
    await driver.create(max_depth=3)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop(group="fast"))
    await driver.pop(group="slow", batch=1)

    outcome = await driver.push_messages(driver.message("c"), driver.message("d"))

    assert [r.code for r in outcome.results] == [Code.QUEUE_FULL] * 2
    assert (await driver.queue_stats()).depth == 2


async def test_a_fifo_queue_is_one_partition(driver: Driver) -> None:
    await driver.create(ordering=Ordering.FIFO)
    await driver.push_messages(*(driver.message(str(n), partition=f"p{n % 3}") for n in range(6)))

    first = await driver.pop(batch=2)
    assert payloads(first) == ["0", "1"]
    assert {d.partition for d in first} == {DEFAULT_PARTITION}
    assert await driver.pop() == []

    await driver.ack(*first)
    assert seqs(await driver.pop()) == [3, 4, 5, 6]


async def test_I15_a_large_push_is_stored_whole_though_it_is_written_in_pieces(driver: Driver) -> None:
    sizes = [3_000_000, 10, 2_500_000, *[100_000] * 20, 1]
    texts = [f'"{"x" * size}"' for size in sizes]
    results = await driver.push(*texts)
    assert [result.seq for result in results] == list(range(1, len(sizes) + 1))
    stored = [await driver.store.message(driver.key(), Seq(seq)) for seq in range(1, len(sizes) + 1)]
    assert [found.payload.decode() for found in stored if found is not None] == texts


async def test_I15_a_large_push_that_is_refused_leaves_nothing(driver: Driver) -> None:
    await driver.create(max_depth=150)
    results = await driver.push(*[f'"{"x" * 100_000}"'] * 151)
    assert {result.status for result in results} == {PushStatus.REFUSED}
    assert (await driver.browse()).messages == []


async def test_an_encrypted_queue_takes_no_plain_push(driver: Driver) -> None:
    await driver.create(encryption_enabled=True)

    (plain,) = await driver.push("a")
    (sealed,) = await driver.push("b", content_type=SEALED_TYPE)

    assert (plain.status, plain.code, sealed.status) == (PushStatus.REFUSED, Code.NOT_ENCRYPTED, PushStatus.STORED)


async def test_a_plain_push_to_a_full_encrypted_queue_is_told_to_encrypt(driver: Driver) -> None:
    """Told that the queue is full, its server would wait, and never encrypt it."""
    await driver.create(max_depth=1)
    await driver.push("a")
    await driver.update(encryption_enabled=True)

    (plain,) = await driver.push("b")
    (sealed,) = await driver.push("c", content_type=SEALED_TYPE)

    assert (plain.status, plain.code) == (PushStatus.REFUSED, Code.NOT_ENCRYPTED)
    assert (sealed.status, sealed.code) == (PushStatus.REFUSED, Code.QUEUE_FULL)


async def test_a_transaction_id_counts_in_the_whole_queue_where_the_setting_says_so(driver: Driver) -> None:
    await driver.create(dedup_across_partitions=True)
    (first,) = await driver.push("1", transaction_id="t", partition="a")
    (again,) = await driver.push("2", transaction_id="t", partition="b")
    assert (again.status, again.id, again.seq) == (PushStatus.DUPLICATE, first.id, first.seq)
    both = await driver.push_messages(
        driver.message("3", transaction_id="u", partition="a"), driver.message("4", transaction_id="u", partition="b")
    )
    assert [result.status for result in both.results] == [PushStatus.STORED, PushStatus.DUPLICATE]
    await driver.update(dedup_across_partitions=False)
    assert [one.status for one in await driver.push("5", transaction_id="t", partition="b")] == [PushStatus.STORED]


async def test_a_scheduled_message_takes_its_transaction_id_in_the_whole_queue(driver: Driver) -> None:
    await driver.create(dedup_across_partitions=True)
    (first,) = await driver.push("1", transaction_id="t", partition="a", deliver_at=driver.now + 10_000_000)
    driver.clock.advance(11)
    await driver.promote()
    (again,) = await driver.push("2", transaction_id="t", partition="b")
    assert (again.status, again.id, again.seq) == (PushStatus.DUPLICATE, first.id, 1)
