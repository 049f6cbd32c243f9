"""How far a batch goes, and where a checkpoint belongs. The stream is driven as Spark drives it, without a Spark."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import SkepError
from skep.spark.offsets import parted
from skep.spark.stream import MessageStream
from tests.spark.test_losses import Queues, batch, begin, queues

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
