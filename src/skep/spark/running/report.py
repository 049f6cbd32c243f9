"""The report of a run: one HTML file without scripts or network access, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from html import escape

from skep.spark.running import svg
from skep.spark.running.figures import duration, names_text
from skep.spark.running.record import Cell, Plot, ReportTable, Run, StageCheck
from skep.spark.running.summary import sentence

STYLE = (
    """
:root { color-scheme: light dark; --paper: #fdfcf9; --ink: #25231f; --ok: #2e7d4f; --warn: #a86a00; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #1b1a18; --ink: #ece8df; --ok: #6fcf97; --warn: #f2b04a; --bad: #f28b82; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; } .meta, .none, figcaption { color: var(--faint); }
table { border-collapse: collapse; width: 100%; font-size: .92em; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.ok { color: var(--ok); } .warn { color: var(--warn); } .failed { color: var(--bad); } .status { font-weight: 600; }
figure { margin: 1rem 0; }
"""
    + svg.STYLE
)


def report(run: Run) -> str:
    facts = {
        "run": run.id, "server": run.server, "tenant": run.tenant, "Spark": run.master, "lake": run.lake,
        "queues": names_text(run.queues), "started": _time(run.started_at), "ended": _time(run.ended_at),
    }  # fmt: skip
    parts = [
        f"<h1>skep pipeline: {escape(run.name)}</h1>",
        f'<p class="meta"><span class="status {run.status}">{run.status}</span> · {escape(sentence(run))}</p>',
        f'<p class="failed">{escape(run.error)}</p>' if run.error else "",
        _stages(run),
        _checks(run.checks),
        *[
            f"<figure><h2>{escape(one.title)}</h2>{svg.plot(one)}<figcaption>{escape(_caption(one))}</figcaption></figure>"
            for one in run.plots
        ],
        *[_table(one) for one in run.tables],
        "<h2>This run</h2>",
        _rows(("", ""), list(facts.items())),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>skep pipeline: {escape(run.name)}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(part for part in parts if part)
        + "\n</body></html>\n"
    )


def _stages(run: Run) -> str:
    rows: list[tuple[Cell, ...]] = [
        (
            one.name,
            one.status,
            one.rows_in,
            one.rows_out,
            one.rejected,
            round(one.rows_per_second),
            one.lag,
            duration(one.seconds),
            one.note,
        )
        for one in run.stages
    ]
    heads = ("stage", "status", "rows in", "rows out", "rejected", "rows/s", "lag", "took", "")
    return "<h2>Stages</h2>" + _rows(heads, rows)


def _checks(checks: list[StageCheck]) -> str:
    if not checks:
        return ""
    rows = [(one.stage, one.status, one.name, one.figures) for one in checks]
    return "<h2>Checks</h2>" + _rows(("stage", "status", "check", "figures"), rows)


def _table(table: ReportTable) -> str:
    if not table.rows:
        return f'<h2>{escape(table.title)}</h2><p class="none">none</p>'
    note = f'<p class="meta">{escape(table.note)}</p>' if table.note else ""
    return f"<h2>{escape(table.title)}</h2>{note}" + _rows(table.columns, table.rows)


def _caption(plot: Plot) -> str:
    """The unit, unless the labels show it, and the note of the plot."""
    return "; ".join(part for part in ("" if plot.unit == svg.SECONDS else plot.unit, plot.note) if part)


def _rows(heads: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    columns, body = list(heads), [list(row) for row in rows]
    numeric = [_is_numeric([row[place] for row in body]) for place in range(len(columns))]
    head = "".join(
        f"<th{' class=n' if numeric[place] else ''}>{escape(str(name))}</th>" for place, name in enumerate(columns)
    )
    lines = []
    for row in body:
        cells = "".join(_cell(value, numeric[place], columns[place]) for place, value in enumerate(row))
        lines.append(f"<tr>{cells}</tr>")
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _is_numeric(column: Sequence[Cell]) -> bool:
    there = [value for value in column if value is not None]
    return bool(there) and all(isinstance(value, int | float) for value in there)


def _cell(value: Cell, numeric: bool, column: str) -> str:
    if column == "status":
        return f'<td><span class="status {escape(str(value))}">{escape(str(value))}</span></td>'
    return f"<td{' class=n' if numeric else ''}>{escape(_text(value))}</td>"


def _text(value: Cell) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
        case str():
            return value


def _time(value: datetime | None) -> str:
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M:%S %Z")
