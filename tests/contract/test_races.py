"""Calls that are under way at the same time: whatever their order, they share nothing and miss nothing."""

from __future__ import annotations

import asyncio
from collections import Counter

from skep.errors import Code
from skep.model import Ordering, PushStatus, SettleStatus
from tests.contract.driver import Driver

MANY = 24


async def test_I3_the_same_transaction_id_at_once_is_stored_once(driver: Driver) -> None:
    results = await asyncio.gather(*(driver.push("x", transaction_id="t") for _ in range(MANY)))

    statuses = Counter(result.status for (result,) in results)
    assert statuses == {PushStatus.STORED: 1, PushStatus.DUPLICATE: MANY - 1}
    assert len({(result.id, result.seq) for (result,) in results}) == 1
    assert len(await driver.pop()) == 1


async def test_the_depth_is_exact_when_many_push_at_once(driver: Driver) -> None:
    await driver.create(max_depth=10)

    results = await asyncio.gather(*(driver.push("x", "y", "z") for _ in range(MANY)))

    stored = [batch for batch in results if batch[0].status is PushStatus.STORED]
    refused = [batch for batch in results if batch[0].status is PushStatus.REFUSED]
    assert (len(stored), len(refused)) == (3, MANY - 3)
    assert {result.code for batch in refused for result in batch} == {Code.QUEUE_FULL}
    assert (await driver.queue_stats()).depth == 9


async def test_I4_seqs_are_gapless_when_many_push_at_once(driver: Driver) -> None:
    results = await asyncio.gather(*(driver.push("x", "y", partition=f"p{n % 3}") for n in range(MANY)))

    pairs = [(batch[0].seq or 0, batch[1].seq or 0) for batch in results]
    assert all(second == first + 1 for first, second in pairs)
    assert sorted(seq for pair in pairs for seq in pair) == list(range(1, 2 * MANY + 1))


async def test_the_first_pushes_at_once_make_the_queue_once(driver: Driver) -> None:
    await asyncio.gather(*(driver.push("x", queue="fresh") for _ in range(MANY)))

    assert (await driver.queue_stats("fresh")).last_seq == MANY
    assert [queue.key.name for queue in await driver.store.list_queues(driver.tenant)] == ["fresh"]


async def test_I5_no_two_pops_at_once_share_a_partition(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(str(n), partition=f"p{n % 10}") for n in range(100)))

    results = await asyncio.gather(*(driver.pop(batch=7) for _ in range(MANY)))

    owners = {(d.partition, d.token) for deliveries in results for d in deliveries}
    assert len({partition for partition, _ in owners}) == len(owners)


async def test_I5_no_two_pops_at_once_share_a_message_of_an_unordered_queue(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push(*map(str, range(100)))

    results = await asyncio.gather(*(driver.pop(batch=7) for _ in range(MANY)))
    results.append(await driver.pop())

    assert Counter(d.seq for deliveries in results for d in deliveries) == dict.fromkeys(range(1, 101), 1)


async def test_I6_of_many_acks_at_once_one_counts(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()

    results = await asyncio.gather(*(driver.ack(delivery) for _ in range(MANY)))

    assert Counter((result.status, result.repeated) for (result,) in results) == {
        (SettleStatus.COMPLETED, False): 1,
        (SettleStatus.COMPLETED, True): MANY - 1,
    }
    assert (await driver.stats()).completed == 1


async def test_I11_of_an_ack_and_a_reject_at_once_one_counts(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(str(n), partition=f"p{n}") for n in range(MANY)))
    deliveries = await driver.pop()

    await asyncio.gather(*(verb(d) for d in deliveries for verb in (driver.ack, driver.reject)))

    stats = await driver.stats()
    assert stats.completed + stats.dead == MANY
    assert len(await driver.dead()) == stats.dead


async def test_I15_of_two_transactions_at_once_with_the_same_ack_one_commits(driver: Driver) -> None:
    await driver.push("a")
    settlement = driver.settlement(await driver.pop_one())

    outcomes = await asyncio.gather(*(driver.transact([settlement], [driver.message(n, "next")]) for n in "12345678"))

    assert Counter(outcome.committed for outcome in outcomes) == {True: 1, False: 7}
    assert (await driver.queue_stats("next")).last_seq == 1


async def test_I15_of_one_transaction_that_comes_often_at_once_the_others_are_repeats(driver: Driver) -> None:
    await driver.push("a")
    settlement = driver.settlement(await driver.pop_one())

    outcomes = await asyncio.gather(*(driver.transact([settlement], [driver.message("out", "next")]) for _ in range(8)))

    assert Counter((outcome.committed, outcome.repeated) for outcome in outcomes) == {(True, False): 1, (True, True): 7}
    assert len({outcome.pushed.results[0].id for outcome in outcomes}) == 1
    assert (await driver.queue_stats("next")).last_seq == 1


async def test_replaying_and_purging_at_once_moves_each_letter_once(driver: Driver) -> None:
    await driver.push(*map(str, range(20)))
    await driver.reject(*await driver.pop())

    replayed = await asyncio.gather(*(driver.replay(limit=5) for _ in range(3)))
    purged = await driver.purge()

    moved = [r.dead_seq for part in replayed for r in part]
    assert len(moved) == len(set(moved))
    assert len(moved) + purged == 20
    assert len(await driver.pop()) == len(moved)
