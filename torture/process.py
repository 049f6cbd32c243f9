"""A program that a run starts beside the server, and may kill or stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

TOLD_CHARACTERS = 2_000


class Process:
    """A module of Python as a process of its own; what it says goes to a file."""

    def __init__(self, arguments: list[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._log = log
        self._environment = {**plain_environment(), **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", *self._arguments],
                cwd=self._log.parent,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def has_ended(self) -> bool:
        return self.pid is None

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-TOLD_CHARACTERS:]

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once, in the midst of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def plain_environment() -> dict[str, str]:
    """The environment without settings of Skep."""
    return {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
