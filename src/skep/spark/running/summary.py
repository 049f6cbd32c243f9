"""The end of a run as lines for a terminal or a log: a line per stage, a line per check that did not hold, one sentence."""

from __future__ import annotations

from skep.spark.running.figures import duration
from skep.spark.running.record import WORST, Run, Stage, StageCheck

WIDTH = 66


def stage_line(number: int, total: int, stage: Stage) -> str:
    """A stage in one line, in the manner of dbt."""
    head = f"{number} of {total} {stage.status.upper():<6} {stage.name} "
    figures = [f"{stage.rows_in:,} in", f"{stage.rows_out:,} out"]
    if stage.rejected:
        figures.append(f"{stage.rejected:,} rejected")
    if stage.lag is not None:
        figures.append(f"lag {stage.lag:,}")
    if stage.note:
        figures.append(stage.note)
    return f"{head.ljust(34, '.')} {', '.join(figures)} [{duration(stage.seconds)}]"


def check_line(check: StageCheck) -> str:
    """A check in one line."""
    word = check.status if check.held else check.status.upper()
    return f"{word:<6} {check.name}{f': {check.figures}' if check.figures else ''}"


def sentence(run: Run) -> str:
    """The outcome of a run in one sentence."""
    counted = [(status, sum(stage.status == status for stage in run.stages)) for status in WORST]
    parts = ", ".join(f"{count} {status}" for status, count in counted if count)
    total = len(run.stages)
    held = sum(check.held for check in run.checks)
    checks = f"; {held} of {len(run.checks)} checks held" if run.checks else ""
    seconds = 0.0 if run.ended_at is None else (run.ended_at - run.started_at).total_seconds()
    return f"{total} {'stage' if total == 1 else 'stages'}: {parts or 'none'}{checks}; {duration(seconds)}"


def lines(run: Run) -> list[str]:
    return [
        *[stage_line(number, len(run.stages), stage) for number, stage in enumerate(run.stages, 1)],
        *[check_line(check) for check in run.checks if not check.held],
        *([f"ERROR  {f'{run.error_code}: ' if run.error_code else ''}{run.error}"] if run.error else []),
        sentence(run),
    ]
