"""Waiting for what nobody tells: to look, a moment later to look again, and to give up when it takes far too long.

The only place in the tests that sleeps. Wherever there is a signal, wait for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE_SECONDS = 120.0
LOOK_SECONDS, LATER_SECONDS = 0.001, 0.02
"""Between the first looks, and between later ones: what takes long is not looked at a thousand times a second."""
LATER = 1.1

Seen = TypeVar("Seen")


def until(look: Callable[[], Seen]) -> Seen:
    """What one sees when there is something to see."""
    deadline, pause = time.monotonic() + PATIENCE_SECONDS, LOOK_SECONDS
    while not (seen := look()):
        assert time.monotonic() < deadline, f"not so after {PATIENCE_SECONDS} s"
        time.sleep(pause)
        pause = min(pause * LATER, LATER_SECONDS)
    return seen


def let_run(seconds: float) -> None:
    """For who is killed at a moment of chance, and for nothing else."""
    time.sleep(seconds)


async def until_so(look: Callable[[], Seen], meanwhile: Callable[[], object] | None = None) -> Seen:
    """The same while the loop turns; ``meanwhile`` is called before each look but the first, to let a clock go on."""

    async def asked() -> Seen:
        return look()

    return await until_asked(asked, meanwhile)


async def until_asked(ask: Callable[[], Awaitable[Seen]], meanwhile: Callable[[], object] | None = None) -> Seen:
    """The same for what has to be waited for."""
    pause = LOOK_SECONDS
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (seen := await ask()):
            await asyncio.sleep(pause)
            if meanwhile is not None:
                meanwhile()
            else:
                pause = min(pause * LATER, LATER_SECONDS)
    return seen
