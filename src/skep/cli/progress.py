"""A progress bar on stderr, for long work; there is none when stderr is not a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_SECONDS = 0.5
"""Work that takes less time gets no progress bar."""


class ProgressBar:
    """The progress of the work. The bar appears only when the work takes long."""

    def __init__(self, title: str, total: int | None) -> None:
        self._title = title
        self._total = total
        self._shown: tuple[Progress, TaskID] | None = None
        self._started = time.monotonic()

    def reached(self, done: int, note: str = "") -> None:
        """Report progress."""
        if self._shown is None:
            if not sys.stderr.isatty() or time.monotonic() - self._started < PATIENCE_SECONDS:
                return
            self._shown = _started(self._title, self._total)
        shown, task = self._shown
        shown.update(task, completed=done, note=note)

    def end(self) -> None:
        """Remove the bar."""
        if self._shown is not None:
            self._shown[0].stop()


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[ProgressBar]:
    """A progress bar for the work in the ``with``; ``total`` is None when the length is unknown."""
    bar = ProgressBar(title, total)
    try:
        yield bar
    finally:
        bar.end()


def _started(title: str, total: int | None) -> tuple[Progress, TaskID]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    task = shown.add_task(title, total=total, note="")
    shown.start()
    return shown, task
