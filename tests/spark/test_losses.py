"""What a stream does when what it was to read is gone. It is driven as Spark drives it, without a Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

import skep
from skep.errors import SkepError
from skep.spark.offsets import parted
from skep.spark.options import SourceOptions, source_options
from skep.spark.schema import schema_of
from skep.spark.source import Portion
from skep.spark.stream import WATCHED_QUEUES, MessageStream
from skep.spark.watching import Watch
from skep.testing.server import RunningServer
from tests.spark.conftest import TENANTS

ALL = ReadAllAvailable()
GOES_ON = {"failOnDataLoss": "false"}


class Queues(Struct, frozen=True):
    """A server with a tenant of the test's own."""

    client: skep.Client
    url: str
    tenant: str

    def stream(self, subscribe: str, **options: str) -> MessageStream:
        """The reader of a query that was just started, perhaps again."""
        return MessageStream(self.options(subscribe, **options), schema_of(()))

    def options(self, subscribe: str, **options: str) -> SourceOptions:
        given = {
            "url": self.url,
            "tenant": self.tenant,
            "retrySeconds": "20",
            "waitSeconds": "0.2",
            "subscribe": subscribe,
        }
        return source_options({**given, **options})


@pytest.fixture
def queues(spark_server: RunningServer) -> Iterator[Queues]:
    tenant = next(TENANTS)
    with skep.Client(spark_server.url, tenant=tenant) as client:
        yield Queues(client, spark_server.url, tenant)


def kept(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset as it comes back from a checkpoint."""
    told: dict[str, Any] = json.loads(json.dumps(offset))
    return told


def batch(stream: MessageStream, start: dict[str, Any], limit: ReadLimit = ALL) -> tuple[dict[str, Any], list[str]]:
    """Where the next batch ends, and its payloads."""
    end = kept(stream.latestOffset(start, limit))
    return end, rows(stream, start, end)


def rows(stream: MessageStream, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    found = [table for portion in stream.partitions(start, end) for table in stream.read(portion)]
    return [payload for table in found for payload in table.column("payload").to_pylist()]


def begin(stream: MessageStream) -> dict[str, Any]:
    return kept(stream.initialOffset())


def make_anew(queues: Queues, queue: str, payloads: list[Any]) -> None:
    queues.client.delete_queue(queue)
    queues.client.push(queue, payloads)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_a_queue_made_anew_is_lost_to_a_query_that_runs_and_to_one_that_is_restarted(
    queues: Queues, count: int
) -> None:
    queues.client.push("orders", ["old"] * 3)
    running = queues.stream("orders")
    end, _ = batch(running, begin(running))
    make_anew(queues, "orders", ["new"] * count)

    for stream in (running, queues.stream("orders")):
        with pytest.raises(SkepError, match="deleted and made anew"):
            stream.latestOffset(end, ALL)
    end, found = batch(queues.stream("orders", **GOES_ON), end)

    assert found == ['"new"'] * count
    assert queues.stream("orders").latestOffset(end, ALL) == end


def test_a_batch_that_was_planned_over_a_log_that_is_gone_reads_nothing_of_the_new_one(queues: Queues) -> None:
    queues.client.push("orders", ["old"])
    planning = queues.stream("orders")
    start = begin(planning)
    end = kept(planning.latestOffset(start, ALL))
    make_anew(queues, "orders", ["new", "new"])

    with pytest.raises(SkepError, match="deleted and made anew"):
        queues.stream("orders").partitions(start, end)
    again = queues.stream("orders", **GOES_ON)

    assert again.partitions(start, end) == []
    assert batch(again, end)[1] == ['"new"', '"new"']


def test_a_log_that_is_made_anew_while_it_is_read_is_noticed(queues: Queues) -> None:
    queues.client.push("orders", ["old"])
    stream = queues.stream("orders")
    start = begin(stream)
    end = kept(stream.latestOffset(start, ALL))
    planned = stream.partitions(start, end)
    make_anew(queues, "orders", ["new"])

    with pytest.raises(SkepError, match="deleted and made anew"):
        [list(stream.read(portion)) for portion in planned]


def test_a_queue_that_is_deleted_while_it_is_read_is_said_to_be_gone_or_left_out(queues: Queues) -> None:
    for queue in ("a", "b"):
        queues.client.push(queue, [queue])
    streams = queues.stream("a,b"), queues.stream("a,b", **GOES_ON)
    start = begin(streams[0])
    end = kept(streams[0].latestOffset(start, ALL))
    failing, going_on = [(stream, stream.partitions(start, end)) for stream in streams]
    queues.client.delete_queue("a")

    with pytest.raises(SkepError, match="there is no queue 'a' any more"):
        [list(failing[0].read(portion)) for portion in failing[1]]
    found = [table for portion in going_on[1] for table in going_on[0].read(portion)]

    assert [payload for table in found for payload in table.column("payload").to_pylist()] == ['"b"']


def test_an_offset_of_before_logs_had_names_goes_on(queues: Queues) -> None:
    queues.client.push("orders", [1, 2, 3])

    end, found = batch(queues.stream("orders"), {"orders": 1})

    assert (parted(end)[0], found) == ({"orders": 3}, ["2", "3"])


def test_a_group_is_not_told_of_an_offset_of_a_log_that_is_gone(queues: Queues) -> None:
    queues.client.push("orders", list(range(20)))
    end, _ = batch(queues.stream("orders"), {"orders": 0})
    make_anew(queues, "orders", [1, 2, 3])
    stream = queues.stream("orders", groupId="lake", **GOES_ON)

    end, found = batch(stream, end)
    stream.commit(end)

    [group] = queues.client.group("lake", "orders").queues
    assert (found, group.progress_seq) == (["1", "2", "3"], 3)


def test_a_query_starts_again_without_a_queue_that_was_deleted_and_goes_on_with_it_when_it_is_back(
    queues: Queues,
) -> None:
    for queue in ("a", "b"):
        queues.client.push(queue, ["old"])
    stream = queues.stream("a,b")
    end, _ = batch(stream, begin(stream))
    queues.client.delete_queue("b")
    queues.client.push("a", ["more"])

    with pytest.raises(SkepError, match="there is no queue 'b' any more"):
        queues.stream("a,b").latestOffset(end, ALL)
    again = queues.stream("a,b", **GOES_ON)
    again.prepareForTriggerAvailableNow()
    end, found = batch(again, end)
    queues.client.push("b", ["new"])

    assert found == ['"more"']
    assert batch(queues.stream("a,b", **GOES_ON), end)[1] == ['"new"']


def shops(queues: Queues, **options: str) -> MessageStream:
    return queues.stream("", subscribePattern=r"shop\..*", **options)


def test_what_is_taken_from_a_new_queue_before_its_first_batch_is_run_again_is_noticed(queues: Queues) -> None:
    queues.client.push("shop.a", [1])
    stream = shops(queues)
    end, _ = batch(stream, begin(stream))
    queues.client.push("shop.b", [1, 2, 3])

    running = shops(queues, maxOffsetsPerTrigger="2")
    start, found = batch(running, end, ReadMaxRows(2))
    end = kept(running.latestOffset(start, ReadMaxRows(2)))
    assert (parted(start)[0], found, parted(end)[0]) == ({"shop.a": 1, "shop.b": 0}, [], {"shop.a": 1, "shop.b": 2})
    assert rows(shops(queues), start, end) == rows(running, start, end) == ["1", "2"]
    queues.client.clear("shop.b", "all")

    with pytest.raises(SkepError, match=r"the messages 1 to 3 of shop\.b have been removed"):
        shops(queues).partitions(start, end)
    again = shops(queues, **GOES_ON)
    again.prepareForTriggerAvailableNow()
    assert again.partitions(start, end) == []


def test_a_new_queue_that_has_lost_its_head_before_it_was_seen_begins_where_its_log_does(queues: Queues) -> None:
    queues.client.push("shop.a", [1, 2])
    queues.client.clear("shop.a", "all")
    queues.client.push("shop.a", [3])

    start, _ = batch(shops(queues), {})
    end, found = batch(shops(queues), start)

    assert (parted(start)[0], parted(end)[0], found) == ({"shop.a": 2}, {"shop.a": 3}, ["3"])


def test_a_batch_over_all_there_is_misses_a_queue_that_was_deleted_before_it_is_run_again(queues: Queues) -> None:
    for queue in ("shop.a", "shop.b"):
        queues.client.push(queue, [1])
    stream = shops(queues)
    start = begin(stream)
    end = kept(stream.latestOffset(start, ALL))
    queues.client.delete_queue("shop.b")

    again = shops(queues)
    again.prepareForTriggerAvailableNow()
    with pytest.raises(SkepError, match=r"there is no queue 'shop\.b' any more"):
        again.partitions(start, end)


def test_a_queue_that_never_was_is_a_mistake_whatever_may_be_lost(queues: Queues) -> None:
    queues.client.push("a", [1])

    with pytest.raises(SkepError, match=r"there is no queue 'b'\. Make it first"):
        queues.stream("a,b", **GOES_ON).latestOffset({"a": 1}, ALL)


def test_batches_do_not_walk_through_a_gap(queues: Queues) -> None:
    queues.client.push("orders", list(range(200)))
    queues.client.clear("orders", "all")
    queues.client.push("orders", list(range(15)))
    stream = queues.stream("orders", maxOffsetsPerTrigger="10", **GOES_ON)

    end, first = batch(stream, {"orders": 5}, ReadMaxRows(10))
    end, second = batch(stream, end, ReadMaxRows(10))

    assert (len(first), len(second), parted(end)[0]) == (10, 5, {"orders": 215})


@pytest.mark.parametrize("partitions", ["", "a"])
def test_what_is_removed_before_a_task_reads_it_is_noticed(queues: Queues, partitions: str) -> None:
    queues.client.push("orders", [1, 2], partition="a")
    stream = queues.stream("orders", partitions=partitions)
    start = begin(stream)
    [planned] = stream.partitions(start, kept(stream.latestOffset(start, ALL)))
    queues.client.clear("orders", "all")

    assert isinstance(planned, Portion)
    with pytest.raises(SkepError, match="the messages 1 to 2 of orders have been removed"):
        list(stream.read(planned))


def test_offsets_copied_from_a_query_say_where_to_start(queues: Queues) -> None:
    queues.client.push("orders", [1, 2, 3])
    copied = {"orders": 2, ".": {"orders": 17}}

    assert parted(queues.stream("orders", startingOffsets=json.dumps(copied)).initialOffset())[0] == {"orders": 2}


def test_a_wait_takes_over_the_polls_of_the_one_before() -> None:
    begun: list[tuple[str, int]] = []
    ends = threading.Event()

    def poll(queue: str, after: int) -> int:
        begun.append((queue, after))
        if queue == "busy":
            return after + 1
        assert ends.wait(60)
        return after

    watch = Watch(poll, WATCHED_QUEUES)
    try:
        for seq in range(50):
            assert watch.news({"busy": seq}, ["idle-1", "idle-2", "busy"], 60)
        assert not watch.news({}, ["idle-1", "idle-2"], 0)
    finally:
        ends.set()

    assert begun.count(("idle-1", 0)) == begun.count(("idle-2", 0)) == 1
    assert [after for queue, after in begun if queue == "busy"] == list(range(50))


def test_a_running_stream_hears_of_any_of_its_queues(queues: Queues) -> None:
    for queue in ("a", "b", "c"):
        queues.client.push(queue, [1])
    stream = queues.stream("a,b,c", waitSeconds="30")
    end, _ = batch(stream, begin(stream))
    assert stream.latestOffset(end, ALL) == end  # from now on it waits

    pushing = threading.Thread(target=queues.client.push, args=("b", [2]))
    pushing.start()
    end, found = batch(stream, end)
    pushing.join()
    for queue in ("a", "c"):
        queues.client.push(queue, [3])  # which ends the polls

    assert found == ["2"]
