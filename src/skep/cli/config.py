"""`skep config`: show the settings of a server, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from skep.cli.connection import Output
from skep.cli.output import chosen, print_json, setting
from skep.cli.serve import Flags, load_settings

if TYPE_CHECKING:
    from skep.config.load import SettingValue

config_app = App(
    name="config", help="Show the settings of a server, and where each comes from.", help_format="plaintext"
)


@config_app.command
def show(flags: Flags = Flags(), *, output: Output = None) -> None:
    """Print every setting with its value, the value's origin, and its meaning.

    The flags of `skep serve` work here too: the table shows the settings that they would give.
    """
    values = load_settings(flags).values
    if chosen(output) == "json":
        print_json(_told(values))
    else:
        _print_table(values)


def _told(values: list[SettingValue]) -> list[dict[str, object]]:
    return [
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


def _print_table(values: list[SettingValue]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("setting", "value", "origin", "meaning"):
        table.add_column(name, overflow="fold")
    for value in values:
        changed = "bold" if value.origin != "default" else ""
        table.add_row(value.setting.key, str(setting(value.shown)), value.origin, value.setting.meaning, style=changed)
    Console(markup=False, highlight=False).print(table)
