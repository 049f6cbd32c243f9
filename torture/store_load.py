"""The load on a store itself, without a server: clients in one process, or each in a process of its own on one PostgreSQL.

Several processes agree on the time by the machine's clock. What engines do by timers, clients do as steps. `torture.engine_load` has the
load on engines.
"""

from __future__ import annotations

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable, Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, field

from skep.model import QueueKey
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from torture.history import Call, History
from torture.lives import empty, is_drained
from torture.load_client import LoadClient
from torture.queues import Queues, groups_of
from torture.store_caller import StoreCaller

T = TypeVar("T")

KINDS = ("keyed", "loose", "single", "moved", "strewn", "delayed", "windowed", "brief", "aging", "swept", "full")
DRAIN_SECONDS = 90.0
PAUSE_SECONDS = 0.05


async def do_chores(client: LoadClient[StoreCaller]) -> None:
    await client.caller.do_chores(client.some_queue())


async def look(client: LoadClient[StoreCaller]) -> None:
    await client.caller.figures(client.some_queue().key)


STORE_STEPS: dict[str, tuple[float, Callable[[LoadClient[StoreCaller]], Awaitable[None]]]] = {
    "push": (14, LoadClient.push_one),
    "push_batch": (10, LoadClient.push_batch),
    "push_scheduled": (3, LoadClient.push_scheduled),
    "transact": (4, LoadClient.transact),
    "pop": (40, LoadClient.pop),
    "pop_auto_ack": (2, LoadClient.pop_auto_ack),
    "settle_late": (5, LoadClient.settle_late),
    "settle_twice": (2, LoadClient.settle_twice),
    "renew": (3, LoadClient.renew),
    "release": (3, LoadClient.release),
    "seek": (2, LoadClient.seek),
    "clear": (0.5, LoadClient.clear),
    "delete_message": (0.7, LoadClient.delete_message),
    "forget": (1, LoadClient.forget),
    "delete_group": (0.7, LoadClient.delete_group),
    "chores": (5, do_chores),
    "look": (3, look),
}


Steps = Mapping[str, tuple[float, Callable[[LoadClient[StoreCaller]], Awaitable[None]]]]
"""Each step by name: its weight, and what it does."""


class StoreLoad(Struct, frozen=True):
    """How much is done, and what."""

    clients: int
    steps: int
    seed: int = 1
    kinds: tuple[str, ...] = KINDS
    """Of queues."""
    menu: Steps = field(default_factory=lambda: STORE_STEPS)

    @property
    def queues(self) -> Queues:
        made = Queues.of_round(0, is_shared=True)
        return Queues(0, {kind: made.of_kind[kind] for kind in self.kinds}, {})


async def run_in_process(load: StoreLoad, *stores: Store) -> History:
    """All clients at once in this process, the first on the first store, and so on."""
    await prepare(load, stores[0])
    calls = await asyncio.gather(*(work(load, stores[n % len(stores)], n) for n in range(load.clients)))
    return await drained_history(load, stores[0], [call for one in calls for call in one])


def run_processes(load: StoreLoad, dsn: str, folder: Path, context: ForkServerContext) -> History:
    """Each client in a process of its own, which the context makes, on one PostgreSQL."""
    asyncio.run(_with_store(dsn, lambda store: prepare(load, store)))
    files = [folder / f"client{number}" for number in range(load.clients)]
    processes = [
        context.Process(target=work_in_process, args=(load, dsn, number, file)) for number, file in enumerate(files)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"clients failed: {[process.exitcode for process in processes]}")
    calls = [call for file in files for call in pickle.loads(file.read_bytes())]  # noqa: S301 - of our own processes
    return asyncio.run(_with_store(dsn, lambda store: drained_history(load, store, calls)))


def work_in_process(load: StoreLoad, dsn: str, number: int, file: Path) -> None:
    """The body of one process: work, then leave the calls behind."""
    calls = asyncio.run(_with_store(dsn, lambda store: work(load, store, number)))
    file.write_bytes(pickle.dumps(calls))


async def _with_store(dsn: str, use: Callable[[Store], Awaitable[T]]) -> T:
    store = PostgresStore(dsn, max_connections=2)
    await store.open()
    try:
        return await use(store)
    finally:
        await store.close()


async def prepare(load: StoreLoad, store: Store) -> None:
    """Queues, and groups before the first push."""
    caller = StoreCaller(store, "maker", "maker")
    for queue in load.queues.of_kind.values():
        await store.create_queue(queue.key, queue.settings, caller.clock.now())
        for group in groups_of(queue):
            await caller.pop(queue.key, group, keys=QueueKey)


async def work(load: StoreLoad, store: Store, number: int) -> list[Call]:
    """The steps of one client; its calls."""
    seed = f"{load.seed}/0/{number}"
    client = LoadClient(StoreCaller(store, f"client{number}", seed), load.queues, seed)
    weights = [weight for weight, _ in load.menu.values()]
    for step in range(load.steps):
        client.begin(str(step))
        [name] = client.chance.choices(list(load.menu), weights)
        await load.menu[name][1](client)
    return client.caller.calls


async def drained_history(load: StoreLoad, store: Store, calls: list[Call]) -> History:
    """Everything drained and looked at, as the checker wants it."""
    observer = StoreCaller(store, "observer", "observer")
    over = time.monotonic() + DRAIN_SECONDS
    for queue in load.queues.of_kind.values():
        while not is_drained(await observer.figures(queue.key)) and time.monotonic() < over:
            await observer.do_chores(queue)
            await empty(observer, queue, load.queues)
            await asyncio.sleep(PAUSE_SECONDS)
    for queue in load.queues.of_kind.values():
        await observer.figures(queue.key)
        await observer.recorder.log(queue.key, observer.clock.now())
        await observer.look_at_dead_letters(queue.key)
    return History([*calls, *observer.calls], load.queues.settings(), drained=True)
