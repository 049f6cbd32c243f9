"""Evaluations beside an event loop: short ones run in it, long ones in a thread, so that nobody else waits for them.

Nobody knows beforehand how long an evaluation takes. So it is begun where the caller is, with a small allowance of units. When that
is spent, everything is begun again in the one thread for this, with the whole budget. Nearly all evaluations end within
the allowance and cost nothing more; the others cost it once more. There is one thread, since each further one would take
turns with the loop, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

AT_ONCE = 2_000
"""Units that are spent in the loop at the most, for all expressions of one piece of work together: about a millisecond."""

T = TypeVar("T")


class Allowance:
    """What may still be spent in the loop."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class NotAtOnceError(Exception):
    """An evaluation that takes more than its loop allows. Nobody but `off_loop` catches it."""


ALLOWED: ContextVar[Allowance | None] = ContextVar("skep_evaluation_allowance", default=None)
"""The allowance of whoever evaluates now; None where there is no loop to wait for it."""

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="skep-evaluation")


async def off_loop(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises. It may be begun twice, so it changes nothing but what it returns."""
    token = ALLOWED.set(Allowance(AT_ONCE))
    try:
        return work()
    except NotAtOnceError:
        pass
    finally:
        ALLOWED.reset(token)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, work)
