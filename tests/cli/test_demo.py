"""The demo as a process: its story adds up, and it leaves nothing behind, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from skep.cli.demo import tables
from skep.cli.demo.command import demo
from skep.config import DEFAULT_PORT
from tests.support.demo import check_lake, check_story, serving
from tests.support.process import SkepProcess

WAIT_SECONDS = 900.0


def piped(folder: Path) -> dict[str, Any]:
    """How the demo is started: with a folder for temporary files that can be looked into, and settings that must not reach it."""
    environ = {**os.environ, "TMPDIR": str(folder), "SKEP_STORE": "postgresql://nobody@127.0.0.1:1/none"}
    pipe = subprocess.PIPE
    return {"env": environ, "stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "text": True}


@pytest.mark.slow  # it starts a Spark of its own
def test_the_story_adds_up_and_leaves_nothing_behind(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-m", "skep", "demo", "--once"], **piped(tmp_path))
    printed, complaints = process.communicate(timeout=WAIT_SECONDS)
    assert (process.returncode, complaints) == (0, ""), printed

    check_story(printed)
    check_lake(printed)
    assert not psutil.pid_exists(serving(printed))
    assert list(tmp_path.iterdir()) == []


@contextmanager
def taken(port: int) -> Iterator[None]:
    """Someone listens on this port: we do, unless someone else does already."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


def test_it_takes_another_port_when_the_usual_one_is_taken_and_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    with taken(DEFAULT_PORT):
        process = SkepProcess("demo", **piped(tmp_path))
        try:
            assert process.stdout is not None
            printed = ""
            while "Act 1" not in printed:
                line = process.stdout.readline()
                assert line, printed
                printed += line
        finally:
            process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=WAIT_SECONDS)
    assert f":{DEFAULT_PORT} " not in printed
    assert process.returncode == 130
    assert complaints == "skep: the server has ended and its folder is gone\n"
    assert not psutil.pid_exists(serving(printed))
    assert list(tmp_path.iterdir()) == []


def test_without_java_it_says_so_and_the_story_adds_up_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "missing_for_spark", lambda: "Spark needs Java 17 or newer")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SKEP_STORE", "postgresql://nobody@127.0.0.1:1/none")  # which must not reach the demo's server

    code = demo(once=True)

    printed, complaints = capsys.readouterr()
    assert (code, complaints) == (0, ""), printed
    assert "this part is left out: Spark needs Java 17 or newer" in printed
    check_story(printed)
    assert not psutil.pid_exists(serving(printed))
    assert list(tmp_path.iterdir()) == []
