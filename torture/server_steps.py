"""Steps that need a server: what its engine does, and what is done to it by hand."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from skep.model import QueueKey
from torture import looks
from torture.caller import Caller
from torture.load_caller import LoadCaller
from torture.load_client import Held, LoadClient
from torture.queues import GROUPS, LEASE_SECONDS, NAMESPACE

C = TypeVar("C", bound=LoadCaller)

PAUSE_SECONDS = 0.05
BURST = 12
TURNS = 4
MOST_LETTERS = 200
"""Of dead letters that a step looks at: with large batches there are tens of thousands, and the look at the end sees all."""
LONG_SECONDS = 30 * 86_400.0
"""Longer than all that clocks are put ahead by."""


async def push_burst(client: LoadClient[C]) -> None:
    """Pushes of one message each at the same time: the server takes itself to be busy, and queues some as operations."""
    async with client.some_queue("keyed", "single", "loose", "typed").calling() as key:
        messages = client.messages(key, BURST)
        await asyncio.gather(*(client.caller.push(key, [message]) for message in messages))


async def push_buffered(client: LoadClient[C]) -> None:
    async with client.some_queue("keyed", "loose", "single").calling() as key:
        await client.caller.push(key, client.messages(key, client.chance.randint(1, 5), plain=True), buffered=True)


async def pop_namespace(client: LoadClient[C]) -> None:
    named = [client.queues.of_kind[kind] for kind in ("keyed", "loose")]
    async with named[0].calling(), named[1].calling():
        group = client.chance.choice(GROUPS)
        found = await client.caller.pop(
            QueueKey(""),
            group,
            keys=client.queues.key_of,
            namespace=NAMESPACE,
            batch=10 * client.queues.bulk,
            lease_seconds=LEASE_SECONDS,
        )
        of_key = {queue.key: queue for queue in named}
        await client.treat([Held(message, delivery, of_key[delivery.queue]) for message, delivery in found])


async def pop_and_ack(client: LoadClient[Caller]) -> None:
    """A consumer that acks each batch with the pop of the next one, again when there was no answer, and stops somewhere."""
    queue, group = client.some_queue(), client.chance.choice(GROUPS)
    async with queue.calling() as key:
        options: dict[str, Any] = {
            "batch": client.queues.bulk * client.chance.choice((1, 5, 20)),
            "lease_seconds": LEASE_SECONDS,
        }
        if client.chance.random() < 0.5:
            options["wait_seconds"] = client.chance.choice((0.05, 0.3))
        held = await client.caller.pop(key, group, keys=client.queues.key_of, **options)
        for _ in range(client.chance.randint(1, TURNS) if held else 0):
            found = await client.caller.go_on(key, group, held, keys=client.queues.key_of, **options)
            if found is not None:
                held = found
            if not held:
                break
        await client.treat([Held(message, delivery, queue) for message, delivery in held])


async def pause(client: LoadClient[Caller]) -> None:
    queue = client.some_queue("windowed", "delayed")
    async with queue.calling():
        await client.caller.note("pause", queue.key, client.caller.again.pause(queue.name), lambda _: None)
        await asyncio.sleep(PAUSE_SECONDS)
        await client.caller.note("resume", queue.key, client.caller.again.resume(queue.name), lambda _: None)


async def configure(client: LoadClient[Caller]) -> None:
    """Change settings that change no promise, under load."""
    queue = client.some_queue("keyed", "loose", "single")
    async with queue.calling():
        backoff = client.chance.choice((5, 10, 20))
        asked = client.caller.again.configure(queue.name, initial_backoff_ms=backoff, retention_seconds=LONG_SECONDS)
        await client.caller.note("update", queue.key, asked, lambda _: None)


async def rotate(client: LoadClient[Caller]) -> None:
    """Give the encrypted queue a new key, or wrap all keys anew."""
    queue = client.queues.of_kind["sealed"]
    async with queue.calling() as key:
        if client.chance.random() < 0.8:
            await client.caller.note("rotate", key, client.caller.again.rotate_data_key(queue.name), lambda _: None)
        else:
            await client.caller.note("rewrap", None, client.caller.again.rewrap_data_keys(), lambda _: None)


async def replay(client: LoadClient[Caller]) -> None:
    async with client.some_queue("keyed", "loose").calling() as key:
        letters = await looks.look_at_dead_letters(client.caller, key, most=MOST_LETTERS)
        if letters:
            await looks.replay(client.caller, key, letters[:5])


async def purge(client: LoadClient[Caller]) -> None:
    async with client.some_queue("aging").calling() as key:
        letters = await looks.look_at_dead_letters(client.caller, key, most=MOST_LETTERS)
        if letters:
            await looks.purge(client.caller, key, letters[:5])


async def look(client: LoadClient[Caller]) -> None:
    async with client.some_queue().calling() as key:
        await looks.look_at_figures(client.caller, key)


async def look_at_log(client: LoadClient[Caller]) -> None:
    queue = client.some_queue()
    async with queue.calling() as key:
        await looks.look_at_log(client.caller, key, after=queue.floor)
