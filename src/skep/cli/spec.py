"""`skep spec`: check, lay out, plan, apply and export specs."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import Annotated, Literal

from cyclopts import App, Parameter

from skep.cli.connection import Flag
from skep.cli.exits import OK, USER
from skep.cli.output import counted, print_json, print_lines
from skep.cli.spec_files import (
    PROBLEMS_SHOWN,
    STDIN,
    load_file,
    print_problems,
    read_text,
    replace_text,
    shown_name,
)
from skep.errors import Code, SkepError

spec_app = App(name="spec", help="Check, lay out, plan, apply and export specs.", help_format="plaintext")

File = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A file, or - for stdin."""
Output = Annotated[Literal["text", "json"], Parameter(name=["--output", "-o"])]


@spec_app.command
def check(*files: File, output: Output = "text") -> int:
    """Tell everything that is wrong with specs, each with its place; exit code 1 when something is.

    For example:
        skep spec check orders.skep billing.toml

    Parameters
    ----------
    files
        Files in the language (.skep), TOML or JSON; - is stdin, in the language.
    output
        Text for people, or JSON.
    """
    from skep.spec import Severity
    from skep.spec import check as check_spec

    _some(files)
    told = []
    wrong = 0
    for file in files:
        name = shown_name(file)
        checked = check_spec(read_text(file), name)
        wrong += not checked.usable
        told += [{"file": name, "rendered": text, "problem": one}
                 for one, text in zip(checked.problems, checked.rendered, strict=True)]  # fmt: skip
        if output == "text":
            errors = sum(one.severity is Severity.ERROR for one in checked.problems)
            _show_problems(name, checked.rendered, errors)
    if output == "json":
        print_json(told)
    return USER if wrong else OK


@spec_app.command
def fmt(*files: File, check: Flag = False) -> int:
    """Lay out specs in the one way, in place; comments stay.

    For example:
        skep spec fmt orders.skep
        skep spec fmt --check *.skep

    Parameters
    ----------
    files
        Files in the language; - reads stdin and prints what comes out.
    check
        Change nothing; name the files that would change, and exit with 1 if there are any.
    """
    from skep.spec import SpecError, format_spec

    _some(files)
    other = 0
    for file in files:
        if PurePath(file).suffix in (".toml", ".json"):
            raise SkepError(Code.INVALID_REQUEST, f"{file} is not in the language, and only that is laid out")
        text = read_text(file)
        try:
            laid_out = format_spec(text, shown_name(file))
        except SpecError as error:
            print_problems(error.message.split("\n"))
            other += 1
            continue
        if file == STDIN and not check:
            sys.stdout.write(laid_out)
        elif laid_out != text:
            if check:
                other += 1
            else:
                replace_text(file, laid_out)
            print_lines([f"{shown_name(file)} {'would be' if check else 'is'} laid out anew"])
    return USER if other else OK


@spec_app.command
def export(file: File, /, *, format: Literal["json", "asyncapi", "jsonschema"] = "json") -> None:  # noqa: A002 - the option's name
    """Print a spec for other tools.

    For example:
        skep spec export orders.skep --format asyncapi > asyncapi.json

    Parameters
    ----------
    file
        The spec: the language, TOML or JSON; - is stdin, in the language.
    format
        The whole spec as JSON, its queues and webhooks as AsyncAPI 3.0, or its messages as JSON Schema.
    """
    from skep.spec import ExportFormat
    from skep.spec import export as export_spec

    sys.stdout.write(export_spec(load_file(file), ExportFormat(format)))


def _some(files: tuple[str, ...]) -> None:
    if not files:
        raise SkepError(Code.INVALID_REQUEST, "name at least one file; - is stdin")


def _show_problems(name: str, rendered: list[str], errors: int) -> None:
    for text in rendered[:PROBLEMS_SHOWN]:
        print_problems(text.split("\n"), to_stdout=True)
    if len(rendered) > PROBLEMS_SHOWN:
        print_lines([f"{name}: and {len(rendered) - PROBLEMS_SHOWN} more"])
    warnings = len(rendered) - errors
    if not rendered:
        print_lines([f"{name}: nothing is wrong"])
    else:
        print_lines([f"{name}: {counted(errors, 'error')}, {counted(warnings, 'warning')}"])
