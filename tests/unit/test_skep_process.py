"""Commands that tests fork from a prepared process end as those of a new interpreter do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from skep.access import presence
from tests.support.process import SkepProcess, run_skep
from tests.support.serving import serving


@pytest.mark.parametrize(
    ("arguments", "typed"),
    [
        (("--version",), ""),
        (("push", "--bad"), ""),
        (("config", "show", "--output", "json"), ""),
        (("key", "list"), ""),
        (("push", "orders", "-"), "{}\n"),
    ],
)
def test_a_forked_command_says_and_returns_what_a_started_one_does(
    tmp_path: Path, arguments: tuple[str, ...], typed: str
) -> None:
    environ = {**os.environ, "SKEP_URL": "http://127.0.0.1:1", "SKEP_CLIENT_ATTEMPTS": "1", "SKEP_PORT": "4711"}
    started = subprocess.run(
        [sys.executable, "-m", "skep", *arguments], cwd=tmp_path, env=environ, input=typed, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip

    forked = run_skep(*arguments, cwd=tmp_path, env=environ, typed=typed, text=True, timeout=60)

    assert (forked.returncode, forked.stdout, forked.stderr) == (started.returncode, started.stdout, started.stderr)


def test_a_forked_command_is_our_child_and_ends_by_a_signal_like_any_other(tmp_path: Path) -> None:
    with SkepProcess("serve", "--port", "0", cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert any("listening" in line for line in process.stderr)
        system = psutil.Process(process.pid)
        assert (system.ppid(), system.cwd()) == (os.getpid(), str(tmp_path))
        process.kill()
        assert process.wait(60) == -signal.SIGKILL


def test_a_server_is_started_by_a_new_interpreter_too(tmp_path: Path) -> None:
    """What the interpreter itself is to be told, only a new one can be."""
    with serving(folder=tmp_path, environ={"PYTHONHASHSEED": "4711"}) as server:
        port = server.listening()
        assert server.system.cmdline()[1:4] == ["-m", "skep", "serve"]
        assert presence.file_of(tmp_path / "skep-data" / "skep.db").exists()
        assert port > 0
        server.signal()
        assert server.ended() == 0
