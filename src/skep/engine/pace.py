"""The pace of a queue: wait and handler times from the store's history, and the reason if it is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from math import ceil

from msgspec import Struct

from skep.clock import MICROS_PER_SECOND
from skep.model import QUEUE_MODE_GROUP, GroupStats, QueueStats
from skep.model.history import LeaseTime

QUANTILES = (0.5, 0.95, 0.99)
UNEVEN = 1.05
"""A queue grows when its push rate is this many times its completion rate; it shrinks the other way round."""
FAILING_SHARE = 0.2
"""Attempts fail often when this share of the ended attempts failed."""
ABSENT_SECONDS = 120.0
"""A group has no consumer when no pop came for this long. The last pop is known to the minute."""


class Trend(StrEnum):
    """The trend of the backlog."""

    GROWING = "growing"
    SHRINKING = "shrinking"
    STEADY = "steady"
    EMPTY = "empty"


class Cause(StrEnum):
    """The reason why a queue is slow."""

    NONE = "none"
    PAUSED = "paused"
    NO_CONSUMERS = "no_consumers"
    FAILING = "failing"
    BLOCKED = "blocked"
    SLOW_HANDLER = "slow_handler"


class Percentiles(Struct, frozen=True):
    """The 50th, 95th and 99th percentile in seconds, and the number of samples."""

    count: int
    p50: float
    p95: float
    p99: float


class Timing(Struct, frozen=True):
    """How long messages wait for a group, and how long its consumers hold them; None when unknown."""

    wait: Percentiles | None
    handler: Percentiles | None


class Pace(Struct, frozen=True):
    """The pace of a queue, by its slowest group."""

    trend: Trend
    cause: Cause
    group: str | None
    sentence: str


def percentiles(micros: Sequence[int]) -> Percentiles | None:
    """The percentiles of some durations, by nearest rank; None without durations."""
    if not micros:
        return None
    ordered = sorted(micros)
    p50, p95, p99 = (ordered[max(0, ceil(share * len(ordered)) - 1)] / MICROS_PER_SECOND for share in QUANTILES)
    return Percentiles(len(ordered), p50, p95, p99)


def timings(times: Sequence[LeaseTime]) -> dict[str, Timing]:
    """The wait and handler times by group."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for one in times:
        waited, held = found.setdefault(one.group, ([], []))
        if one.wait_micros is not None:
            waited.append(max(0, one.wait_micros))
        if one.held_micros is not None:
            held.append(max(0, one.held_micros))
    return {group: Timing(percentiles(waited), percentiles(held)) for group, (waited, held) in sorted(found.items())}


def pace(stats: QueueStats, *, paused: bool, times: Mapping[str, Timing], waiting: Callable[[str], int]) -> Pace:
    """The pace of a queue. ``waiting`` is how many consumers of a group wait for messages on this server."""
    slowest = max((one for one in stats.groups if not one.external), key=lambda one: one.lag_messages, default=None)
    into = stats.rates.pushed
    if slowest is None:
        backlog = stats.depth - stats.scheduled
        out, lag, trend = 0.0, backlog, Trend.GROWING if into > 0 else Trend.STEADY if backlog > 0 else Trend.EMPTY
    else:
        out, lag = slowest.rates.completed + slowest.rates.dead, slowest.lag_messages
        trend = _trend(into, out, lag)
    cause, why = _cause(slowest, lag, out, paused, times, waiting)
    flow = f"in {_rate(into)}/s, out {_rate(out)}/s, {trend}"
    sentence = flow if not why else f"{flow}: {why}"
    return Pace(trend, cause, None if slowest is None else slowest.group, sentence)


def _trend(into: float, out: float, lag: int) -> Trend:
    if lag <= 0:
        return Trend.EMPTY
    if into > out * UNEVEN:
        return Trend.GROWING
    return Trend.SHRINKING if out > into * UNEVEN else Trend.STEADY


def _cause(
    group: GroupStats | None,
    lag: int,
    out: float,
    paused: bool,
    times: Mapping[str, Timing],
    waiting: Callable[[str], int],
) -> tuple[Cause, str]:
    """The first reason that applies to the group, the plainest first."""
    if lag <= 0:
        return Cause.NONE, ""
    if paused:
        return Cause.PAUSED, "the queue is paused"
    if group is None:
        return Cause.NO_CONSUMERS, "no consumer has popped from it yet"
    name = "" if group.group == QUEUE_MODE_GROUP else f" of group {group.group}"
    if group.inactive_seconds > ABSENT_SECONDS and not group.in_flight and not waiting(group.group):
        return Cause.NO_CONSUMERS, f"no consumer{name} has popped for {_seconds(group.inactive_seconds)}"
    failed = group.rates.retried + group.rates.dead
    if failed > 0 and failed >= FAILING_SHARE * (failed + group.rates.completed):
        return Cause.FAILING, f"{round(100 * failed / (failed + group.rates.completed))}% of attempts{name} fail"
    if not group.in_flight and waiting(group.group):
        return Cause.BLOCKED, f"consumers{name} wait, and what is left waits for a retry, a delay or an earlier message"
    known = times.get(group.group)
    if known is not None and known.handler is not None and group.in_flight:
        took = known.handler
        return Cause.SLOW_HANDLER, (
            f"{group.in_flight:,} messages in flight{name}, handlers take {_seconds(took.p50)} (p50) to {_seconds(took.p95)} (p95)"
        )
    if group.in_flight and out <= 0:
        return (
            Cause.SLOW_HANDLER,
            f"{group.in_flight:,} messages in flight{name}, and none was finished in the last minute",
        )
    return Cause.NONE, ""


def _rate(value: float) -> str:
    return f"{value:.1f}" if value >= 0.05 or value <= 0 else "<0.1"


def _seconds(value: float) -> str:
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value / 60:.0f} min" if value < 7_200 else f"{value / 3_600:.0f} h"
