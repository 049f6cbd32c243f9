"""The output of the demo: a moving table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from skep.cli.output import Columns, console, new_table, print_lines, text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from skep.wire.groups import GroupFigures

REFRESHES_PER_SECOND = 8


class StoryScreen(Protocol):
    """Where the story is told."""

    def act(self, title: str, *lines: str) -> None:
        """The next act, and what happens in it."""

    def say(self, *lines: str) -> None:
        """Something that happened."""

    def figures(self, groups: Sequence[GroupFigures]) -> None:
        """How every queue stands now."""

    def summary(self, table: Table) -> None:
        """A table that stays."""


MOVING: Columns[GroupFigures] = {
    "queue": lambda one: one.queue,
    "group": lambda one: one.consumer_group,
    "pushed": lambda one: one.pushed,
    "done": lambda one: one.completed,
    "retried": lambda one: one.retried,
    "pending": lambda one: one.pending,
    "in flight": lambda one: one.in_flight,
    "dead": lambda one: one.dead,
}


def group_table(groups: Sequence[GroupFigures], columns: Columns[GroupFigures]) -> Table:
    """A line per queue and group; the first two columns name them."""
    table = new_table()
    for number, heading in enumerate(columns):
        table.add_column(heading, justify="left" if number < 2 else "right", min_width=len(heading))
    for group in groups:
        table.add_row(*[text(cell(group)) for cell in columns.values()])
    return table


class LiveScreen:
    """A terminal: the story runs upwards, the table stays below it."""

    def __init__(self, shown: Console, live: Live) -> None:
        self._console = shown
        self._live = live

    def act(self, title: str, *lines: str) -> None:
        self._console.print(f"\n{title}", style="bold yellow")
        self.say(*lines)

    def say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(f"  {line}", soft_wrap=True)

    def figures(self, groups: Sequence[GroupFigures]) -> None:
        self._live.update(group_table(groups, MOVING))

    def summary(self, table: Table) -> None:
        self._console.print(table)


class PlainScreen:
    """No terminal: the story line by line."""

    def act(self, title: str, *lines: str) -> None:
        print_lines(["", title])
        self.say(*lines)

    def say(self, *lines: str) -> None:
        print_lines(f"  {line}" for line in lines)
        sys.stdout.flush()

    def figures(self, groups: Sequence[GroupFigures]) -> None:
        del groups

    def summary(self, table: Table) -> None:
        console().print(table)


@contextmanager
def make_screen() -> Iterator[StoryScreen]:
    """The screen that fits where the output goes."""
    if not sys.stdout.isatty():
        yield PlainScreen()
        return
    from rich.live import Live

    shown = console()
    with Live(console=shown, refresh_per_second=REFRESHES_PER_SECOND, transient=True) as live:
        yield LiveScreen(shown, live)
