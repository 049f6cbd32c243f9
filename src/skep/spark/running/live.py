"""Show the progress of a run: a moving line on a terminal, lines now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

from skep.spark.running.record import Stage

QUIET_SECONDS = 2.0


def progress_line(stage: Stage, seconds: float) -> str:
    """The progress of a stage as a line."""
    rate = stage.rows_in / seconds if seconds > 0 else 0.0
    parts = [f"{stage.rows_in:,} rows in", f"{stage.rows_out:,} out", f"{rate:,.0f} rows/s"]
    if stage.rejected:
        parts.append(f"{stage.rejected:,} rejected")
    if stage.lag is not None:
        parts.append(f"lag {stage.lag:,}")
    return f"{stage.name:<14} {', '.join(parts)}"


class LiveLines:
    """Writes progress to a stream: on a terminal one line that is overwritten, else a line every few seconds."""

    def __init__(self, to: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._to = to or sys.stderr
        self._now = now
        self._terminal = self._to.isatty()
        self._begun: dict[str, float] = {}
        self._told = 0.0

    def stage(self, stage: Stage) -> None:
        now = self._now()
        begun = self._begun.setdefault(stage.name, now)
        if stage.status != "running":
            self._begun.pop(stage.name)
        line = progress_line(stage, now - begun)
        if self._terminal:
            end = "\n" if stage.status != "running" else ""
            self._to.write(f"\r\x1b[2K{line}{end}")
        elif stage.status == "running" and (stage.rows_in == 0 or now - self._told < QUIET_SECONDS):
            return
        else:
            self._to.write(f"{line}\n")
        self._told = now
        self._to.flush()
