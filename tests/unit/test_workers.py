"""Tests that several processes run are run once each, fail where they fail, and outlive one that takes its process with it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_SECONDS = 120
CONFTEST = """
import os
import pytest
from tests.support.workers import Workers

def pytest_configure(config):
    config.pluginmanager.register(Workers(2, lambda nodeid: nodeid.partition("::")[0]))

@pytest.fixture(autouse=True)
def noted(request):
    note(f"run {request.node.name} of {request.path.stem} in {os.getpid()}")

def note(line):
    with open("notes", "a") as notes:
        notes.write(line + "\\n")

@pytest.fixture(scope="module")
def shared():
    yield object()
    note("undone")
"""


def run(folder: Path, *arguments: str) -> tuple[int, str, list[str]]:
    """Run the tests of a folder; the status, what pytest said, and what the tests noted."""
    (folder / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    environ = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "pytest", "-rA", "-c", os.devnull, f"--rootdir={folder}", *arguments]
    found = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    return found.returncode, found.stdout + found.stderr, (folder / "notes").read_text(encoding="utf-8").splitlines()


def outcomes(text: str) -> Counter[str]:
    return Counter(re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL)\b", text, re.MULTILINE))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Six files of three tests each, which pass."""
    for number in range(6):
        tests = "".join(f"def test_{name}(shared, tmp_path): pass\n" for name in "abc")
        (tmp_path / f"test_{number}.py").write_text(tests, encoding="utf-8")
    return tmp_path


def test_every_test_runs_once_and_those_of_a_file_in_one_process(files: Path) -> None:
    status, text, notes = run(files)

    assert status == 0, text
    assert outcomes(text) == {"PASSED": 18}
    places = Counter((found[1], found[2]) for line in notes if (found := re.match(r"run .* of (\S+) in (\d+)", line)))
    assert sorted(places.values()) == [3] * 6
    assert len({pid for _, pid in places}) == 2
    assert notes.count("undone") == 6, "a fixture of a file is undone after the file, and not before"


def test_each_outcome_is_told_with_what_was_printed(tmp_path: Path) -> None:
    (tmp_path / "test_outcomes.py").write_text(
        "import pytest\n"
        "def test_fails(): print('what it printed'); assert 1 == 2\n"
        "@pytest.fixture\n"
        "def broken(): raise ValueError('not to be had')\n"
        "def test_error(broken): pass\n"
        "@pytest.mark.skip(reason='of no use')\n"
        "def test_skipped(): pass\n"
        "@pytest.mark.xfail\n"
        "def test_expected(): assert 0\n",
        encoding="utf-8",
    )

    status, text, _ = run(tmp_path)

    assert status == 1
    assert outcomes(text) == {"FAILED": 1, "ERROR": 1, "SKIPPED": 1, "XFAIL": 1}
    for part in ("what it printed", "assert 1 == 2", "not to be had", "of no use"):
        assert part in text


def test_a_test_that_ends_its_process_has_failed_and_the_others_run(files: Path) -> None:
    (files / "test_3.py").write_text(
        "import os, signal\n"
        "def test_a(): pass\n"
        "def test_ends(): os.kill(os.getpid(), signal.SIGKILL)\n"
        "def test_c(): pass\n",
        encoding="utf-8",
    )

    status, text, notes = run(files)

    assert status == 1
    assert outcomes(text) == {"PASSED": 17, "FAILED": 1}
    assert re.search(r"FAILED test_3.py::test_ends - worker \d ended with -9 while it ran this test", text)
    assert sum(line.startswith("run test_ends") for line in notes) == 1


def test_after_as_many_failures_as_were_asked_for_nothing_more_is_started(tmp_path: Path) -> None:
    tests = "def test_fails(): assert 0\ndef test_after_it(): pass\n"
    for number in range(6):
        (tmp_path / f"test_{number}.py").write_text(tests, encoding="utf-8")

    status, text, notes = run(tmp_path, "--maxfail=1")

    assert status == 1
    assert "stopping after" in text
    assert 1 <= len(notes) <= 2, "one of each worker at most"
    assert not any("test_after_it" in line for line in notes)


def test_what_a_worker_breaks_after_its_last_test_is_told(tmp_path: Path) -> None:
    (tmp_path / "test_late.py").write_text(
        "import atexit, os\ndef test_it(): atexit.register(os._exit, 7)\n", encoding="utf-8"
    )

    status, text, _ = run(tmp_path)

    assert status == 1, text
    assert "ended with 7" in text
