"""A test that would wait for ever fails instead, and says where it is."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import endless
from tests.support.endless import at_most

ROOT = Path(__file__).parents[2]


def test_a_thread_that_waits_for_ever_is_interrupted() -> None:
    with pytest.raises(pytest.fail.Exception, match=r"did not end within 0\.05 s"), at_most(0.05):
        threading.Event().wait()


def test_a_loop_that_waits_for_ever_is_interrupted_and_names_what_its_tasks_wait_for() -> None:
    async def innermost() -> None:
        await asyncio.Event().wait()

    async def outer() -> None:
        await innermost()

    with pytest.raises(pytest.fail.Exception, match=r"outer .* > .*innermost .* > Event\.wait "), at_most(0.05):
        asyncio.run(outer())


def test_what_takes_the_interruption_for_its_own_error_is_interrupted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endless, "AGAIN_SECONDS", 0.05)

    def wait_twice() -> None:
        with suppress(pytest.fail.Exception):
            threading.Event().wait()
        threading.Event().wait()

    with pytest.raises(pytest.fail.Exception), at_most(0.05):
        wait_twice()


def test_what_was_bound_before_is_bound_again_after_it() -> None:
    outer = signal.getitimer(signal.ITIMER_REAL)
    handler = signal.getsignal(signal.SIGALRM)
    with at_most(5):
        pass

    assert (outer[0] > 0) == (signal.getitimer(signal.ITIMER_REAL)[0] > 0)
    assert signal.getsignal(signal.SIGALRM) is handler


ENDLESS = """
from tests.support.endless import Longest

def pytest_configure(config):
    config.pluginmanager.register(Longest(0.2))
"""
TEST = """
import threading

def test_endless():
    threading.Thread(target=threading.Event().wait).start()
    threading.Event().wait()
"""


def test_a_run_ends_though_a_thread_of_an_endless_test_does_not(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(ENDLESS, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        "-c",
        os.devnull,
        "test_it.py",
    ]
    environ = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }

    run = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120, check=False)

    assert run.returncode == pytest.ExitCode.TESTS_FAILED, run.stdout + run.stderr
    assert "FAILED test_it.py::test_endless - Failed: it did not end within 0.2 s" in run.stdout
    assert "left behind" in run.stderr
