"""The command line as one cyclopts app, the exit code of a command, and the one line on stderr when the command fails."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError, Group, UnknownOptionError

import skep
from skep.cli.commands import SECTIONS
from skep.cli.exits import INTERRUPTED, OK, SERVER, USER, complain, exit_code
from skep.errors import Code, SkepError


def _made() -> App:
    made = App(
        name="skep",
        help="A message queue whose messages end up in Spark.",
        version=skep.__version__,
        help_format="plaintext",
    )
    for number, (title, commands) in enumerate(SECTIONS.items()):
        group = Group(title, sort_key=number)
        for word, home, _ in commands:
            made.command(home, name=word, group=group)
    return made


app = _made()


def run(arguments: Sequence[str], commands: App = app) -> int:
    """Run a command, and return its exit code."""
    try:
        ended = commands(
            list(arguments), exit_on_error=False, print_error=False, result_action="return_value",
        )  # fmt: skip
        sys.stdout.flush()
    except CycloptsError as error:
        complain(SkepError(Code.INVALID_REQUEST, _elsewhere(error) or _clause(str(error))))
        return USER
    except SkepError as error:
        complain(error)
        return exit_code(error.code)
    except BrokenPipeError:
        _let_go_of_stdout()
        return OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev: show the traceback to a developer
            raise
        complain(SkepError(Code.INTERNAL, f"{type(error).__name__}: {error}"))
        return SERVER
    return ended if isinstance(ended, int) else OK


def _elsewhere(error: CycloptsError) -> str | None:
    """The hint for an unknown option that is another queue system's name for one of our queue settings."""
    from skep.model.setting_names import ELSEWHERE

    option = error.token.keyword or "" if isinstance(error, UnknownOptionError) else ""
    meant = ELSEWHERE.get(option.removeprefix("--").replace("-", "_"))
    if meant is None:
        return None
    setting = meant.split()[0].rstrip(",")
    return f"there is no option {option}; did you mean {meant.replace(setting, '--' + setting.replace('_', '-'))}?"


def _clause(text: str) -> str:
    """An error text of cyclopts in the form of our own: one line, lower case, without a full stop."""
    line = " ".join(text.split()).removesuffix(".")
    return line[:1].lower() + line[1:]


def _let_go_of_stdout() -> None:
    """Drop the rest of stdout: its reader has gone (`| head`), and the interpreter would try to write the rest when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
