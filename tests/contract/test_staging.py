"""Staged messages: invisible, then all of an epoch at once and once, whatever is repeated."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from skep.arrow.staged import plain_chunk, rich_chunk
from skep.errors import Code, SkepError
from skep.model import DEFAULT_PARTITION, NewMessage, Ordering, PushStatus
from skep.model.staging import Attempt, EpochKey, PublishedAnswer, StagedChunk
from tests.contract.driver import Driver, payloads

DAY = 86_400.0


class Stage:
    """One epoch of one query, staged and published by short verbs."""

    def __init__(self, driver: Driver, epoch: int = 7, query: str = "query") -> None:
        self.driver = driver
        self.epoch = EpochKey(query, epoch, driver.tenant)

    async def put(self, partition: int, attempt: int, number: int, messages: int, data: bytes, *queues: str) -> None:
        chunk = StagedChunk(
            epoch=self.epoch, partition=partition, attempt=attempt, number=number, messages=messages,
            queues=list(queues), data=data, expires_at=self.driver.later(DAY),
        )  # fmt: skip
        await self.driver.store.stage(chunk, self.driver.now)

    async def plain(self, *texts: str, partition: int = 0, attempt: int = 0, number: int = 0, queue: str = "q") -> None:
        """Columns of one queue; each message goes to the partition it is the text of."""
        column = pa.array([text.encode() for text in texts], pa.large_binary())
        await self.put(partition, attempt, number, len(texts), plain_chunk(queue, column, column), queue)

    async def rich(
        self, *messages: NewMessage, partition: int = 0, attempt: int = 0, number: int = 0, audience: str | None = None
    ) -> None:
        names = dict.fromkeys(message.queue.name for message in messages)
        await self.put(partition, attempt, number, len(messages), rich_chunk(messages, audience), *names)

    async def publish(self, *attempts: tuple[int, int, int], create_queues: bool = True) -> PublishedAnswer:
        """Publish (partition, attempt, messages) each."""
        total = sum(messages for _, _, messages in attempts)
        published = await self.driver.store.publish(
            self.epoch, [Attempt(*one) for one in attempts], self.driver.mint.mint_range(max(total, 1)),
            self.driver.later(30 * DAY), self.driver.now, create_queues,
        )  # fmt: skip
        await self.driver.check_accounts()
        return msgspec.json.decode(published.answer, type=PublishedAnswer)

    async def refusal(self, *attempts: tuple[int, int, int], **options: Any) -> Code:
        with pytest.raises(SkepError) as refused:
            await self.publish(*attempts, **options)
        return refused.value.code

    async def staged(self) -> list[tuple[int, int, int, int]]:
        found = await self.driver.store.staged(self.epoch)
        return [(attempt.partition, attempt.attempt, attempt.messages, chunks) for attempt, chunks in found]


@pytest.fixture
def stage(driver: Driver) -> Stage:
    return Stage(driver)


async def log(driver: Driver, queue: str = "q") -> list[str]:
    """The payloads of a queue in their order; none when there is no queue."""
    if await driver.store.get_queue(driver.key(queue)) is None:
        return []
    return [message.payload.decode() for message in (await driver.browse(queue)).messages]


async def test_what_is_staged_is_in_no_log(driver: Driver, stage: Stage) -> None:
    await driver.create()
    await stage.plain("1", "2")
    await stage.rich(driver.message("3"), partition=1)

    assert await driver.pop() == []
    assert (await driver.queue_stats()).last_seq == 0
    assert await stage.staged() == [(0, 0, 2, 1), (1, 0, 1, 1)]


async def test_I4_an_epoch_enters_the_log_in_the_order_of_partition_chunk_and_place(
    driver: Driver, stage: Stage
) -> None:
    await driver.push("0")
    await stage.plain("5", "6", partition=2)
    await stage.plain("3", "4", partition=1, number=1)
    await stage.rich(driver.message("1"), driver.message("2"), partition=1, number=0)

    answer = await stage.publish((2, 0, 2), (1, 0, 4))

    assert await log(driver) == ["0", "1", "2", "3", "4", "5", "6"]
    assert (answer.messages, answer.queues["q"].first_seq, answer.queues["q"].last_seq) == (6, 2, 7)
    assert sorted(payloads(await driver.pop())) == ["0", "1", "2", "3", "4", "5", "6"]
    assert await stage.staged() == []


async def test_I15_an_epoch_is_published_once(driver: Driver, stage: Stage) -> None:
    await stage.plain("1", "2")
    first = await stage.publish((0, 0, 2))

    again = await stage.publish((0, 0, 2))
    other = await stage.publish((0, 9, 99))

    assert again == other == first
    assert await log(driver) == ["1", "2"]


async def test_only_the_attempts_that_are_named_are_published(driver: Driver, stage: Stage) -> None:
    await stage.plain("lost", attempt=0)
    await stage.plain("kept", attempt=1)
    await stage.plain("lost", partition=5)

    await stage.publish((0, 1, 1))

    assert await log(driver) == ["kept"]
    assert await stage.staged() == []


async def test_epochs_queries_and_tenants_do_not_touch_each_other(driver: Driver, stage: Stage) -> None:
    later, other = Stage(driver, epoch=8), Stage(driver, query="other")
    for one, text in ((stage, "a"), (later, "b"), (other, "c")):
        await one.plain(text)

    await stage.publish((0, 0, 1))
    assert (await later.staged(), await other.staged()) == ([(0, 0, 1, 1)], [(0, 0, 1, 1)])
    await other.publish((0, 0, 1))
    await later.publish((0, 0, 1))

    assert await log(driver) == ["a", "c", "b"]


async def test_a_chunk_that_is_sent_again_takes_the_place_of_the_first(driver: Driver, stage: Stage) -> None:
    await stage.plain("1", "2")
    await stage.plain("1", "2")

    await stage.publish((0, 0, 2))

    assert await log(driver) == ["1", "2"]


async def test_nothing_more_is_staged_for_a_published_epoch(driver: Driver, stage: Stage) -> None:
    await stage.publish()

    with pytest.raises(SkepError) as refused:
        await stage.plain("late")

    assert refused.value.code is Code.EPOCH_PUBLISHED


async def test_what_is_not_there_in_full_is_not_published(driver: Driver, stage: Stage) -> None:
    await stage.plain("1", "2")

    assert await stage.refusal((0, 0, 3)) is Code.STAGING_INCOMPLETE
    assert await stage.refusal((0, 1, 2)) is Code.STAGING_INCOMPLETE
    assert await stage.refusal((0, 0, 2), (1, 0, 1)) is Code.STAGING_INCOMPLETE
    assert await log(driver) == []
    await stage.publish((0, 0, 2), (1, 0, 0))
    assert await log(driver) == ["1", "2"]


async def test_what_is_aborted_is_gone(driver: Driver, stage: Stage) -> None:
    await stage.plain("1", attempt=0)
    await stage.plain("1", attempt=1)
    await stage.plain("2", partition=1)

    assert await driver.store.abort(stage.epoch, 0, 0) == 1
    assert await stage.staged() == [(0, 1, 1, 1), (1, 0, 1, 1)]
    assert await driver.store.abort(stage.epoch) == 2
    assert await stage.staged() == []
    assert await stage.refusal((0, 1, 1)) is Code.STAGING_INCOMPLETE


async def test_an_abort_does_not_undo_what_is_published(driver: Driver, stage: Stage) -> None:
    await stage.plain("1")
    first = await stage.publish((0, 0, 1))

    await driver.store.abort(stage.epoch)

    assert await stage.publish((0, 0, 1)) == first
    assert await log(driver) == ["1"]


async def test_what_nobody_published_is_reaped(driver: Driver, stage: Stage) -> None:
    await stage.plain("1")
    driver.clock.advance(DAY - 1)
    await driver.store.sweep(driver.now, 100_000)
    assert await stage.staged() == [(0, 0, 1, 1)]

    driver.clock.advance(1)
    await driver.store.sweep(driver.now, 100_000)

    assert await stage.staged() == []
    assert await stage.refusal((0, 0, 1)) is Code.STAGING_INCOMPLETE


async def test_I3_deduplication_holds_across_chunks_and_pushes(driver: Driver, stage: Stage) -> None:
    await driver.push("pushed", transaction_id="t1")
    await stage.rich(driver.message("a", transaction_id="t1"), driver.message("b", transaction_id="t2"))
    await stage.rich(driver.message("c", transaction_id="t2"), driver.message("d"), number=1)

    answer = await stage.publish((0, 0, 4))

    assert await log(driver) == ["pushed", "b", "d"]
    assert (answer.messages, answer.duplicates) == (2, 2)
    (again,) = await driver.push("e", transaction_id="t2")
    assert (again.status.value, again.seq) == ("duplicate", 2)


async def test_every_field_arrives(driver: Driver, stage: Stage) -> None:
    trace = driver.mint.mint()
    message = driver.message(
        b"\x00\xff", partition="é", transaction_id="t", trace_id=trace, headers=b'{"a":"b"}',
        content_type="application/octet-stream", priority=3,
    )  # fmt: skip
    await stage.rich(message, driver.message("later", deliver_at=driver.later(60)))

    answer = await stage.publish((0, 0, 2))

    (found,) = (await driver.browse()).messages
    assert (found.payload, found.partition, found.transaction_id, found.trace_id) == (b"\x00\xff", "é", "t", trace)
    assert (found.headers, found.content_type, found.priority) == (b'{"a":"b"}', "application/octet-stream", 3)
    assert (answer.messages, answer.scheduled, (await driver.queue_stats()).scheduled) == (1, 1, 1)


async def test_an_epoch_may_be_for_several_queues(driver: Driver, stage: Stage) -> None:
    await stage.rich(driver.message("1", "b"), driver.message("2", "a"), driver.message("3", "b"))
    await stage.plain("4", number=1, queue="c")

    answer = await stage.publish((0, 0, 4))

    assert [await log(driver, queue) for queue in "abc"] == [["2"], ["1", "3"], ["4"]]
    assert {name: queue.messages for name, queue in answer.queues.items()} == {"a": 1, "b": 2, "c": 1}


async def test_a_fifo_queue_keeps_one_partition(driver: Driver, stage: Stage) -> None:
    await driver.create(ordering=Ordering.FIFO)
    await stage.plain("1")
    await stage.rich(driver.message("2", partition="p"), number=1)

    await stage.publish((0, 0, 2))

    assert {message.partition for message in (await driver.browse()).messages} == {DEFAULT_PARTITION}


@pytest.mark.parametrize("last", ["plain", "rich"])
async def test_I15_a_queue_that_gets_full_takes_nothing_of_the_epoch(driver: Driver, stage: Stage, last: str) -> None:
    await driver.create(max_depth=3)
    await stage.plain("1", "2", queue="other")
    await stage.plain("1", "2", number=1)
    if last == "plain":
        await stage.plain("3", "4", partition=1)
    else:
        await stage.rich(driver.message("3"), driver.message("4"), partition=1)

    assert await stage.refusal((0, 0, 4), (1, 0, 2)) is Code.QUEUE_FULL
    assert (await log(driver), await log(driver, "other")) == ([], [])
    assert len(await stage.staged()) == 2

    await driver.update(max_depth=10)
    await stage.publish((0, 0, 4), (1, 0, 2))
    assert await log(driver) == ["1", "2", "3", "4"]


async def test_a_queue_is_made_unless_told_not_to(driver: Driver, stage: Stage) -> None:
    await stage.plain("1")

    assert await stage.refusal((0, 0, 1), create_queues=False) is Code.QUEUE_NOT_FOUND
    await stage.publish((0, 0, 1))
    assert await log(driver) == ["1"]


async def test_after_its_receipt_ran_out_an_epoch_is_unknown(driver: Driver, stage: Stage) -> None:
    await stage.publish()
    driver.clock.advance(31 * DAY)

    await stage.plain("1")

    assert await stage.staged() == [(0, 0, 1, 1)]


async def test_I14_what_is_staged_for_a_group_comes_once_more_to_that_group_alone(driver: Driver, stage: Stage) -> None:
    await driver.create()
    await driver.push_messages(driver.message("1", transaction_id="t-1"), driver.message("2"))
    for group in ("billing", "audit"):
        await driver.ack(*await driver.pop(group=group))
    await stage.rich(driver.message("1", transaction_id="t-1"), driver.message("2"), audience="billing")

    answer = await stage.publish((0, 0, 2))

    assert (answer.messages, answer.duplicates, answer.queues["q"].first_seq) == (2, 0, 3)
    assert await driver.pop(group="audit") == []
    again = await driver.pop(group="billing")
    assert [(one.payload, one.transaction_id) for one in again] == [(b"1", "t-1"), (b"2", None)]
    await driver.ack(*again)
    # The transaction id is still that of the first push.
    (repeat,) = (await driver.push_messages(driver.message("1", transaction_id="t-1"))).results
    assert (repeat.status, repeat.seq) == (PushStatus.DUPLICATE, 1)


async def test_what_is_staged_for_a_group_needs_the_group(driver: Driver, stage: Stage) -> None:
    await driver.push("1")
    await stage.rich(driver.message("1"), audience="billing")

    assert await stage.refusal((0, 0, 1)) is Code.GROUP_NOT_FOUND
    assert await log(driver) == ["1"]
