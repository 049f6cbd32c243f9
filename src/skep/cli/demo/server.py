"""The server of the demo: the real `skep serve` as a child, in a temporary folder that goes with it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from skep.config import DEFAULT_PORT
from skep.errors import Code, SkepError

STOP_SECONDS = 15.0
LAST_LINES = 5


@dataclass(frozen=True)
class Served:
    """Where it is."""

    url: str
    pid: int
    folder: Path


@contextmanager
def demo_server() -> Iterator[Served]:
    """A server of its own, ended when left, however that happens; its folder goes too."""
    with tempfile.TemporaryDirectory(prefix="skep-demo-") as name:
        folder = Path(name)
        process = _started(folder)
        try:
            yield Served(_address(process), process.pid, folder)
        finally:
            # A second Ctrl-C must not keep the child from being ended, nor the folder from being removed.
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            _end(process)
            signal.signal(signal.SIGINT, before)


def _started(folder: Path) -> subprocess.Popen[str]:
    # Settings of the user's own server are not meant for this one.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    port = DEFAULT_PORT if _is_free(DEFAULT_PORT) else 0
    command = [sys.executable, "-m", "skep", "serve", "--data-folder", str(folder), "--port", str(port)]
    return subprocess.Popen(
        [*command, "--log-format", "json"],
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that Ctrl-C comes to us, and we end it in order
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _address(process: subprocess.Popen[str]) -> str:
    """Wait until it listens; what it logs after that is read and dropped, so that it never waits for a reader."""
    assert process.stderr is not None
    lines: list[str] = []
    for line in process.stderr:
        lines.append(line.strip())
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("event") == "listening":
            threading.Thread(target=_drop, args=(process.stderr,), daemon=True).start()
            return str(event["address"])
    raise SkepError(Code.SERVER_UNREACHABLE, f"the server did not start: {' '.join(lines[-LAST_LINES:])}")


def _drop(lines: Iterator[str]) -> None:
    for _ in lines:
        pass


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
