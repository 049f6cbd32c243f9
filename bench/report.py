"""What a benchmark says: rates and ratios, as one JSON object or as a table."""

from __future__ import annotations

import os
import platform
from statistics import median
from typing import Any

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table


class Report(Struct):
    """The figures of one run. Rates are per second, ratios are within this run; ``notes`` say how they were had."""

    bench: str
    machine: dict[str, Any]
    rates: dict[str, float] = {}
    ratios: dict[str, float] = {}
    notes: dict[str, str] = {}

    def json(self) -> str:
        """The one line that ``--json`` prints."""
        return msgspec.json.encode(self).decode()


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "system": platform.platform(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def percentile(values: list[float], share: float) -> float:
    """The value below which ``share`` of them lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def middle(values: list[float]) -> float:
    """The median: one slow round on a shared machine does not move it."""
    return median(values)


def print_tables(report: Report, targets: dict[str, str], rates: Table | None = None) -> None:
    """Show a report to a person, each ratio beside what is expected of it; ``rates`` is a better table of the rates."""
    console = Console()
    ratios = Table(title="ratios, within this run", title_justify="left")
    for column in ("ratio", "value", "expected"):
        ratios.add_column(column, justify="left" if column == "ratio" else "right")
    for name, value in report.ratios.items():
        ratios.add_row(name, f"{value:.2f}", targets.get(name, targets.get(name.split(".", 1)[-1], "")))
    console.print(rates or table_of_rates(report))
    console.print(ratios)
    for name, note in report.notes.items():
        console.print(f"[dim]{name}:[/dim] {note}")
    console.print(f"[dim]{report.machine}[/dim]")


def table_of_rates(report: Report) -> Table:
    """A line for each rate."""
    rates = Table(title=f"skep bench {report.bench}", title_justify="left")
    rates.add_column("measured")
    rates.add_column("messages/s", justify="right")
    for name, value in report.rates.items():
        rates.add_row(name, shown(value))
    return rates


def shown(value: float) -> str:
    """A figure with as many digits as it is good for."""
    return f"{value:,.0f}" if value >= 10 else f"{value:,.2f}"
