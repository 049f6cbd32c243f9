"""The real command as a process of its own: piped, as programs run it, or on a terminal, as people do."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from dataclasses import dataclass
from typing import Any

from tests.support.process import SkepProcess, run_skep

WAIT_SECONDS = 60.0
WIDTH = 100

_STYLE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What it printed."""
        assert self.code == 0, self
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        """What it printed, line by line."""
        assert self.code == 0, self
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class Command:
    """`skep`, with a server and a tenant in its environment."""

    url: str
    tenant: str

    @property
    def environ(self) -> dict[str, str]:
        return {**os.environ, "SKEP_URL": self.url, "SKEP_TENANT": self.tenant, "COLUMNS": str(WIDTH), "TERM": "xterm"}

    def __call__(self, *arguments: str, stdin: str | bytes = b"", **environ: str) -> Ended:
        """Run it with its output in pipes."""
        typed = stdin.encode() if isinstance(stdin, str) else stdin
        run = run_skep(*arguments, typed=typed, env={**self.environ, **environ}, timeout=WAIT_SECONDS)
        return Ended(run.returncode, run.stdout.decode(), run.stderr.decode())

    def on_terminal(self, *arguments: str, typed: str = "") -> Ended:
        """Run it on a terminal of its own, with this typed ahead; ``out`` is what stood on the screen."""
        outer, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, WIDTH, 0, 0))
        os.write(outer, typed.encode())
        seen: list[bytes] = []
        reading = threading.Thread(target=_read, args=(outer, seen))
        process = SkepProcess(*arguments, stdin=inner, stdout=inner, stderr=inner, env=self.environ)
        os.close(inner)
        reading.start()
        code = process.wait(WAIT_SECONDS)
        reading.join(WAIT_SECONDS)
        os.close(outer)
        return Ended(code, _STYLE.sub("", b"".join(seen).decode()).replace("\r\n", "\n"), "")

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it and let it run."""
        return SkepProcess(
            *arguments,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def _read(descriptor: int, seen: list[bytes]) -> None:
    try:
        while chunk := os.read(descriptor, 65_536):
            seen.append(chunk)
    except OSError:  # a terminal whose other side is closed
        return
