"""The server of the demo: the real `skep serve` as a child, in a temporary folder that is deleted with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from skep.config import DEFAULT_PORT
from skep.errors import Code, SkepError

STOP_SECONDS = 15.0
LAST_LINES = 5


@dataclass(frozen=True)
class DemoServer:
    """The address, process and folder of the server."""

    url: str
    pid: int
    folder: Path


@contextmanager
def demo_server() -> Iterator[DemoServer]:
    """Run a server for the ``with``. Its process and its folder go when the ``with`` ends, also after an error."""
    with tempfile.TemporaryDirectory(prefix="skep-demo-") as name:
        folder = Path(name)
        log: list[str] = []
        for port in (DEFAULT_PORT, 0):  # a free port when the usual one is taken
            with _child(folder, port) as process:
                url = _address(process, log)
                if url is not None:
                    yield DemoServer(url, process.pid, folder)
                    return
        raise SkepError(Code.SERVER_UNREACHABLE, f"the server did not start: {' '.join(log[-LAST_LINES:])}")


@contextmanager
def _child(folder: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    # Settings of the user's own server are not meant for this one.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    command = [sys.executable, "-m", "skep", "serve", "--data-folder", str(folder), "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--log-format", "json"],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that Ctrl-C comes to us, and we end it in order
    )
    try:
        yield process
    finally:
        # A second Ctrl-C must not keep the child from being ended, nor the folder from being removed.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        _end(process)
        signal.signal(signal.SIGINT, before)


def _address(process: subprocess.Popen[str], log: list[str]) -> str | None:
    """Wait until the server listens; None when it ended instead. Its later log lines are dropped, so that it never waits for a reader."""
    assert process.stderr is not None
    for line in process.stderr:
        log.append(line.strip())
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "listening":
            threading.Thread(target=_drop, args=(process.stderr,), daemon=True).start()
            return str(event["address"])
    process.stderr.close()
    return None


def _drop(lines: IO[str]) -> None:
    with lines:
        for _ in lines:
            pass


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
