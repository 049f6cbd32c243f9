"""What a run works on: a real server process on loopback, the PostgreSQL below it if there is one, and a proxy before it."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Literal, Self
from urllib.parse import urlsplit

import psutil

from skep.client import AsyncClient
from skep.crypto.master import new_master_line
from skep.errors import SkepError
from skep.testing.binaries import temporary_root, unprivileged_account
from skep.testing.postgres import USER, PostgresServer
from torture.app_of_round import SECRET, SECRET_VARIABLE
from torture.client_process import ClientProcess
from torture.layers import Layer, environment
from torture.layers.clock import ProcessClock
from torture.layers.disk import ProcessDisk
from torture.lost import Loss
from torture.process import Process, plain_environment
from torture.proxy import Proxy
from torture.receiver import Receiver
from torture.server_time import ServerTime
from torture.spark_process import SparkProcess

StoreName = Literal["sqlite", "postgres"]
PROCESSES = ("server", "postgres")
DATA_FOLDER = "skep-data"
"""Where the server has its files: those of SQLite, or of the spool."""
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.02
SOON_BUSY = {"admission.push_load": "0.00001", "admission.ack_load": "0.001", "admission.release": "0"}
"""The server takes itself to be busy as soon as calls wait, so that some pushes and acks become operations."""


class Server:
    """`skep serve` as a process. Its port and its store stay the same from the first start to the last."""

    def __init__(
        self,
        store: str,
        folder: Path,
        settings: Mapping[str, str],
        layers: Mapping[str, str] | None = None,
        workers: int = 1,
    ) -> None:
        """``layers`` is what its environment has for them, ``workers`` how many processes it serves with."""
        self._store = store
        self._workers = workers
        self._settings = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        self._layers = dict(layers or {})
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.starts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and return once it answers."""
        self._launch()
        self.starts += 1
        async with AsyncClient(self.url, attempts=1, breaker_failures=10**9) as client, asyncio.timeout(START_SECONDS):
            while True:
                with suppress(SkepError):
                    await client.request("GET", "/health")
                    return
                if self.has_ended:
                    raise RuntimeError(f"the server ended by itself: {self.last_words()}")
                await asyncio.sleep(LOOK_SECONDS)

    def _launch(self) -> None:
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "skep", "serve", "--store", self._store, "--port", str(self.port)),
                    *("--workers", str(self._workers), *self._settings),
                ],
                cwd=self._folder,
                env={**plain_environment(), SECRET_VARIABLE: SECRET, **self._layers},
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
        return self._process is None or self._process.poll() is not None

    def last_words(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")[-2000:]

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def ended(self) -> None:
        """Wait for its end; one that takes too long is killed."""
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def processes(self) -> list[psutil.Process]:
        """The processes below the first one: workers, and the owner of the file. None, when it serves by itself."""
        with suppress(psutil.NoSuchProcess):
            return [] if self.pid is None else psutil.Process(self.pid).children(recursive=True)
        return []

    def kill(self) -> None:
        """End it at once, in the midst of whatever it does, with all its processes."""
        if self._process is not None:
            others = self.processes
            self._process.kill()
            for one in others:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(others)
            self._process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def server_name(number: int) -> str:
    """What the layers call a server."""
    return f"server{number}" if number else "server"


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that the account of PostgreSQL can reach."""
    with TemporaryDirectory(prefix="skep-layers-", dir=temporary_root(unprivileged_account())) as name:
        folder = Path(name)
        folder.chmod(0o711)
        yield folder


class NotBackError(Exception):
    """Server or PostgreSQL cannot be started after a fault."""


class Site:
    """Servers, a proxy before each and, for that store, PostgreSQL. Clients connect by way of the proxies."""

    def __init__(
        self,
        store: StoreName,
        folder: Path,
        layers: Collection[str] = (),
        *,
        servers: int = 1,
        server_workers: int = 1,
    ) -> None:
        """``layers``: those that the faults of the run need, by name. Several servers need PostgreSQL."""
        self.servers: list[Server] = []
        self.proxies: list[Proxy] = []
        self._wanted_servers = servers
        self.server_workers = server_workers
        self.store = store
        self.folder = folder
        self.layers = layers
        self.workers: list[Process] = []
        self.clients: list[ClientProcess] = []
        self.spark: SparkProcess | None = None
        """The Spark job of the round, if it has one."""
        self.postgres: PostgresServer | None = None
        self.spare: PostgresServer | None = None
        """Another PostgreSQL, which does not run. Where the layer is there, the server's address names both."""
        self._wires: dict[int, Proxy] = {}
        """Where the layer is there: between the servers and each PostgreSQL, by its port."""
        self.clocks: dict[str, ProcessClock] = {}
        """Of each server (`server`, `server1` and so on) and `postgres`, where the layer is there."""
        self.disks: dict[str, ProcessDisk] = {}
        """Of `server` and `postgres`, where the layer is there."""
        self.well = asyncio.Event()
        """Cleared during an outage: the next steps wait for its end."""
        self.well.set()
        self.time = ServerTime()
        self.losses: list[Loss] = []
        """Failovers of the round that lost commits."""
        self.database = ""
        """The name of the server's database in PostgreSQL."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        files = self.folder / DATA_FOLDER
        files.mkdir()
        address = str(files / "torture.db")
        self._make_layers()
        if self.store == "postgres":
            self.postgres = self._new_postgres()
            self.database = urlsplit(self.postgres.create_database()).path.removeprefix("/")
            if "spare" in self.layers:
                self.spare = self._new_postgres()
                self.spare.stop()
            address = await self._address()
        await self._start_servers(address)
        for layer in (*(clock.layer for clock in self.clocks.values()), *(disk.layer for disk in self.disks.values())):
            layer.check()
        for process, disk in self.disks.items():
            disk.holds(files if self.postgres is None or process == "server" else self.postgres.folder / "data")
        self.receiver = await self._stack.enter_async_context(Receiver(self.store))
        for server in self.servers:
            self.proxies.append(await self._stack.enter_async_context(Proxy(server.url)))
        return self

    async def _address(self) -> str:
        """PostgreSQL as the servers know it."""
        all_of_them = [postgres for postgres in (self.postgres, self.spare) if postgres is not None]
        dsns = [postgres.dsn() for postgres in all_of_them]
        if "wire" in self.layers:
            for postgres in all_of_them:
                self._wires[postgres.port] = await self._stack.enter_async_context(Proxy(postgres.dsn()))
            dsns = [wire.dsn for wire in self._wires.values()]
        hosts = ",".join(f"127.0.0.1:{urlsplit(dsn).port}" for dsn in dsns)
        return f"postgresql://{USER}@{hosts}/{self.database}?target_session_attrs=read-write"

    async def _start_servers(self, address: str) -> None:
        settings = {"encryption.master_keys": f"file:{self._master_keys()}", **SOON_BUSY}
        for number in range(self._wanted_servers):
            folder = self.folder / f"server{number}" if number else self.folder
            folder.mkdir(exist_ok=True)
            server = Server(address, folder, settings, self._environment(server_name(number)), self.server_workers)
            self._stack.callback(server.kill)
            await server.start()
            self.servers.append(server)

    def _make_layers(self) -> None:
        processes = PROCESSES if self.store == "postgres" else PROCESSES[:1]
        if self.layers:
            folder = self._stack.enter_context(open_folder())
            if "clock" in self.layers:
                others = [server_name(number) for number in range(1, self._wanted_servers)]
                self.clocks = {process: ProcessClock(process, folder) for process in (*processes, *others)}
            if "disk" in self.layers:
                self.disks = {process: ProcessDisk(process, folder) for process in processes}

    def _layers(self, process: str) -> list[Layer]:
        disk = process if process == "postgres" else "server"  # servers share one
        layers = [self.clocks[process].layer] if process in self.clocks else []
        return [*layers, self.disks[disk].layer] if disk in self.disks else layers

    def _new_postgres(self) -> PostgresServer:
        postgres = PostgresServer(self._environment("postgres"))
        self._stack.callback(postgres.close)
        postgres.start()
        return postgres

    @property
    def wire(self) -> Proxy:
        """What the servers reach PostgreSQL by."""
        assert self.postgres is not None
        return self._wires[self.postgres.port]

    def take_over(self) -> None:
        """From now on the spare PostgreSQL, which was promoted, is the one in use."""
        assert self.postgres is not None
        assert self.spare is not None
        self.postgres, self.spare = self.spare, self.postgres
        if "postgres" in self.disks:
            self.disks["postgres"].holds(self.postgres.folder / "data")

    def _environment(self, process: str) -> dict[str, str]:
        return environment(self._layers(process))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _master_keys(self) -> Path:
        path = self.folder / "master.keys"
        path.touch(mode=0o600)
        path.write_text(new_master_line("torture"), encoding="utf-8")
        return path

    @property
    def disk(self) -> ProcessDisk:
        """The disk that has the store."""
        return self.disks["server" if self.postgres is None else "postgres"]

    async def recover(self) -> None:
        """Start what has ended, and wait until all is well again; the next steps wait meanwhile. NotBackError when that fails."""
        self.well.clear()
        try:
            if self.postgres is not None:
                await asyncio.to_thread(revive, self.postgres)
            for server in self.servers:
                if server.has_ended:
                    await server.start()
        except (RuntimeError, TimeoutError) as error:
            raise NotBackError(str(error)) from error
        finally:
            self.well.set()

    @property
    def has_spools_apart(self) -> bool:
        """Whether several processes of one server take pushes while PostgreSQL is away."""
        return self.postgres is not None and self.server_workers > 1

    @property
    def server(self) -> Server:
        """The first server, which is the only one unless several were asked for."""
        return self.servers[0]

    @property
    def proxy(self) -> Proxy:
        """The one before the first server."""
        return self.proxies[0]

    @property
    def url(self) -> str:
        """The first server as clients know it."""
        return self.proxy.dsn

    def urls(self, first: int = 0) -> list[str]:
        """The servers as clients know them, beginning with one of them."""
        found = [proxy.dsn for proxy in self.proxies]
        first %= len(found)
        return found[first:] + found[:first]

    @property
    def followed(self) -> str:
        """Whose wall clock the server follows."""
        return "postgres" if self.store == "postgres" else "server"

    async def execute(self, sql: str, *, database: str = "") -> str:
        """Run statements in PostgreSQL, by default in the server's database, and return what they print."""
        assert self.postgres is not None
        return await asyncio.to_thread(self.postgres.execute, sql, database or self.database)


def revive(postgres: PostgresServer) -> None:
    """Wait until PostgreSQL answers, and start it when it has ended."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        if postgres.pid is None:
            postgres.start()
        try:
            postgres.execute("SELECT 1")
        except RuntimeError:
            if time.monotonic() > deadline:
                raise
            time.sleep(LOOK_SECONDS)
        else:
            return
