"""Help is there at once: asking for it loads nothing that it does not need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields

import pytest
from cyclopts import App

from skep.cli.app import app, run
from skep.cli.commands import SECTIONS, overview
from skep.cli.exits import USER
from skep.cli.queue_settings import QueueFlags
from skep.model import DeadReason, QueueSettings
from tests.support.process import run_skep

HEAVY = {"cyclopts", "rich", "msgspec", "pyreqwest", "stamina", "structlog", "apsw", "starlette", "uvicorn", "asyncio"}
SERVER = {"apsw", "asyncpg", "starlette", "uvicorn", "uvloop", "pyarrow", "prometheus_client"}
WORDS = [word for commands in SECTIONS.values() for word, _, _ in commands]


def imported(*commands: tuple[str, ...]) -> tuple[list[str], set[str]]:
    """What the commands printed, one after the other, and the packages they had loaded in the end."""
    text = (
        "import sys\n"
        "from skep.cli import main\n"
        f"for arguments in {commands!r}:\n"
        "    sys.argv = ['skep', *arguments]\n"
        "    try: main()\n"
        "    except SystemExit: pass\n"
        "    print(end='\\f')\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=True)
    return run.stdout.split("\f")[:-1], set(run.stderr.split())


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_the_overview_names_every_command_and_loads_nothing_heavy(arguments: tuple[str, ...]) -> None:
    [printed], packages = imported(arguments)
    assert printed == overview()
    assert all(f"  {word} " in printed for word in WORDS)
    assert not packages & HEAVY


def test_the_overview_fits_a_terminal() -> None:
    assert max(map(len, overview().splitlines())) <= 80


def test_help_of_commands_loads_nothing_of_the_server_or_the_client_and_names_every_reason() -> None:
    words = ["push", "pop", "tail", "queue", "dlq", "lag", "dlq list"]
    printed, packages = imported(*((*word.split(), "--help") for word in words))
    for word, text in zip(words, printed, strict=True):
        assert text.startswith(f"Usage: skep {word}")
    assert not packages & (SERVER | {"pyreqwest", "stamina"})
    assert all(reason in printed[-1] for reason in DeadReason)


def test_every_command_that_talks_to_a_server_has_an_example() -> None:
    for word in WORDS:
        if word in ("config", "doctor", "serve", "bench", "version"):
            continue
        for name, made in [(word, app[word]), *((f"{word} {inner}", app[word][inner]) for inner in app[word])]:
            if made.default_command is None or name.split()[-1].startswith("-"):
                continue
            assert f"skep {name}" in (made.default_command.__doc__ or ""), name


def commands(made: App, path: tuple[str, ...] = ()) -> Iterator[tuple[str, App]]:
    """Every command with all its words."""
    if made.default_command is not None:
        yield " ".join(path), made
    for word in made:
        if not word.startswith("-"):
            yield from commands(made[word], (*path, word))


def test_no_command_has_a_flag_for_an_empty_list() -> None:
    found = dict(commands(app))
    names = {
        path: [name for one in made.assemble_argument_collection() for name in one.names]
        for path, made in found.items()
    }

    assert {"key create", "queue create", "dlq replay", "serve"} <= names.keys()
    assert "--queues" in names["key create"]
    assert [(path, name) for path, given in names.items() for name in given if name.startswith("--empty")] == []


def test_every_setting_of_a_queue_has_an_option() -> None:
    assert {field.name for field in fields(QueueFlags)} == {*QueueSettings.__struct_fields__, "reset"}


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(shell, marks=pytest.mark.slow) for shell in ("zsh", "fish"))])
def test_a_shell_can_be_taught_the_commands(shell: str) -> None:
    printed = run_skep("completion", shell, text=True, timeout=60).stdout
    assert all(word in printed for word in ("skep", "push", "dlq", "replay", "dry-run"))


def test_benchmarks_are_run_from_a_clone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "engine", "--quick"]) == USER
    assert capsys.readouterr().err == (
        "skep: INVALID_REQUEST: Benchmarks are run from a clone of the repository, with ./skep bench.\n"
    )
