"""What a store is given is checked at the edge; what slips through must still be refused whole, or do no harm."""

from __future__ import annotations

import pytest

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import (
    DeadLetterFilter,
    MessageFilter,
    Outcome,
    PopRequest,
    PushBatch,
    PushStatus,
    QueueKey,
    QueueSettings,
    Renewal,
    Retry,
    Seq,
    Settlement,
    Start,
    StartMode,
    Token,
)
from skep.store.protocol import Store
from tests.contract.driver import Driver, payloads

MEBIBYTE = 1024 * 1024


async def test_a_batch_of_nothing_gives_nothing(driver: Driver) -> None:
    await driver.push("a")

    assert await driver.pop(batch=0) == []
    assert payloads(await driver.pop()) == ["a"]


async def test_empty_calls_answer_nothing(driver: Driver) -> None:
    assert await driver.store.push([], driver.now) == []
    assert await driver.store.pop([], driver.now) == []
    assert await driver.store.settle([], driver.now) == []
    assert await driver.store.renew([], driver.now) == []
    assert await driver.store.transact([], driver.now) == []


@pytest.mark.parametrize("token", [b"\x00" * 16, b"x" * 16, b"\xff" * 16])
async def test_I6_any_wrong_token_is_a_stale_lease(driver: Driver, token: bytes) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()

    (result,) = await driver.ack(delivery, token=Token(token))

    assert result.code is Code.STALE_LEASE
    assert (await driver.renew(delivery, token=Token(token))).code is Code.STALE_LEASE
    assert (await driver.stats()).in_flight == 1


@pytest.mark.parametrize("seq", [0, -1, 2**62, 2**70, -(2**70)])
async def test_a_seq_that_cannot_be_is_not_in_the_lease(driver: Driver, seq: int) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()
    known = driver.settlement(delivery)
    strange = Settlement(queue=known.queue, partition=known.partition, seq=Seq(seq), token=known.token)

    (result,) = await driver.settle(strange)

    assert result.code is Code.NOT_IN_LEASE
    assert await driver.store.message(driver.key(), Seq(seq)) is None


async def test_an_unknown_lease_is_a_stale_one(driver: Driver) -> None:
    await driver.create()
    token = driver.token()
    one = Settlement(queue=driver.key(), partition="p", seq=Seq(1), token=token)
    renewal = Renewal(queue=driver.key(), partition="p", token=token, lease_seconds=1)

    assert [r.code for r in await driver.settle(one)] == [Code.STALE_LEASE]
    assert [r.code for r in await driver.store.renew([renewal], driver.now)] == [Code.STALE_LEASE]


async def test_a_large_payload_comes_back_as_it_was(driver: Driver) -> None:
    payload = bytes(range(256)) * (8 * MEBIBYTE // 256)

    await driver.push_messages(driver.message(payload), driver.message(b""))

    assert [d.payload for d in await driver.pop()] == [payload, b""]


@pytest.mark.parametrize("text", ["🐝" * 100, "ß" * 255, "'\"\\;--", "a\tb", "%_", "NULL"])
async def test_strange_names_stay_what_they_are(driver: Driver, text: str) -> None:
    await driver.push("a", queue=text, partition=text, transaction_id=text)

    (delivery,) = await driver.pop(text, group=text, partition=text)
    (duplicate,) = await driver.push("b", queue=text, partition=text, transaction_id=text)
    await driver.reject(delivery, error=text)

    assert (delivery.queue.name, delivery.partition, delivery.group) == (text, text, text)
    assert duplicate.status is PushStatus.DUPLICATE
    (letter,) = await driver.dead(text + ".dead", error_contains=text)
    assert (letter.source_queue, letter.partition, letter.group, letter.error) == (text, text, text, text)


async def test_I15_a_nul_byte_is_stored_or_refused_whole(driver: Driver) -> None:
    batch = PushBatch([driver.message("before"), driver.message("nul", partition="a\x00b")], driver.mint.mint_many(2))

    try:
        await driver.push_batches(batch)
        stored = ["before", "nul"]
    except SkepError:
        await driver.create()
        stored = []

    assert sorted(payloads(await driver.pop())) == stored


async def test_a_pop_for_an_unknown_queue_among_others_hands_out_nothing(driver: Driver) -> None:
    await driver.push("a")
    requests = [driver.request("q"), driver.request("nowhere")]

    with pytest.raises(SkepError) as caught:
        await driver.store.pop(requests, driver.now)

    assert caught.value.code is Code.QUEUE_NOT_FOUND
    assert payloads(await driver.pop()) == ["a"]
    assert (await driver.stats()).retried == 0


@pytest.mark.parametrize("start", [Start(StartMode.SEQ, -5), Start(StartMode.TIME, -5)])
async def test_a_start_before_everything_is_the_beginning(driver: Driver, start: Start) -> None:
    await driver.push("a")

    assert payloads(await driver.pop(group="g", start=start)) == ["a"]


async def test_a_retry_in_the_past_is_a_retry_now(driver: Driver) -> None:
    await driver.push("a")
    past = type(driver.now)(driver.now - 1_000_000)

    (result,) = await driver.settle(
        driver.settlement(await driver.pop_one(), Outcome.NACK, retry=Retry.AT, retry_at=past)
    )

    assert result.retry_at == driver.now
    assert payloads(await driver.pop()) == ["a"]


async def test_a_limit_of_nothing_finds_nothing(driver: Driver) -> None:
    await driver.push("a")
    await driver.reject(await driver.pop_one())

    assert await driver.store.list_queues(driver.tenant, limit=0) == []
    assert await driver.store.dead_letters(driver.dead_filter(), None, 0) == []
    assert await driver.purge(limit=0) == 0
    assert (await driver.store.replay(driver.dead_filter(), [], Seq(99), driver.now)).replayed == []
    assert len(await driver.dead()) == 1


async def test_filters_for_nothing_find_nothing(driver: Driver) -> None:
    await driver.push("a")
    await driver.reject(await driver.pop_one())

    nobody = driver.mint.mint()
    assert (await driver.browse(trace_id=nobody)).messages == []
    assert (await driver.browse(partition="nowhere")).messages == []
    assert await driver.dead(seqs=[]) == []
    assert await driver.dead(ids=[nobody]) == []


@pytest.mark.parametrize("seq", [2**62, 2**70])
async def test_a_page_after_the_end_of_all_logs_is_empty(driver: Driver, seq: int) -> None:
    await driver.push("a")
    await driver.reject(await driver.pop_one())

    assert (await driver.browse(after=Seq(seq))).messages == []
    assert (await driver.browse(after=Seq(-seq), descending=True)).messages == []
    assert await driver.store.dead_letters(driver.dead_filter(), Seq(seq), 10) == []
    assert await driver.dead(seqs=[Seq(seq)]) == []


async def test_a_message_of_an_unknown_queue_is_told_from_an_unknown_message(driver: Driver) -> None:
    with pytest.raises(SkepError) as caught:
        await driver.store.message(driver.key("nowhere"), Seq(1))

    assert caught.value.code is Code.QUEUE_NOT_FOUND


@pytest.mark.parametrize("verb", ["dead_letters", "count", "replay", "purge"])
async def test_a_queue_without_dead_letters_is_no_dead_letter_queue(driver: Driver, verb: str) -> None:
    await driver.push("a")
    wanted = DeadLetterFilter(queue=driver.key())
    calls = {
        "dead_letters": driver.store.dead_letters(wanted, None, 10),
        "count": driver.store.count_dead_letters(wanted),
        "replay": driver.store.replay(wanted, driver.mint.mint_many(1), Seq(10), driver.now),
        "purge": driver.store.purge(wanted, 10, driver.now),
    }
    chosen = calls.pop(verb)
    for other in calls.values():
        other.close()

    with pytest.raises(SkepError) as caught:
        await chosen

    assert caught.value.code is Code.NOT_A_DEAD_LETTER_QUEUE
    assert payloads(await driver.pop()) == ["a"]


async def test_a_store_that_cannot_do_it_says_so(own_store: Store, clock: ManualClock) -> None:
    store, driver = own_store, Driver(own_store, clock, "closed")
    await driver.push("a")
    await store.close()

    for call in (
        store.pop([PopRequest(queue=driver.key(), token=driver.token())], driver.now),
        store.get_queue(driver.key()),
        store.messages(MessageFilter(queue=driver.key()), driver.now),
        store.create_queue(QueueKey("new", driver.tenant), QueueSettings(), driver.now),
    ):
        with pytest.raises(SkepError) as caught:
            await call
        assert caught.value.code in (Code.STORE_UNAVAILABLE, Code.STOPPING)
