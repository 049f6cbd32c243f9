"""`skep spec`: check, format, plan, apply and export specs."""

from __future__ import annotations

import sys
from pathlib import PurePath
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from skep.cli.connection import Flag, ServerOptions
from skep.cli.consent import Consent
from skep.cli.exits import OK, USER
from skep.cli.output import Columns, counted, print_json, print_lines, print_one, print_rows, print_said
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

if TYPE_CHECKING:
    from skep.client import Client
    from skep.spec import App as SpecApp
    from skep.wire.apps import Applied, AppSummary

spec_app = App(name="spec", help="Check, format, plan, apply and export specs.", help_format="plaintext")

File = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A file, or - for stdin."""
SpecFile = Annotated[
    File, Parameter(help="The spec file: spec language (.skep), TOML or JSON; - reads stdin, in the spec language.")
]
Output = Annotated[Literal["text", "json"], Parameter(name=["--output", "-o"])]


@spec_app.command
def check(*files: File, output: Output = "text") -> int:
    """Check specs, and print every problem with its place. Exit code 1 when there is a problem.

    For example:
        skep spec check orders.skep billing.toml

    Parameters
    ----------
    files
        Spec files: spec language (.skep), TOML or JSON; - reads stdin, in the spec language.
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
    """Format spec files in place. Comments stay.

    For example:
        skep spec fmt orders.skep
        skep spec fmt --check *.skep

    Parameters
    ----------
    files
        Files in the spec language (.skep); - reads stdin and prints the formatted spec.
    check
        Change nothing; name the files that would change, and exit with 1 if there are any.
    """
    from skep.spec import SpecError, format_spec

    _some(files)
    other = 0
    for file in files:
        if PurePath(file).suffix in (".toml", ".json"):
            raise SkepError(
                Code.INVALID_REQUEST, f"{file} is not in the spec language: skep spec fmt formats .skep files only"
            )
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
            print_lines([f"{shown_name(file)} {'would be' if check else 'is'} formatted"])
    return USER if other else OK


@spec_app.command
def export(file: SpecFile, /, *, format: Literal["json", "asyncapi", "jsonschema"] = "json") -> None:  # noqa: A002 - the option's name
    """Print a spec for other tools.

    For example:
        skep spec export orders.skep --format asyncapi > asyncapi.json

    Parameters
    ----------
    format
        The whole spec as JSON, its queues and webhooks as AsyncAPI 3.0, or its messages as JSON Schema.
    """
    from skep.spec import ExportFormat
    from skep.spec import export as export_spec

    sys.stdout.write(export_spec(load_file(file), ExportFormat(format)))


@spec_app.command(name="plan")
def show_plan(file: SpecFile, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Show what a spec would change on the server. Changes that could lose data are marked.

    For example:
        skep spec plan orders.skep
    """
    app = load_file(file)
    with to.open() as client:
        print_one(to, _sent(client, app, dry_run=True), _show_plan)


@spec_app.command
def apply(file: SpecFile, /, *, consent: Consent = Consent(), to: ServerOptions = ServerOptions()) -> None:
    """Apply a spec: create and change its queues, webhooks, types and schedules. No queue is deleted.

    For example:
        skep spec apply orders.skep
    """
    app = load_file(file)
    with to.open() as client:
        done = _sent(client, app, dry_run=True)
        if not consent.dry_run:
            if done.destructive:
                print_problems(rendered(done))
                consent.ask(f"applying {done.app!r} could lose data: {'; '.join(_dangers(done))}")
            done = _sent(client, app, dry_run=False)
    print_one(to, done, _show_plan)


@spec_app.command(name="list")
def list_apps(*, to: ServerOptions = ServerOptions()) -> None:
    """List the apps whose specs are applied.

    For example:
        skep spec list
    """
    with to.open() as client:
        print_rows(to, client.apps(), LISTED, empty="no app is applied")


@spec_app.command
def remove(app: str, /, *, consent: Consent = Consent(), to: ServerOptions = ServerOptions()) -> None:
    """Remove an app: its webhooks, types and schedules. Its queues stay, with all their messages.

    For example:
        skep spec remove Orders --dry-run

    Parameters
    ----------
    app
        The name of the app.
    """
    with to.open() as client:
        done = client.remove_app(app, dry_run=True)
        if not consent.dry_run:
            consent.ask(f"this forgets app {app!r} with {counted(len(done.parts), 'part')}; its queues stay")
            done = client.remove_app(app)
    print_said(to, done, f"{'would forget' if done.dry_run else 'forgot'} app {done.app!r}")


def _sent(client: Client, app: SpecApp, *, dry_run: bool) -> Applied:
    """Send a spec to the server. Problems that the server finds are printed line by line."""
    try:
        return client.apply(app, dry_run=dry_run)
    except SkepError as error:
        if error.code is not Code.INVALID_SPEC:
            raise
        print_problems(error.message.split("\n"))
        raise SystemExit(USER) from None


def _show_plan(done: Applied) -> None:
    print_lines(rendered(done))
    if done.revision is not None:
        print_lines([f"applied {done.app!r} as revision {done.revision}"])


def rendered(done: Applied) -> list[str]:
    """A plan for people, as `skep.spec.render_plan` shows it, and the parts that come and go."""
    from skep.spec import Action, PlannedChange, SettingChange, render_plan

    changes = [
        PlannedChange(
            Action(one.action), one.queue, one.settings,
            [SettingChange(each.setting, each.before, each.after, each.danger) for each in one.changes],
        )
        for one in done.changes
    ]  # fmt: skip
    signs = {"add": "+", "change": "~", "remove": "-"}
    parts = [
        f"{'!' if part.danger else signs[part.action]} {part.action} {part.kind} {part.name}"
        + (f"  ! {part.danger}" if part.danger else "")
        for part in done.parts
    ]
    return [*(render_plan(changes).splitlines() if changes or not parts else []), *parts]


def _dangers(done: Applied) -> list[str]:
    settings = [each.danger for one in done.changes for each in one.changes if each.danger]
    return list(dict.fromkeys([*settings, *(part.danger for part in done.parts if part.danger)]))


LISTED: Columns[AppSummary] = {
    "app": lambda one: one.app,
    "revision": lambda one: one.revision,
    "applied": lambda one: one.applied_at,
    "queues": lambda one: len(one.queues),
    "webhooks": lambda one: len(one.webhooks),
    "entities": lambda one: len(one.entities),
    "schedules": lambda one: len(one.schedules),
    "": lambda one: "" if one.usable else "cannot be used here",
}


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
