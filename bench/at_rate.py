"""Calls at a fixed rate, whether or not the earlier ones were answered: users do not wait for each other."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def at_rate(
    connections: list[T], per_second: float, seconds: float, call: Callable[[T, float], Awaitable[None]]
) -> None:
    """Make calls, each with a free connection and the moment it came; it waits for a connection when none is free."""
    free, came, under_way = list(connections), deque[float](), set[asyncio.Task[None]]()

    async def make(connection: T, came_at: float) -> None:
        await call(connection, came_at)
        free.append(connection)
        start_those_that_came()

    def start_those_that_came() -> None:
        while came and free:
            task = asyncio.create_task(make(free.pop(), came.popleft()))
            under_way.add(task)
            task.add_done_callback(under_way.discard)

    started, offered = time.perf_counter(), 0
    while (passed := time.perf_counter() - started) < seconds:
        due = int(passed * per_second) + 1
        came.extend([time.perf_counter()] * (due - offered))
        offered = due
        start_those_that_came()
        await asyncio.sleep(max(0.0, started + offered / per_second - time.perf_counter()))
    while under_way:
        done, _ = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*done)
