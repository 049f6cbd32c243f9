"""Steps that end the life of a queue: it is deleted and made again, or gets another ordering. Nobody else calls meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import structs

from skep.errors import Code, SkepError
from skep.model import Ordering, QueueStats
from torture import looks
from torture.caller import Caller
from torture.load_caller import LoadCaller
from torture.load_client import LoadClient
from torture.queues import LEASE_SECONDS, Queues, RoundQueue, groups_of
from torture.site import NotBackError

PAUSE_SECONDS = 0.05
MOST_TRIES = 200
DRAIN_BATCH = 100
MOST_PASSES = 50
"""How often a queue is popped before its ordering is left as it is: leases of others run out meanwhile."""


async def remake(client: LoadClient[Caller]) -> None:
    queue = client.queues.of_kind["remade"]
    async with queue.alone() as key:
        await client.caller.note("delete_queue", (key,), _delete(client.caller, queue.name), lambda _: None)
        await until_done(lambda: client.caller.again.configure(queue.name, **changed(queue)))
        queue.begin_life(queue.settings)


async def _delete(caller: Caller, name: str) -> None:
    """Delete until it is certain: the next life begins after it."""

    async def delete() -> None:
        try:
            await caller.again.delete_queue(name)
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                raise

    await until_done(delete)


async def turn(client: LoadClient[Caller]) -> None:
    """Give a queue another ordering, which needs all of it to be settled."""
    queue, caller = client.queues.of_kind["turned"], client.caller
    others = [ordering for ordering in Ordering if ordering is not queue.settings.ordering]
    wanted = client.chance.choice(others)
    async with queue.alone() as key:
        stats: QueueStats | None = None
        for _ in range(MOST_PASSES):
            if is_drained(stats := await looks.look_at_figures(caller, key)):
                break
            await empty(caller, queue, client.queues)
        else:
            return
        # What this look does not see, and is stored before the change, is not settled: it keeps the queue from being changed.
        await until_seen(caller, lambda: looks.look_at_log(caller, key, after=queue.floor))
        if stats is not None and await _configured(caller, queue.name, wanted):
            queue.begin_life(structs.replace(queue.settings, ordering=wanted), stats.last_seq)


async def _configured(caller: Caller, name: str, wanted: Ordering) -> bool:
    """Whether the queue has the ordering; it stays as it was while something is unsettled."""
    refused = False

    async def configure() -> None:
        nonlocal refused
        try:
            await caller.again.configure(name, ordering=wanted)
        except SkepError as error:
            if error.code is not Code.INVALID_SETTING:
                raise
            refused = True

    await until_done(configure)
    return not refused


async def empty(caller: LoadCaller, queue: RoundQueue, queues: Queues) -> None:
    """Pop for each group until nothing comes, and ack what does.

    What a dead client held in an unordered queue comes one message at a time: a wait for the other groups after each would take minutes.
    """
    options: dict[str, Any] = {
        "batch": DRAIN_BATCH * queues.bulk,
        "wait_seconds": 0.1,
        "lease_seconds": 10 * LEASE_SECONDS,
    }
    for group in groups_of(queue):
        while popped := await caller.pop(queue.key, group, keys=queues.key_of, **options):
            await caller.ack(popped)


def is_drained(stats: QueueStats | None) -> bool:
    return (
        stats is not None
        and stats.scheduled == 0
        and bool(stats.groups)
        and all(group.pending == group.in_flight == 0 for group in stats.groups)
    )


async def until_done(call: Callable[[], Awaitable[object]]) -> None:
    """Repeat a call until it is answered; what comes next depends on it. NotBackError when it never is."""
    for _ in range(MOST_TRIES):
        try:
            await call()
        except SkepError:
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            return
    raise NotBackError(f"the server did not answer {MOST_TRIES} times in a row")


async def until_seen(caller: Caller, look: Callable[[], Awaitable[object]]) -> None:
    """Repeat a look until it has an answer. One that was refused is not noted."""
    for _ in range(MOST_TRIES):
        noted = len(caller.calls)
        await look()
        if len(caller.calls) > noted and caller.calls[-1].ended is not None:
            return
        await asyncio.sleep(PAUSE_SECONDS)


def changed(queue: RoundQueue) -> dict[str, Any]:
    """The settings of a queue that are not the usual ones."""
    usual = type(queue.settings)()
    names = queue.settings.__struct_fields__
    return {n: getattr(queue.settings, n) for n in names if getattr(queue.settings, n) != getattr(usual, n)}
