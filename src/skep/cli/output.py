"""Print results: a table for people, JSON for programs. The JSON has the fields of the server's answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from skep.cli.exits import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from skep.cli.connection import Format, ServerOptions

T = TypeVar("T")

Columns = dict[str, Callable[[T], object]]
"""Headings of a table, each with the function that gives its cells."""

LONG = ("payload", "state", "data")
"""Headings of long cells. A last column with such a heading is cut to fit on the line."""
PAYLOAD_COLUMNS = 16
"""The least width of a payload, however narrow the terminal is."""
COLUMN_GAP = 2
PIPED_COLUMNS = 160
"""The width of a table that does not go to a terminal (`--output table` in a pipe)."""


def chosen(output: Format | None) -> Format:
    """The output format: the given one, else the default."""
    return output or ("table" if sys.stdout.isatty() else "json")


def print_rows(to: ServerOptions, rows: Iterable[T], columns: Columns[T], *, empty: str = "nothing") -> None:
    """Several results: rows of a table, an array, or a line each as they come."""
    match chosen(to.output):
        case "table":
            found = list(rows)
            print_table(found, columns) if found else print_lines([empty])
        case "json":
            print_json(list(rows))
        case "ndjson":
            for row in rows:
                print_json_line(row)


def print_one(to: ServerOptions, result: T, show: Callable[[T], object]) -> None:
    """One result: ``show`` prints it for people."""
    match chosen(to.output):
        case "table":
            show(result)
        case "json":
            print_json(result)
        case "ndjson":
            print_json_line(result)


def print_said(to: ServerOptions, result: object, sentence: str) -> None:
    """One result, which people read as a sentence."""
    print_one(to, result, lambda _: print_lines([sentence]))


def print_json(value: object) -> None:
    """Print indented JSON, which people can read too."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def print_json_line(value: object) -> None:
    """Print JSON on one line, and flush it: a reader may be following."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
    sys.stdout.flush()


def print_table(rows: Sequence[T], columns: Columns[T]) -> None:
    """A table with a line per row; numbers stand to the right."""
    values = [[cell(row) for cell in columns.values()] for row in rows]
    cells = [[text(value) for value in row] for row in values]
    page = console()
    if list(columns)[-1] in LONG:
        _cut(cells, [len(heading) for heading in columns], page.width)
    page.print(filled_table(list(columns), values, cells))


def filled_table(
    headings: Sequence[str], values: Sequence[Sequence[object]], cells: Sequence[Sequence[str]] | None = None
) -> Table:
    """A table of values; columns of numbers stand to the right. ``cells`` are the texts of the values, if they were made already."""
    table = new_table()
    for number, heading in enumerate(headings):
        right = all(isinstance(row[number], int | float) for row in values)
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in cells or [[text(value) for value in row] for row in values]:
        table.add_row(*row)
    return table


def _cut(cells: list[list[str]], headings: list[int], width: int) -> None:
    """Cut the last column (the payload) to the room beside the other columns, so that each row is one line."""
    others = [max(least, *(len(row[number]) for row in cells)) for number, least in enumerate(headings[:-1])]
    room = max(PAYLOAD_COLUMNS, width - sum(others) - COLUMN_GAP * len(headings))
    for row in cells:
        row[-1] = shortened(row[-1], room)


def print_fields(fields: dict[str, object]) -> None:
    """Print the fields of one thing as a table, one under the other."""
    table = new_table(heading=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(name, "\n".join(map(text, value.split("\n"))) if isinstance(value, str) else text(value))
    console().print(table)


def print_lines(lines: Iterable[str]) -> None:
    """Plain sentences."""
    for line in lines:
        sys.stdout.write(printable(line) + "\n")


def console(**options: Any) -> Console:
    """The console for tables; it interprets no markup in them."""
    from rich.console import Console

    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_COLUMNS
    return Console(markup=False, highlight=False, emoji=False, width=wide, **options)


def new_table(heading: bool = True) -> Table:
    """An empty table in the one style."""
    from rich import box
    from rich.table import Table

    return Table(box=box.SIMPLE_HEAD if heading else None, show_header=heading, pad_edge=False, collapse_padding=True)


def text(value: object) -> str:
    """A value as people write it."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
        case int():
            return f"{value:,}"
        case datetime():
            return _time(value)
        case _:
            return printable(str(value))


def _time(value: datetime) -> str:
    """A time in this machine's time zone; without the day when it is today."""
    here = value.astimezone()
    today = datetime.now(here.tzinfo).date()
    return here.strftime("%H:%M:%S" if here.date() == today else "%Y-%m-%d %H:%M:%S")


def setting(value: object) -> object:
    """The value of a setting, as it would be typed."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int | float):
        return f"{value:.15g}"
    return "none" if value is None else value


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    whole = round(seconds)
    if whole < 1:
        return "0s" if seconds <= 0 else "<1s"
    parts = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def counted(count: int, noun: str) -> str:
    """A number and what it counts."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"


def excerpt(payload: bytes | memoryview | Any, preview: str | None = None, *, most: int = 200) -> str:
    """The beginning of a payload, on one line."""
    if preview is None:
        return shortened(" ".join(bytes(payload).decode("utf-8", "replace").split()), most)
    return shortened(" ".join(preview.split()) + "…", most)


def shortened(line: str, most: int) -> str:
    """The line, or its beginning when it is too long."""
    return line if len(line) <= most else line[: most - 1].removesuffix("…") + "…"
