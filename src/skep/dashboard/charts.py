"""Charts from what the store remembers by the minute: rates are growth between two moments, depth is as it was."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from skep.clock import MICROS_PER_SECOND, Instant, seconds
from skep.engine import Engine
from skep.model.history import Moment

RANGES = {"1h": 3_600, "6h": 6 * 3_600, "24h": 86_400, "48h": 2 * 86_400}
SPARK_WIDTH, SPARK_HEIGHT = 120, 22
_AN_HOUR = seconds(3_600)
_encode = msgspec.json.Encoder().encode


class ChartLine(NamedTuple):
    """A line of a chart; the tone is a name that the style gives a colour."""

    label: str
    tone: str
    values: list[float | None]


class Chart(NamedTuple):
    """A chart, and its last values in words."""

    title: str
    unit: str
    lines: list[ChartLine]
    data: str

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw yet."""
        return not any(value is not None for line in self.lines for value in line.values)

    @property
    def latest(self) -> list[tuple[str, str, float]]:
        """The last value of each line."""
        return [
            (line.label, line.tone, next((v for v in reversed(line.values) if v is not None), 0.0))
            for line in self.lines
        ]


def charts(moments: Sequence[Moment]) -> list[Chart]:
    """The charts of throughput, backlog and failures."""
    times = [moment.at // MICROS_PER_SECOND for moment in moments]
    flow = [
        ChartLine("pushed", "in", _rates(moments, "pushed")),
        ChartLine("completed", "out", _rates(moments, "completed")),
    ]
    depth = [ChartLine("backlog", "work", [moment.depth for moment in moments])]
    trouble = [
        ChartLine("retried", "work", _rates(moments, "retried")),
        ChartLine("dead", "bad", _rates(moments, "dead")),
    ]
    return [
        _chart("Throughput", "/s", times, flow), _chart("Backlog", "", times, depth), _chart("Failures", "/s", times, trouble),
    ]  # fmt: skip


def _chart(title: str, unit: str, times: list[int], lines: list[ChartLine]) -> Chart:
    data: dict[str, Any] = {"times": times, "unit": unit, "lines": [line._asdict() for line in lines]}
    return Chart(title, unit, lines, _encode(data).decode())


def _rates(moments: Sequence[Moment], name: str) -> list[float | None]:
    """Growth per second. A counter that fell, as when a queue was deleted, grew by nothing."""
    found: list[float | None] = [None] if moments else []
    for before, after in pairwise(moments):
        elapsed = max(1, after.at - before.at) / MICROS_PER_SECOND
        found.append(round(max(0, getattr(after, name) - getattr(before, name)) / elapsed, 3))
    return found


def since(now: Instant, wanted: str) -> Instant:
    """The start of a chart of this range."""
    return Instant(now - seconds(RANGES.get(wanted, RANGES["1h"])))


async def sparks(engine: Engine, names: Sequence[str], tenant: str) -> dict[str, str]:
    """How deep each queue was over the last hour, as the points of a line in a small picture."""
    start = Instant(engine.now() - _AN_HOUR)
    found = await engine.history.figures_of(names, start, tenant)
    return {name: _points(moments, start) for name, moments in zip(names, found, strict=True)}


def _points(moments: Sequence[Moment], start: Instant) -> str:
    if len(moments) < 2:
        return ""
    most = max(1, *(moment.depth for moment in moments))
    return " ".join(
        f"{(moment.at - start) / _AN_HOUR * SPARK_WIDTH:.1f},{SPARK_HEIGHT - 1 - moment.depth / most * (SPARK_HEIGHT - 3):.1f}"
        for moment in moments
    )
