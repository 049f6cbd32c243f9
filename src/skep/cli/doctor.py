"""`skep doctor`: check whether this machine is fit to serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.connection import Output
from skep.cli.exits import OK, SERVER
from skep.cli.output import chosen, print_json, print_json_line
from skep.cli.serve import Flags, load_settings

if TYPE_CHECKING:
    from skep.cli.connection import Format
    from skep.runtime.fitness import Finding

COLOURS = {"ok": "green", "info": "blue", "warn": "yellow", "fail": "bold red"}


def doctor(flags: Flags = Flags(), *, output: Output = None) -> int:
    """Check whether this machine is fit to serve. The command changes nothing.

    The flags of `skep serve` work here too: the checks use the settings that a server would use. The exit code is 2 when
    a check failed, else 0.
    """
    from skep.runtime.loop import run
    from skep.server.doctor.examine import examine

    loaded = load_settings(flags)
    return tell(run(examine(loaded.settings, loaded.secret_file)), chosen(output))


def tell(findings: list[Finding], output: Format) -> int:
    """Print the findings, and return the exit code."""
    match output:
        case "table":
            _print_table(findings)
        case "json":
            print_json(findings)
        case "ndjson":
            for finding in findings:
                print_json_line(finding)
    return SERVER if any(finding.state == "fail" for finding in findings) else OK


def _print_table(findings: list[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    for name in ("", "checked", "found", "hint"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        state = Text(finding.state, style=COLOURS[finding.state])
        table.add_row(state, finding.check, Text(finding.found), Text(finding.hint))
    Console(highlight=False).print(table)
