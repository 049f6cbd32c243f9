"""The systems: what starts them with durable settings, on loopback, with their data in a folder of this run.

A system that is not installed is left out, and the report says how it is installed. All end with the run, by their process id.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from msgspec import Struct

from skep import __version__
from skep.bench.http import ALL_IT_CAN, serving
from skep.testing.postgres import free_port, running_postgres

START_SECONDS = 60.0
STOP_SECONDS = 30.0


class Running(Struct, frozen=True):
    """A system that runs: how the loader reaches it, whose CPU time counts, and what is to be said of it."""

    name: str
    protocol: str
    address: str
    pids: tuple[int, ...]
    version: str
    durable: str


class Missing(Exception):  # noqa: N818 - not an error: the run goes on without that system
    """A system is not installed; the text says how to install it."""


Starter = Callable[[Path], AbstractContextManager[Running]]


@contextmanager
def skep_on_sqlite(folder: Path) -> Iterator[Running]:
    """Skep with a file."""
    with serving(f"{folder}/skep.db", folder, ALL_IT_CAN) as (port, pid):
        yield Running(
            "sqlite", "skep", f"127.0.0.1:{port}", (pid,), f"Skep {__version__}, SQLite", "WAL, synchronous=FULL"
        )


@contextmanager
def skep_on_postgres(folder: Path) -> Iterator[Running]:
    """Skep with a PostgreSQL of its own."""
    with running_postgres() as server, serving(server.create_database(), folder, ALL_IT_CAN) as (port, pid):
        assert server.pid is not None
        version = f"Skep {__version__}, PostgreSQL {server.execute('show server_version')}"
        durable = (
            f"fsync={server.execute('show fsync')}, synchronous_commit={server.execute('show synchronous_commit')}"
        )
        yield Running("postgres", "skep", f"127.0.0.1:{port}", (pid, server.pid), version, durable)


@contextmanager
def redis(folder: Path) -> Iterator[Running]:
    """Redis, which syncs its append-only file before it answers."""
    program = program_or_missing("redis-server", "apt-get install redis-server")
    version = said([program, "--version"]).split("v=")[1].split()[0]
    port = free_port()
    settings = {"appendonly": "yes", "appendfsync": "always", "save": ""}
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    for name, value in settings.items():
        command += [f"--{name}", value]
    with process(command, folder, port) as pid:
        durable = "appendonly yes, appendfsync always"
        yield Running("redis", "redis", f"127.0.0.1:{port}", (pid,), f"Redis {version} streams", durable)


STARTERS: dict[str, Starter] = {"sqlite": skep_on_sqlite, "postgres": skep_on_postgres, "redis": redis}


def program_or_missing(name: str, install: str) -> str:
    """Where a program is: on the path, where administrators' programs are, or beside this Python."""
    folders = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", str(Path(sys.executable).parent)])
    found = shutil.which(name, path=folders)
    if found is None:
        raise Missing(install)
    return found


def said(command: list[str]) -> str:
    """What a program prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=START_SECONDS).stdout


@contextmanager
def process(command: list[str], folder: Path, port: int, environment: dict[str, str] | None = None) -> Iterator[int]:
    """A program that listens on a port of 127.0.0.1 while the block runs: its process id."""
    output = folder / "output.log"
    with output.open("ab") as log:
        started = subprocess.Popen(
            command, cwd=folder, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )  # fmt: skip
    try:
        wait_for_port(started, port, output)
        yield started.pid
    finally:
        started.terminate()
        try:
            started.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            started.kill()
            started.wait()


def wait_for_port(started: subprocess.Popen[bytes], port: int, output: Path) -> None:
    """Return once the port is open; raise with the program's own words when it does not open."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and started.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise RuntimeError(f"{started.args!r} did not start: {output.read_text(errors='replace')[-2000:]}")
