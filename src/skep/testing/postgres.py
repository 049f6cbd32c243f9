"""A real PostgreSQL that lives as long as the test or benchmark that started it.

Its data is in a temporary folder of its own, durable as in production (fsync on), and it listens on 127.0.0.1 and on a
socket in that folder. Whatever way its owner ends, a guard process ends the server and removes the folder.
"""

import atexit
import functools
import itertools
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import psutil

from skep.testing.binaries import (
    SystemUser,
    clean_environment,
    programs_for,
    run_as,
    temporary_root,
    unprivileged_account,
)

USER = "skep"
SETTINGS: dict[str, str | int] = {"fsync": "on", "max_connections": 200, "shared_buffers": "256MB"}
START_TIMEOUT = 60.0
STOP_TIMEOUT = 60.0
POLL_SECONDS = 0.02
PORT_ATTEMPTS = 5  # another process may take the free port that we found before PostgreSQL does

# Its input is the server's pid, or an empty line when no server runs; the end of input means that the owner is gone.
GUARD = """
trap '' HUP INT TERM
while read -r line; do pid=$line; done
if [ -n "$pid" ] && kill -QUIT "$pid" 2>/dev/null; then
    tries=0
    while kill -0 "$pid" 2>/dev/null && [ $tries -lt 10 ]; do sleep 1; tries=$((tries + 1)); done
fi
rm -rf -- "$1"
"""


class PostgresServer:
    """One PostgreSQL server: `start`, any of `stop`, `kill` and `restart`, then `close`.

    Its data and its address stay the same from the first `start` until `close`. Settings are PostgreSQL's own and come
    on top of `SETTINGS`; ``environment`` comes on top of what its process has.
    """

    def __init__(self, environment: Mapping[str, str] | None = None, /, **settings: str | int) -> None:
        self._environment = {**clean_environment(), **(environment or {})}
        self._settings = SETTINGS | settings
        self._account = unprivileged_account()
        self._programs = programs_for(self._account)
        self._names = (f"test_{number}" for number in itertools.count(1))
        self._folder: Path | None = None
        self._guard: subprocess.Popen[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0

    @property
    def folder(self) -> Path:
        """The folder that holds `data`, `log` and the socket."""
        if self._folder is None:
            raise RuntimeError("PostgreSQL was never started, or is closed")
        return self._folder

    @property
    def pid(self) -> int | None:
        """The server's process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Start the server, on the data it has if it was started before, and return once it accepts connections."""
        if self.pid is not None:
            raise RuntimeError("PostgreSQL is running already")
        if self._folder is None:
            self._initialise()
            self._launch_on_a_free_port()
        else:
            self._launch()

    def stop(self) -> None:
        """Shut down cleanly, cutting open connections; the data stays for the next `start`."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._process.wait(STOP_TIMEOUT)
        self._forget_process()

    def kill(self) -> None:
        """End every process of the server at once, as a crash would, in the midst of whatever it does."""
        if self._process is None:
            return
        if self._process.poll() is None:
            kill_family(self._process.pid)
        self._process.wait(STOP_TIMEOUT)
        self._forget_process()

    def restart(self) -> None:
        """Stop the server if it runs, and start it on the same data and port."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its folder."""
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
        finally:
            guard, self._guard, self._folder = self._guard, None, None
            if guard is not None:
                end_guard(guard)

    def dsn(self, database: str = "postgres", *, over_socket: bool = False) -> str:
        """Return the dsn of a database, over 127.0.0.1 or over the faster socket."""
        if over_socket:
            return f"postgresql://{USER}@/{database}?host={quote(str(self.folder), safe='')}&port={self.port}"
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, *, template: str = "template1") -> str:
        """Make a database as a copy of `template`, to which nobody may be connected, and return its dsn."""
        name = next(self._names)
        self.execute(f'create database "{name}" template "{template}" strategy file_copy')  # no WAL: half the work
        return self.dsn(name)

    def drop_database(self, dsn: str) -> None:
        """Drop the database of a dsn, cutting the connections to it."""
        name = urlsplit(dsn).path.removeprefix("/")
        self.execute(f'drop database if exists "{name}" with (force)')

    def execute(self, sql: str, database: str = "postgres") -> str:
        """Run statements through psql and return what they print: unaligned, without headers."""
        address: list[str | Path] = ["-h", self.folder, "-p", str(self.port), "-U", USER, "-d", database]
        options: list[str | Path] = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql]
        return run_program(self._account, [self._programs / "psql", *address, *options])

    def log(self) -> str:
        """Return what the server has logged since its first start."""
        return (self.folder / "log").read_text(errors="replace")

    def _initialise(self) -> None:
        """Copy new data: this takes a tenth of the time that making them does."""
        data = new_data(self._account, self._programs)
        self._folder, self._guard = guarded_folder(self._account)
        run_program(self._account, ["cp", "-Rp", data, self._folder / "data"])

    def _launch_on_a_free_port(self) -> None:
        for attempts_left in reversed(range(PORT_ATTEMPTS)):
            self.port = free_port()
            try:
                self._launch()
            except PortTakenError:
                if not attempts_left:
                    raise
            else:
                break

    def _launch(self) -> None:
        fixed = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": self.folder}
        options = [f"--{name}={value}" for name, value in (self._settings | fixed).items()]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", "-D", self.folder / "data", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=self._environment,
                start_new_session=True,
                user=self._account.user,
                group=self._account.group,
                extra_groups=self._account.extra_groups,
            )
        self._tell_guard(str(self._process.pid))
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                self._forget_process()
                log = self.log()
                raise (PortTakenError if "could not bind" in log else RuntimeError)(f"PostgreSQL did not start:\n{log}")
            if self._is_ready(self._process.pid):
                return
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"PostgreSQL was not ready after {START_TIMEOUT} s:\n{self.log()}")

    def _is_ready(self, pid: int) -> bool:
        """Whether the server says so in its file: its process id in the first line, its status in the last."""
        try:
            first, *_, last = (self.folder / "data" / "postmaster.pid").read_text().split()
        except (FileNotFoundError, ValueError):
            return False
        return first == str(pid) and last == "ready"

    def _forget_process(self) -> None:
        self._process = None
        self._tell_guard("")

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.write(f"{line}\n")
            self._guard.stdin.flush()


class PortTakenError(RuntimeError):
    """Another process listens on the port that was chosen."""


@functools.cache
def new_data(account: SystemUser, programs: Path) -> Path:
    """Make the data of a server that was never started, once in each process; they are removed at its end."""
    folder, guard = guarded_folder(account)
    atexit.register(end_guard, guard)
    # Not synced: new data need not survive a power cut, and the server itself syncs what it writes later.
    options = ["--username", USER, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"]
    run_program(account, [programs / "initdb", "-D", folder / "data", *options])
    return folder / "data"


def guarded_folder(account: SystemUser) -> tuple[Path, subprocess.Popen[str]]:
    """Make a temporary folder of `account`, and start the guard that removes it."""
    folder = Path(tempfile.mkdtemp(prefix="skep-pg-", dir=temporary_root(account)))
    guard = subprocess.Popen(
        ["/bin/sh", "-c", GUARD, "guard", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        text=True,
        start_new_session=True,
    )
    if account.user is not None and account.group is not None:
        os.chown(folder, account.user, account.group)
    return folder, guard


def end_guard(guard: subprocess.Popen[str]) -> None:
    """Let a guard remove its folder, and wait until it has."""
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait(STOP_TIMEOUT)


def run_program(account: SystemUser, command: list[str | Path]) -> str:
    """Run a program to its end as `account`, and return what it prints; RuntimeError with its words when it fails."""
    run = run_as(account, command)
    if run.returncode != 0:
        raise RuntimeError(f"{Path(command[0]).name} failed: {run.stderr.strip()}")
    return run.stdout.strip()


@contextmanager
def running_postgres(**settings: str | int) -> Iterator[PostgresServer]:
    """Start a PostgreSQL, and close it at the end of the block."""
    with closing(PostgresServer(**settings)) as server:
        server.start()
        yield server


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def kill_family(pid: int) -> None:
    """SIGKILL a server and its children, which lead sessions of their own and so are in no common process group.

    The server is stopped first, so that it neither starts new children nor reacts to the death of the old ones.
    """
    server = psutil.Process(pid)
    server.suspend()
    family = [*server.children(recursive=True), server]
    for process in family:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + STOP_TIMEOUT
    while not all(is_dead(process) for process in family):
        if time.monotonic() > deadline:
            raise TimeoutError(f"PostgreSQL's processes outlived SIGKILL: {family}")
        time.sleep(POLL_SECONDS)


def is_dead(process: psutil.Process) -> bool:
    """Whether a process has ended; orphans may stay as zombies where nobody reaps them."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
