"""Plots as SVG text: lines over time and bars. Colours are variables, so that a page can be light or dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from html import escape
from math import floor, log10

from msgspec import Struct

from skep.spark.running.figures import duration
from skep.spark.running.record import Plot

WIDTH, HEIGHT = 720, 240
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 28
BAR_HEIGHT, BAR_LABEL = 22, 190
COLOURS = 8
"""The colours of the page; further series use them again."""
TICKS = 4
SECONDS = "s"
Point = tuple[float, float]
STYLE = """
:root { --faint: #8a857b; --rule: #e4dfd4; --c0: #c98a00; --c1: #2b6cb0; --c2: #2e7d4f; --c3: #b3261e; --c4: #7b4ba6; --c5: #00838f; --c6: #8d6e63; --c7: #5d6b7a; }
@media (prefers-color-scheme: dark) { :root { --faint: #98928a; --rule: #37342f;
  --c0: #f2c14e; --c1: #7fb2f0; --c2: #6fcf97; --c3: #f28b82; --c4: #c39be6; --c5: #6fd3dd; --c6: #c5a79b; --c7: #a9b6c4; } }
.plot { width: 100%; height: auto; max-width: 760px; } .plot text { fill: var(--faint); font: 11px system-ui, sans-serif; }
.plot .grid { stroke: var(--rule); } .plot .line { fill: none; stroke-width: 2; } .legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1rem; padding: 0; margin: 0; }
.legend .key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
""" + "".join(
    f".line.c{n} {{ stroke: var(--c{n}); }} .dot.c{n}, .bar.c{n} {{ fill: var(--c{n}); }} .key.c{n} {{ background: var(--c{n}); }}\n"
    for n in range(COLOURS)
)
"""The style of plots and their legends, for a page or a cell of a notebook."""


class Drawing(Struct, frozen=True):
    """A plot as notebooks show it."""

    plot: Plot

    def _repr_html_(self) -> str:
        """What Jupyter and other notebooks show for a cell whose value this is."""
        return f"<style>{STYLE}</style>{plot(self.plot)}"


def plot(drawn: Plot) -> str:
    """The plot, or a sentence where there is nothing to draw."""
    picture = _bars(drawn) if drawn.kind == "bars" else _lines(drawn)
    return picture or '<p class="none">nothing to plot yet</p>'


def nice_ticks(most: float) -> list[float]:
    """Round numbers from 0 to a little over the greatest value."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / TICKS
    power = 10 ** floor(log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    ticks = [0.0]
    while ticks[-1] < most:
        ticks.append(ticks[-1] + step)
    return ticks


def _lines(drawn: Plot) -> str:
    points = [point for series in drawn.series.values() for point in series]
    if not points:
        return ""
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    ticks = nice_ticks(max(y for _, y in points))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - first) / (last - first) if last > first else 0.5
        return LEFT + share * wide, TOP + high - y / ticks[-1] * high

    parts = [_tick(place(first, tick)[1], _value(tick, drawn.unit, named=False)) for tick in ticks]
    for share in (0.0, 0.5, 1.0) if last > first else (0.5,):
        at = datetime.fromtimestamp(first + share * (last - first), UTC)
        anchor = {0.0: "start", 0.5: "middle", 1.0: "end"}[share]
        text = at.strftime("%H:%M:%S" if last - first < 86_400 else "%Y-%m-%d %H:%M")
        parts.append(f'<text x="{LEFT + share * wide:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{text}</text>')
    for number, (name, series) in enumerate(drawn.series.items()):
        colour = f"c{number % COLOURS}"
        for stretch in unbroken(series, drawn.step):
            spots = [place(x, y) for x, y in stretch]
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
            if len(spots) > 1:
                parts.append(
                    f'<polyline class="line {colour}" points="{line}"><title>{escape(name)}</title></polyline>'
                )
            if len(series) <= 60 or len(spots) == 1:
                for (x, y), (_, value) in zip(spots, stretch, strict=True):
                    parts.append(
                        f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{escape(name)}: {_value(value, drawn.unit)}</title></circle>'
                    )
    return _picture(HEIGHT, parts, f"{drawn.title}, {drawn.unit}") + _legend(list(drawn.series))


def _bars(drawn: Plot) -> str:
    if not drawn.bars:
        return ""
    most = max(value for _, value in drawn.bars) or 1
    room = WIDTH - BAR_LABEL - 90
    parts = []
    for number, (name, value) in enumerate(drawn.bars):
        y = TOP + number * BAR_HEIGHT
        parts.append(f'<text x="{BAR_LABEL - 8}" y="{y + 14}" text-anchor="end">{escape(name)}</text>')
        parts.append(
            f'<rect class="bar c{number % COLOURS}" x="{BAR_LABEL}" y="{y + 3}" width="{value / most * room:.1f}" height="{BAR_HEIGHT - 7}"/>'
        )
        parts.append(
            f'<text x="{BAR_LABEL + value / most * room + 6:.1f}" y="{y + 14}">{escape(_value(value, drawn.unit))}</text>'
        )
    return _picture(TOP * 2 + len(drawn.bars) * BAR_HEIGHT, parts, f"{drawn.title}, {drawn.unit}")


def unbroken(series: Sequence[Point], step: float | None) -> Iterator[list[Point]]:
    """The parts of a series without a missing window. A gap means that nothing happened, and no line crosses it."""
    part: list[Point] = []
    for point in series:
        if part and step is not None and point[0] - part[-1][0] > 1.5 * step:
            yield part
            part = []
        part.append(point)
    if part:
        yield part


def _tick(y: float, label: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'


def _legend(names: Sequence[str]) -> str:
    keys = [
        f'<li><span class="key c{number % COLOURS}"></span>{escape(name)}</li>' for number, name in enumerate(names)
    ]
    return f'<ul class="legend">{"".join(keys)}</ul>'


def _picture(height: float, parts: Sequence[str], label: str) -> str:
    head = f'<svg class="plot" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return head + "".join(parts) + "</svg>"


def _value(value: float, unit: str, *, named: bool = True) -> str:
    """A value with its unit; a duration with a suitable unit."""
    if unit == SECONDS:
        return duration(value)
    return f"{_number(value)} {unit}" if named else _number(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
