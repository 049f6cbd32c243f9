"""What schedulers rely on is as docs/pipelines.md says: exit codes, the fields of run.json, units of systemd and lines of cron."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from msgspec import Struct

from skep.cli import exits
from skep.cli.app import app
from skep.spark.running.record import Run
from tests.docs.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "pipelines.md"
UNITS = ROOT / "examples" / "systemd"
PROGRAM = "/opt/skep/bin/skep"


def section(heading: str) -> str:
    return (
        PAGE.read_text(encoding="utf-8").partition(f"\n### {heading}\n")[2].partition("\n### ")[0].partition("\n## ")[0]
    )


def fields(record: type[Struct], before: str = "") -> set[str]:
    """The fields of a record and of the records in its lists, as the page names them."""
    found = set()
    for name, kind in typing.get_type_hints(record).items():
        inner = [one for one in typing.get_args(kind) if isinstance(one, type) and issubclass(one, Struct)]
        found |= {f"{before}{name}[]", *fields(inner[0], f"{before}{name}[].")} if inner else {before + name}
    return found


def test_every_field_of_a_run_is_documented_and_no_other() -> None:
    named = set(re.findall(r"`([a-z_]+(?:\[\])?(?:\.[a-z_]+)?)`", section("run.json")))
    values = {"ok", "warn", "failed", "running", "fail", "lines", "bars", "null"}
    of_outputs = {name for name in fields(Run) if name.startswith("outputs[].")}

    assert {name.replace("outputs", "inputs") for name in of_outputs} <= named, "they are those of the inputs"
    assert named - values == fields(Run) - of_outputs


def test_every_exit_code_is_documented_and_no_other() -> None:
    codes = {exits.OK, exits.USER, exits.SERVER, exits.AUTHENTICATION, exits.NOTHING, exits.INTERRUPTED}

    assert {int(code) for code in re.findall(r"^\| (\d+) \|", section("Exit codes"), re.MULTILINE)} == codes


def commands() -> list[str]:
    """The command lines of the unit and of the lines for cron."""
    unit = (UNITS / "skep-nightly.service").read_text(encoding="utf-8")
    [cron] = [text for language, text in blocks(PAGE) if language == "crontab"]
    jobs = [line.split(maxsplit=5)[5] for line in cron.splitlines() if "=" not in line.partition(" ")[0]]
    return [*re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE), *(job.partition(" > ")[0] for job in jobs)]


@pytest.mark.parametrize("command", commands())
def test_every_option_of_a_scheduled_command_exists(command: str) -> None:
    program, *words = shlex.split(command)
    called, bound, _ = app.parse_args(words, exit_on_error=False, print_error=False)

    assert (program, called.__name__) == (PROGRAM, "run")
    assert bound.args == ("archive", "history", "metrics", "journeys", "dead-letters")


def test_there_are_three_scheduled_commands() -> None:
    assert len(commands()) == 3


def test_the_exit_codes_after_which_systemd_does_not_try_again_are_those_where_it_would_not_help() -> None:
    unit = (UNITS / "skep-nightly.service").read_text(encoding="utf-8")
    [codes] = re.findall(r"^RestartPreventExitStatus=(.+)$", unit, re.MULTILINE)

    assert [int(code) for code in codes.split()] == [exits.USER, exits.AUTHENTICATION, exits.NOTHING]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """With the program where it is here; systemd names every option it does not know."""
    units = [tmp_path / path.name for path in sorted(UNITS.iterdir())]
    for unit in units:
        text = (UNITS / unit.name).read_text(encoding="utf-8")
        unit.write_text(text.replace(PROGRAM, str(Path(sys.executable).parent / "skep")), encoding="utf-8")

    ended = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, timeout=60, check=False
    )

    assert [unit.name for unit in units] == ["skep-nightly.service", "skep-nightly.timer"]
    assert [line for line in ended.stderr.splitlines() if "skep-nightly" in line] == []
    assert ended.returncode == 0, ended.stderr
