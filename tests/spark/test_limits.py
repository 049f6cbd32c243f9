"""How far a batch goes, and where a checkpoint belongs. The stream is driven as Spark drives it, without a Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMinRows

from skep.errors import SkepError
from skep.spark.offsets import parted
from skep.spark.options import source_options
from skep.spark.schema import schema_of
from skep.spark.stream import MessageStream
from tests.spark.test_deadline import Time
from tests.spark.test_losses import Queues, batch, begin, kept, queues

__all__ = ["queues"]  # the fixture


def all_batches(stream: MessageStream) -> tuple[list[dict[str, int]], list[int]]:
    """The offsets of all batches up to the end, and how many rows each has."""
    offsets: list[dict[str, int]] = []
    counts: list[int] = []
    end: dict[str, Any] = begin(stream)
    while True:
        start = end
        end, found = batch(stream, start, stream.getDefaultReadLimit())
        if end == start:
            return offsets, counts
        offsets.append(parted(end)[0])
        counts.append(len(found))


def test_a_batch_has_no_more_bytes_than_allowed(queues: Queues) -> None:
    queues.client.push("orders", ["x" * 98] * 10)

    assert all_batches(queues.stream("orders", maxBytesPerTrigger="450"))[1] == [4, 4, 2]


def test_each_of_several_queues_has_its_share_of_a_batch(queues: Queues) -> None:
    queues.client.push("a", list(range(30)))
    queues.client.push("b", list(range(10)))

    offsets, counts = all_batches(queues.stream("a,b", maxOffsetsPerTrigger="8"))

    assert offsets[:2] == [{"a": 6, "b": 2}, {"a": 12, "b": 4}]
    assert offsets[-1] == {"a": 30, "b": 10}
    assert counts == [8] * 5


def test_a_checkpoint_of_another_queue_is_refused(queues: Queues) -> None:
    queues.client.push("orders", [1])
    queues.client.push("others", [1])
    done, _ = batch(queues.stream("orders"), begin(queues.stream("orders")))
    other = queues.stream("others")

    with pytest.raises(SkepError, match="the checkpoint of another query"):
        batch(other, done)


HOUR = {"maxTriggerDelay": "1h", "waitSeconds": "600"}
START = ReadMinRows(5)
"""The limit that Spark passes on; what it says is known from the options."""


def timed(queues: Queues, time: Time, subscribe: str, **options: str) -> MessageStream:
    """A reader whose time passes only while it sleeps."""
    return MessageStream(queues.options(subscribe, **options), schema_of(()), now=time, sleep=time.wait)


def ends(stream: MessageStream, start: dict[str, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """Where the next batch ends, also without the logs."""
    end = kept(stream.latestOffset(start, START))
    return end, parted(end)[0]


def test_a_batch_with_too_few_messages_is_held_back_until_there_are_enough(queues: Queues) -> None:
    time = Time()
    stream = timed(queues, time, "orders,others", minOffsetsPerTrigger="5", groupId="lake", **HOUR)
    queues.client.push("orders", [1])
    queues.client.push("others", [1])
    start, first = ends(stream, begin(stream))

    queues.client.push("orders", [2, 3])
    queues.client.push("others", [2, 3])
    assert [ends(stream, start) for _ in range(3)] == [(start, first)] * 3
    progress = {one.queue: one.progress_seq for one in queues.client.group("lake").queues}
    queues.client.push("others", [4, 5])

    assert isinstance(stream.getDefaultReadLimit(), ReadMinRows)
    assert first == progress == {"orders": 1, "others": 1}  # the first batch of a run comes at once
    assert ends(stream, start)[1] == {"orders": 3, "others": 5}


def test_a_batch_is_held_back_no_longer_than_it_may_be_and_looked_at_as_often_as_any(queues: Queues) -> None:
    time = Time()
    stream = timed(queues, time, "orders", minOffsetsPerTrigger="5", **HOUR)
    queues.client.push("orders", [1])
    start, _ = ends(stream, begin(stream))
    begun = time.now
    queues.client.push("orders", [2])

    looks, (after, offsets) = 0, ends(stream, start)
    while after == start:
        looks, (after, offsets) = looks + 1, ends(stream, start)

    assert (time.now - begun, looks, offsets) == (3_600.0, 6, {"orders": 2})
    queues.client.push("orders", [3])
    assert ends(stream, after)[0] == after  # the delay begins anew with each batch


def test_the_first_batch_after_a_restart_comes_at_once_and_so_does_all_there_is_of_available_now(
    queues: Queues,
) -> None:
    options = {"minOffsetsPerTrigger": "5", **HOUR}
    queues.client.push("orders", [1])
    running = timed(queues, Time(), "orders", **options)
    start, _ = ends(running, begin(running))
    queues.client.push("orders", [2])
    assert ends(running, start)[0] == start
    assert parted(running.latestOffset(start, ReadAllAvailable()))[0] == {"orders": 2}  # of Trigger.Once

    assert ends(timed(queues, Time(), "orders", **options), start)[1] == {"orders": 2}
    available = timed(queues, Time(), "orders", maxOffsetsPerTrigger="5", **options)
    queues.client.push("orders", [3, 4, 5, 6, 7, 8])
    available.prepareForTriggerAvailableNow()
    queues.client.push("orders", [9])
    offsets, end = [], start
    for _ in range(3):
        end = kept(available.latestOffset(end, available.getDefaultReadLimit()))
        offsets.append(parted(end)[0]["orders"])
    assert offsets == [6, 8, 8]


def test_a_new_queue_is_noted_while_messages_are_held_back(queues: Queues) -> None:
    queues.client.push("shop.a", [1])
    stream = timed(queues, Time(), "", subscribePattern=r"shop\..*", minOffsetsPerTrigger="5", **HOUR)
    start, _ = ends(stream, begin(stream))
    queues.client.push("shop.a", [2])
    queues.client.push("shop.b", [1, 2])

    assert ends(queues.stream("", subscribePattern=r"shop\..*"), start)[1] == {"shop.a": 2, "shop.b": 0}
    again = timed(queues, Time(), "", subscribePattern=r"shop\..*", minOffsetsPerTrigger="5", **HOUR)
    again.latestOffset(start, START)
    queues.client.push("shop.a", [3])
    noted, offsets = ends(again, start)

    assert offsets == {"shop.a": 1, "shop.b": 0}
    assert ends(again, noted)[1] == {"shop.a": 1, "shop.b": 0}
    queues.client.push("shop.b", [3])
    assert ends(again, noted)[1] == {"shop.a": 3, "shop.b": 3}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}, "is at most maxOffsetsPerTrigger, which is 10"),
        ({"maxTriggerDelay": "5m"}, "give that, too"),
        ({"minOffsetsPerTrigger": "1", "maxTriggerDelay": "5"}, "15m, 90s or 500ms, not '5'"),
        ({"minOffsetsPerTrigger": "0"}, "a whole number above 0"),
    ],
)
def test_limits_that_do_not_fit_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(SkepError, match=told):
        source_options({"subscribe": "orders", **options})


@pytest.mark.parametrize(
    ("text", "seconds"), [("15m", 900), ("90 s", 90), ("500ms", 0.5), ("2h", 7_200), ("1d", 86_400), ("3MIN", 180)]
)
def test_a_delay_has_its_unit(text: str, seconds: float) -> None:
    options = source_options({"subscribe": "orders", "minOffsetsPerTrigger": "1", "maxTriggerDelay": text})
    assert options.trigger_delay_seconds == seconds
