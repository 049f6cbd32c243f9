"""The simulated machines: servers with the real engine, and the owner of the real SQLite store, whose disk outlives them.

Servers reach the owner through the real store for workers (`skep.store.remote`), whose bytes go over the simulated network. Threads of the
SQLite store are simulated too: what they are given is done a while later.
"""

from __future__ import annotations

import asyncio
import base64
import contextvars
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import structlog

from skep import ids
from skep.clock import SystemClock
from skep.crypto import envelope, master
from skep.engine import Engine, admission
from skep.errors import SkepError
from skep.ids import Id, IdMint
from skep.store import pieces
from skep.store.protocol import Store
from skep.store.remote import events
from skep.store.remote.owner import Owner
from skep.store.remote.store import RemoteStore
from skep.store.sqlite import writer
from tests.simulation.disk import Disk, DiskStore
from tests.simulation.lives import Lives
from tests.simulation.loop import Process, SimulatedLoop
from tests.simulation.network import Network
from tests.simulation.plan import Plan

MASTERS = master.MasterKeys("simulated:" + base64.b64encode(bytes(range(32))).decode())
EPOCH_NS = 1_750_000_000 * 1_000_000_000
RESTART_SECONDS = 0.2
SOCKET = Path("simulated")
MINTED: contextvars.ContextVar[list[list[Id]]] = contextvars.ContextVar("minted")
"""The ids that were minted for a client's call, which a client without an answer does not know."""


class Mint(IdMint):
    """A mint that notes for whom it mints ids of messages."""

    def mint(self) -> Id:
        return super().mint_many(1)[0]  # a token of a lease, or the id of an operation, perhaps of another call

    def mint_many(self, count: int) -> list[Id]:
        minted = super().mint_many(count)
        if (noted := MINTED.get(None)) is not None:
            noted.append(minted)
        return minted


class Threads:
    """An executor without threads: what it is given runs on the loop, a while later."""

    def __init__(self, *_: object) -> None:
        self._loop = cast(SimulatedLoop, asyncio.get_running_loop())

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run it soon. Nobody here waits for what it gives back."""
        self._loop.call_later(self._loop.random.random() * 0.003, work, *arguments)
        return Future()

    def shutdown(self) -> None:
        """There is nothing to end."""


class Machine(ABC):
    """A process that is started again after its death."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.deaths = 0
        skew = world.plan.skew_seconds
        self.skew_ns = round((2 * world.loop.random.random() - 1) * skew * 1_000_000_000) if skew else 0
        self.process = self._born()

    def _born(self) -> Process:
        process = self.world.loop.process(f"{self.name}.{self.deaths}")
        process.on_death = self._died
        return process

    def start(self) -> None:
        """Run it in its process."""
        self.world.loop.create_task(self.run(), context=self.process.context())

    def _died(self) -> None:
        self.deaths += 1
        self.forget()
        self.world.network.lost(self.process)
        self.process = self._born()
        self.world.loop.call_later(RESTART_SECONDS, self.start, context=self.process.context())

    @abstractmethod
    async def run(self) -> None:
        """What the process does."""

    @abstractmethod
    def forget(self) -> None:
        """Lose what was in memory."""

    def clock(self) -> SystemClock:
        """The real clock, on simulated time, and as wrong as this machine's."""
        loop, wall = self.world.loop, self.world.wall
        return SystemClock(lambda: EPOCH_NS + loop.nanoseconds() + wall.ahead_ns + self.skew_ns, loop.nanoseconds)


class OwnerMachine(Machine):
    """The process that has the file."""

    _owner: Owner | None = None

    async def run(self) -> None:
        store = DiskStore(self.world.disk)
        await store.open()
        self.world.network.listening_as = self.process
        self._owner = Owner(store, self.clock())
        await self._owner.listen(cast(Any, None))

    def calls(self) -> list[asyncio.Task[None]]:
        """The calls that it has begun, and not finished."""
        return [] if self._owner is None else list(self._owner._tasks)

    def forget(self) -> None:
        self._owner = None
        self.world.disk.crash()


class SessionStore(RemoteStore):
    """The store for workers, with sessions as PostgreSQL has them: what was asked in a session takes no effect once that was ended."""

    def __init__(self, machine: ServerMachine) -> None:
        super().__init__(SOCKET)
        self._world = machine.world
        self._process = machine.process

    @property
    def session(self) -> str:
        return self._process.name

    async def resume(self) -> None:
        self._world.network.lost(self._process)
        await self.fence([self.session])
        await self._connected()

    async def fence(self, sessions: Sequence[str]) -> None:
        """Wait for the calls that the owner has begun: those on their way are lost with their connections."""
        owner = self._world.owner
        process, calls = owner.process, owner.calls()
        while not process.dead and not all(call.done() for call in calls):
            await self._world.loop.passed(RESTART_SECONDS)


class ServerMachine(Machine):
    """A server: an engine on the store for workers."""

    engine: Engine | None = None
    _begun: Engine | None = None
    """The engine, also while it is being started."""

    async def run(self) -> None:
        clock = self.clock()
        store = SessionStore(self)
        while self.engine is None:
            self._begun = engine = Engine(
                cast(Store, store),
                clock,
                Mint(clock),
                Random(self.world.loop.random.random()),
                self.world.plan.engine,
                self.world.folder / self.name if self.world.folder is not None else None,
                MASTERS if self.world.plan.encrypts else None,
            )
            try:
                await store.open()
                await engine.start()
            except SkepError:
                await self.world.loop.passed(RESTART_SECONDS)
            else:
                self.engine = engine

    def forget(self) -> None:
        if self._begun is not None and self._begun.spool is not None:
            self._begun.spool._close_slots()  # as the kernel does for a process that dies
        self.engine = self._begun = None


@dataclass
class Wall:
    """The wall clock of the machine that all processes are on, by so much ahead of the time that has passed."""

    ahead_ns: int = 0

    def put(self, ahead_seconds: float) -> None:
        """Set the clock."""
        self.ahead_ns = round(ahead_seconds * 1_000_000_000)


class World:
    """The owner, the servers and the network between them."""

    def __init__(self, loop: SimulatedLoop, plan: Plan, disk: Disk) -> None:
        self.loop = loop
        self.plan = plan
        self.disk = disk
        self.wall = Wall()
        self.lives = Lives()
        self.folder = Path(tempfile.mkdtemp(prefix="skep-simulated-")) if plan.spools else None
        """The folder of all spools."""
        self.clients: list[Any] = []
        self.network = Network(loop, replace(plan.weather))
        self.owner = OwnerMachine(self, "owner")
        self.servers = [ServerMachine(self, f"server {number}") for number in range(plan.servers)]
        for machine in self.machines:
            machine.start()

    def close(self) -> None:
        """Remove what is left outside of memory."""
        for server in self.servers:
            server.forget()
        if self.folder is not None:
            shutil.rmtree(self.folder)

    @property
    def machines(self) -> list[Machine]:
        """All that can die."""
        return [self.owner, *self.servers]


@contextmanager
def simulated(loop: SimulatedLoop) -> Iterator[list[str]]:
    """Let the product have time, chance and threads from the loop. The list gets what it logs as errors."""
    told: list[str] = []
    time = SimpleNamespace(perf_counter=loop.time, monotonic=loop.time)
    replaced: list[tuple[ModuleType, str, object]] = [
        (writer, "time", time),
        (writer, "ThreadPoolExecutor", Threads),
        (pieces, "time", time),
        (pieces, "LEAST", 1_000_000),
        (admission, "time", time),
        (ids, "os", SimpleNamespace(urandom=loop.random.randbytes)),
        (envelope, "os", SimpleNamespace(urandom=loop.random.randbytes)),
        (master, "os", SimpleNamespace(urandom=loop.random.randbytes)),
        (events, "secrets", SimpleNamespace(token_hex=lambda count: loop.random.randbytes(count).hex())),
    ]
    before = [(module, name, vars(module)[name]) for module, name, _ in replaced]
    logs = structlog.get_config()

    def note(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        told.append(str(event))
        raise structlog.DropEvent

    try:
        for module, name, value in replaced:
            vars(module)[name] = value
        structlog.configure(processors=[note], wrapper_class=structlog.make_filtering_bound_logger(40))
        yield told
    finally:
        structlog.configure(**logs)
        for module, name, value in before:
            vars(module)[name] = value
