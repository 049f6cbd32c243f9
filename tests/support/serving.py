"""`skep serve` as a process of its own, and what it says."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from tests.support.process import SkepProcess

WAIT_SECONDS = 60.0


class ServeProcess:
    """A running `skep serve`. What it logs is read all the time, so that it never waits for its reader."""

    def __init__(self, *arguments: str, folder: Path, environ: dict[str, str] | None = None) -> None:
        self.process = SkepProcess(
            "serve",
            "--log-format",
            "json",
            *arguments,
            cwd=folder,
            env={**os.environ, "SKEP_PORT": "0", **(environ or {})},
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        self.lines: list[str] = []
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            if line.startswith("{"):
                self._events.put(json.loads(line))
        self._events.put(None)

    def event(self, name: str) -> dict[str, Any]:
        """The next event of this name; what comes before it is passed over."""
        while (event := self._events.get(timeout=WAIT_SECONDS)) is not None:
            if event["event"] == name:
                return event
        raise AssertionError(f"it ended before {name!r}: {self.lines}")

    def listening(self) -> int:
        """Wait until it listens; the port."""
        return int(self.event("listening")["address"].rpartition(":")[2])

    @property
    def system(self) -> psutil.Process:
        """The process as the system sees it."""
        return psutil.Process(self.process.pid)

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self) -> int:
        """Wait for its end; the exit code."""
        code = self.process.wait(WAIT_SECONDS)
        self._reading.join(WAIT_SECONDS)
        return code


@contextmanager
def serving(*arguments: str, folder: Path, environ: dict[str, str] | None = None) -> Iterator[ServeProcess]:
    """A server on a free port unless told another, killed when left if it has not ended by then."""
    process = ServeProcess(*arguments, folder=folder, environ=environ)
    try:
        yield process
    finally:
        process.process.kill()
        process.ended()
        assert process.process.stderr is not None
        process.process.stderr.close()
