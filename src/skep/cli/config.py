"""`skep config`: show the settings of a server, and where each comes from."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from skep.cli.serve import Flags, load_settings

if TYPE_CHECKING:
    from skep.config.load import Value

config_app = App(
    name="config", help="Show the settings of a server, and where each comes from.", help_format="plaintext"
)

Output = Annotated[Literal["table", "json"] | None, Parameter(name=["--output", "-o"])]


@config_app.command
def show(flags: Flags = Flags(), *, output: Output = None) -> None:
    """Print every setting with its value, the value's origin, and its meaning.

    The flags of `skep serve` work here too: the table shows the settings that they would give.

    Parameters
    ----------
    output
        A table, or JSON; JSON when the output is not a terminal.
    """
    from skep.errors import SkepError

    try:
        values = load_settings(flags).values
    except SkepError as error:
        sys.stderr.write(f"skep: {error.shown}\n")
        sys.exit(1)
    if (output or ("table" if sys.stdout.isatty() else "json")) == "json":
        _print_json(values)
    else:
        _print_table(values)


def _print_json(values: list[Value]) -> None:
    import msgspec

    told = [
        {
            "setting": value.setting.key,
            "value": value.shown,
            "origin": value.origin,
            "default": value.setting.default,
            "variable": value.setting.variable,
            "meaning": value.setting.meaning,
        }
        for value in values
    ]
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(told)).decode() + "\n")


def _print_table(values: list[Value]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("setting", "value", "origin", "meaning"):
        table.add_column(name, overflow="fold")
    for value in values:
        changed = "bold" if value.origin != "default" else ""
        table.add_row(value.setting.key, _text(value.shown), value.origin, value.setting.meaning, style=changed)
    Console(markup=False, highlight=False).print(table)


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
