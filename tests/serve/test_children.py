"""Child processes that are kept running."""

from __future__ import annotations

import asyncio
import errno

import structlog
from msgspec import Struct

from skep.server.children import Child, Children


class Order(Struct):
    """Nothing."""


async def test_a_child_that_cannot_be_replaced_at_once_is_replaced_later() -> None:
    """The system may have no room for another process: often that is why the last one ended."""
    children = Children(structlog.get_logger(), "a child ended and is replaced")
    replaced = asyncio.Event()
    failures = [OSError(errno.EAGAIN, "no more processes")]

    async def start() -> Child:
        # It waits for the end of its stdin, as ours do.
        return await children.start("child", "json.tool", Order(), says_ready=False)

    async def start_another() -> Child:
        if failures:
            raise failures.pop()
        replaced.set()
        return await start()

    first = await start()
    keeping = asyncio.create_task(children.keep(first, start_another))
    keeping.add_done_callback(lambda _: replaced.set())  # so that nobody waits for ever

    first.kill()
    await replaced.wait()
    is_kept = not keeping.done()
    children.stop()
    await keeping

    assert (failures, is_kept) == ([], True)
