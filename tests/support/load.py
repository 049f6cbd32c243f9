"""A load of many processes on one PostgreSQL, every call of which is recorded.

Pushers repeat each other's transaction ids; poppers nack, reject, forget messages, and come back to them late with
stale tokens. Time is the machine's, as several processes have to agree on it. No pytest here: each process imports it.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import random
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from msgspec import structs

from skep.clock import Clock, Instant, SystemClock
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    WHOLE_LEASE,
    Delivery,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PushBatch,
    QueueKey,
    QueueSettings,
    Retry,
    Settlement,
    Token,
)
from skep.store.postgres import PostgresStore
from torture.history import Call, History
from torture.recorder import Recorder

T = TypeVar("T")

POPPERS = 8
PUSHERS = 4
GROUPS = ("g", "h")
ORDERED = QueueKey("ordered", "load")
UNORDERED = QueueKey("unordered", "load")
SETTINGS = {
    ORDERED: QueueSettings(max_attempts=0),
    UNORDERED: QueueSettings(max_attempts=0, ordering=Ordering.UNORDERED),
}


@dataclass(frozen=True)
class Load:
    """How much is done, and how badly."""

    dsn: str
    folder: Path
    pushes: int
    batch: int = 20
    partitions: int = 1000
    lease_seconds: float = 0.25
    seed: int = 1


def run_client(load: Load, name: str, number: int, role: str) -> None:
    """The body of one process: work until done, then leave the history of it behind."""
    calls = asyncio.run(_client(load, name, number, role))
    (load.folder / name).write_bytes(pickle.dumps(calls))


async def _client(load: Load, name: str, number: int, role: str) -> list[Call]:
    store = PostgresStore(load.dsn, max_connections=2)
    await store.open()
    recorder = Recorder(store, name)
    chance = random.Random(f"{load.seed}/{name}")
    clock = SystemClock()
    try:
        if role == "push":
            await _push(load, recorder, number, chance, clock)
            (load.folder / f"{name}.done").touch()
        else:
            await _pop(load, recorder, GROUPS[number % len(GROUPS)], chance, clock)
    finally:
        await store.close()
    return recorder.calls


async def _push(load: Load, recorder: Recorder, number: int, chance: random.Random, clock: Clock) -> None:
    mint = IdMint(clock)
    for n in range(load.pushes):
        messages = [_message(load, number, n, i, chance) for i in range(load.batch)]
        await _unless_busy(recorder.push([PushBatch(messages, mint.mint_many(len(messages)))], clock.now()))
        await _push_to_who_waits(load, recorder, f"{number}/{n}", chance, clock, mint)


async def _push_to_who_waits(
    load: Load, recorder: Recorder, payload: str, chance: random.Random, clock: Clock, mint: IdMint
) -> None:
    """One message, often to a partition that others work on, and what is ready with it claimed in the same transaction."""
    partition = chance.choice((f"p{chance.randrange(load.partitions)}", f"own {payload}"))
    batch = PushBatch([NewMessage(queue=ORDERED, payload=payload.encode(), partition=partition)], mint.mint_many(1))
    request = PopRequest(
        queue=ORDERED,
        token=Token(bytes(mint.mint())),
        group=chance.choice(GROUPS),
        batch=chance.choice((1, 10)),
        lease_seconds=load.lease_seconds,
    )
    answer = await _unless_busy(recorder.push_and_pop([batch], [request], clock.now()))
    if answer is not None and answer[1][0] is not None:
        await _settle(load, recorder, answer[1][0].deliveries, chance, clock)


def _message(load: Load, number: int, n: int, i: int, chance: random.Random) -> NewMessage:
    """One in ten is pushed by every pusher, at about the same time."""
    shared = i % 10 == 0
    return NewMessage(
        queue=chance.choice((ORDERED, UNORDERED)) if not shared else (ORDERED, UNORDERED)[n % 2],
        payload=f"{n}/{i}".encode() if shared else f"{number}/{n}/{i}".encode(),
        partition=f"p{(n * load.batch + i) % load.partitions}" if shared else f"p{chance.randrange(load.partitions)}",
        transaction_id=f"t{n}/{i}" if shared else None,
    )


async def _pop(load: Load, recorder: Recorder, group: str, chance: random.Random, clock: Clock) -> None:
    mint = IdMint(clock)
    forgotten: list[Delivery] = []
    # By queue: one may be empty for long while the other is retried one message at a time.
    idle = dict.fromkeys(SETTINGS, 0)
    while min(idle.values()) < 3:
        queue = chance.choice((ORDERED, UNORDERED))
        request = PopRequest(
            queue=queue,
            token=Token(bytes(mint.mint())),
            group=group,
            batch=chance.choice((1, 10, 50)),
            max_partitions=chance.choice((0, 0, 1)),
            lease_seconds=load.lease_seconds,
        )
        results = await _unless_busy(recorder.pop([request], clock.now()))
        if results is None:
            continue
        (result,) = results
        if not result.deliveries:
            done = len(list(load.folder.glob("*.done"))) == PUSHERS
            idle[queue] += done
            # What is in flight elsewhere comes again after its lease; nothing else can happen before.
            await clock.sleep_until(Instant(clock.now() + int(load.lease_seconds * 500_000)))
            continue
        idle[queue] = 0
        fate = chance.random()
        if fate < 0.1:
            forgotten += result.deliveries
        elif fate < 0.4:
            await _ack_leases(recorder, result.deliveries, clock)
        else:
            await _settle(load, recorder, result.deliveries, chance, clock)
        if forgotten and chance.random() < 0.2:
            await _settle(load, recorder, forgotten[:20], chance, clock)
            del forgotten[:20]


async def _ack_leases(recorder: Recorder, deliveries: list[Delivery], clock: Clock) -> None:
    leases = {(one.queue, one.partition): one.settlement(Outcome.ACK_THROUGH) for one in deliveries}
    settlements = [structs.replace(lease, seq=WHOLE_LEASE) for lease in leases.values()]
    await _unless_busy(recorder.settle(settlements, clock.now()))


async def _settle(
    load: Load, recorder: Recorder, deliveries: list[Delivery], chance: random.Random, clock: Clock
) -> None:
    settlements = []
    for delivery in deliveries:
        fate = chance.random()
        if fate < 0.03:
            continue
        outcome = Outcome.NACK if fate < 0.06 else Outcome.REJECT if fate < 0.08 else Outcome.ACK
        settlements.append(
            Settlement(
                queue=delivery.queue,
                partition=delivery.partition,
                seq=delivery.seq,
                token=delivery.token,
                group=delivery.group,
                outcome=outcome,
                retry=Retry.NOW,
            )
        )
    if not settlements:
        return
    if any(one.outcome is not Outcome.ACK for one in settlements) or chance.random() < 0.5:
        await _unless_busy(recorder.settle(settlements, clock.now()))
        return
    # For somebody who waits; what that one gets, it settles in the same way.
    token = Token(bytes(IdMint(clock).mint()))
    request = PopRequest(
        queue=settlements[0].queue,
        token=token,
        group=settlements[0].group,
        batch=10,
        lease_seconds=load.lease_seconds,
    )
    answer = await _unless_busy(recorder.settle_and_pop(settlements, [request], clock.now()))
    if answer is not None and answer[1][0] is not None:
        await _settle(load, recorder, answer[1][0].deliveries, chance, clock)


async def _unless_busy(call: Awaitable[T]) -> T | None:
    """What a call gives; None where a slow machine kept it waiting for a lock, and the history says that nobody knows."""
    try:
        return await call
    except SkepError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        return None


def run_load(load: Load) -> History:
    """Start all processes, wait for them, and merge what they recorded."""
    asyncio.run(_prepare(load.dsn))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    clients = [(f"pusher-{n}", n, "push") for n in range(PUSHERS)] + [(f"popper-{n}", n, "pop") for n in range(POPPERS)]
    processes = [context.Process(target=run_client, args=(load, *client)) for client in clients]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise RuntimeError(f"clients failed: {[process.exitcode for process in processes]}")
    calls = [call for name, _, _ in clients for call in pickle.loads((load.folder / name).read_bytes())]
    calls += asyncio.run(_look(load.dsn))
    return History(calls, SETTINGS)


async def _prepare(dsn: str) -> None:
    store = PostgresStore(dsn)
    await store.open()
    try:
        for queue, settings in SETTINGS.items():
            await store.create_queue(queue, settings, SystemClock().now())
    finally:
        await store.close()


async def _look(dsn: str) -> list[Call]:
    store = PostgresStore(dsn)
    await store.open()
    try:
        recorder = Recorder(store, "observer")
        for queue in SETTINGS:
            await recorder.stats(queue, SystemClock().now())
            await recorder.log(queue, SystemClock().now())
    finally:
        await store.close()
    return recorder.calls
