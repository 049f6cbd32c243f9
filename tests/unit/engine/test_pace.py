"""Percentiles by nearest rank, and a sentence that names what holds a queue up."""

from __future__ import annotations

from typing import Any

import pytest

from skep.clock import Instant
from skep.engine.pace import Cause, Pace, Percentiles, Timing, Trend, pace, percentiles, timings
from skep.model import QUEUE_MODE_GROUP, GroupStats, QueueKey, QueueStats, Rates, Seq
from skep.model.history import LeaseTime

KEY = QueueKey("orders")
SLOW = {QUEUE_MODE_GROUP: Timing(None, Percentiles(100, 1.2, 4.0, 9.0))}


def group(
    lag: int = 100, name: str = QUEUE_MODE_GROUP, in_flight: int = 0, idle: float = 0.0, **rates: float
) -> GroupStats:
    return GroupStats(
        queue=KEY, group=name, progress_seq=Seq(0), start_seq=Seq(0), pushed=lag, completed=0, pending=lag - in_flight, in_flight=in_flight,
        dead=0, expired=0, retried=0, partitions_pending=1, partitions_leased=0, oldest_at=None, lag_seconds=0.0,
        rates=Rates(**rates), created_at=Instant(0), active_at=Instant(0), inactive_seconds=idle,
    )  # fmt: skip


def queue(*groups: GroupStats, pushed: float = 2.4, depth: int = 100) -> QueueStats:
    return QueueStats(
        queue=KEY, first_seq=Seq(1), last_seq=Seq(100), depth=depth, scheduled=0, dead_letters=0, in_flight=0,
        oldest_age_seconds=0.0, rates=Rates(pushed=pushed), groups=list(groups),
    )  # fmt: skip


def told(stats: QueueStats, **given: Any) -> Pace:
    options: dict[str, Any] = {"paused": False, "times": {}, "waiting": lambda _: 0} | given
    return pace(stats, **options)


def test_percentiles_are_values_that_there_were() -> None:
    assert percentiles([n * 1_000_000 for n in range(1, 101)]) == Percentiles(100, 50.0, 95.0, 99.0)
    assert percentiles([3_000_000]) == Percentiles(1, 3.0, 3.0, 3.0)
    assert percentiles([]) is None


def test_timings_are_by_group_and_no_clock_makes_them_negative() -> None:
    times = [
        LeaseTime("a", Instant(1), -5, 2_000_000), LeaseTime("b", Instant(1), None, None),
        LeaseTime("c", Instant(1), 3_000_000, -5),
    ]  # fmt: skip

    assert timings(times) == {
        "a": Timing(Percentiles(1, 0.0, 0.0, 0.0), Percentiles(1, 2.0, 2.0, 2.0)), "b": Timing(None, None),
        "c": Timing(Percentiles(1, 3.0, 3.0, 3.0), Percentiles(1, 0.0, 0.0, 0.0)),
    }  # fmt: skip


def test_a_handler_that_is_slower_than_the_pushes_lets_the_queue_grow() -> None:
    found = told(queue(group(in_flight=4, completed=0.8)), times=SLOW)

    assert (found.trend, found.cause) == (Trend.GROWING, Cause.SLOW_HANDLER)
    assert found.sentence == (
        "in 2.4/s, out 0.8/s, growing: 4 messages in flight, handlers take 1.2 s (p50) to 4.0 s (p95)"
    )


@pytest.mark.parametrize(
    ("stats", "given", "cause", "words"),
    [
        (queue(group()), {"paused": True}, Cause.PAUSED, "the queue is paused"),
        (queue(), {}, Cause.NO_CONSUMERS, "no consumer has popped from it yet"),
        (queue(group(idle=600)), {}, Cause.NO_CONSUMERS, "no consumer has popped for 10 min"),
        (queue(group(name="bill", idle=600)), {}, Cause.NO_CONSUMERS, "no consumer of group bill has popped"),
        (queue(group(completed=1.0, retried=3.0)), {}, Cause.FAILING, "75% of attempts fail"),
        (queue(group(completed=0.5)), {"waiting": lambda _: 2}, Cause.BLOCKED, "waits for a retry"),
        (queue(group(in_flight=3)), {}, Cause.SLOW_HANDLER, "none was finished in the last minute"),
    ],
)
def test_the_sentence_names_the_cause(stats: QueueStats, given: dict[str, Any], cause: Cause, words: str) -> None:
    found = told(stats, **given)

    assert found.cause is cause
    assert words in found.sentence


@pytest.mark.parametrize(
    ("pushed", "completed", "lag", "trend"),
    [
        (2.0, 1.0, 5, Trend.GROWING),
        (1.0, 2.0, 5, Trend.SHRINKING),
        (1.0, 1.0, 5, Trend.STEADY),
        (1.0, 1.0, 0, Trend.EMPTY),
    ],
)
def test_the_trend_is_that_of_the_backlog(pushed: float, completed: float, lag: int, trend: Trend) -> None:
    assert told(queue(group(lag, completed=completed), pushed=pushed)).trend is trend


def test_the_slowest_group_is_told_of() -> None:
    found = told(queue(group(5, "quick", completed=2.4), group(500, "slow", completed=0.1)))

    assert found.group == "slow"
