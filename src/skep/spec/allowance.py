"""Evaluations beside an event loop: short ones run in the loop, long ones in a thread, so that other requests do not wait.

Nobody knows beforehand how long an evaluation takes. So it is begun where the caller is, with a small allowance of units. When that
is spent, everything is begun again in the one thread for this, with the whole budget. Nearly all evaluations end within
the allowance and cost nothing more; the others cost it once more. There is one thread, since each further one would take
turns with the loop, too. Work in many steps, such as a batch of messages, holds that thread for a slice at a time, so that others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from time import perf_counter
from typing import TypeVar

AT_ONCE = 2_000
"""Units that are spent in the loop at the most, for all expressions of one piece of work together: about a millisecond."""
SLICE_SECONDS = 0.02
"""So long one piece of work has the thread before others have their turn; its last step may take longer."""

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that may stop after each of its steps, for others to go on."""


class Allowance:
    """The units that may still be spent in the loop."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class NotAtOnceError(Exception):
    """An evaluation that takes more than its loop allows. Nobody but `off_loop` catches it."""


ALLOWED: ContextVar[Allowance | None] = ContextVar("skep_evaluation_allowance", default=None)
"""The allowance of the current evaluation; None outside of an event loop."""

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="skep-evaluation")


async def off_loop(work: Callable[[], T]) -> T:
    """Run ``work`` and return its result. ``work`` may be started twice, so it must have no side effects."""
    try:
        return _at_once(work)
    except NotAtOnceError:
        return await asyncio.get_running_loop().run_in_executor(_THREAD, work)


async def off_loop_in_turns(begin: Callable[[], Steps[T]], *, is_large: bool) -> T:
    """Run work in steps beside the loop; others have a turn between the steps. Work that ``is_large`` goes to the thread at once."""
    if not is_large:
        try:
            return _at_once(lambda: _whole(begin()))
        except NotAtOnceError:
            pass
    steps, loop = begin(), asyncio.get_running_loop()
    while True:
        end = await loop.run_in_executor(_THREAD, _slice, steps)
        if end is not None:
            return end.value  # type: ignore[no-any-return]  # StopIteration does not know of what


def _at_once(work: Callable[[], T]) -> T:
    token = ALLOWED.set(Allowance(AT_ONCE))
    try:
        return work()
    finally:
        ALLOWED.reset(token)


def _whole(steps: Steps[T]) -> T:
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # as above


def _slice(steps: Steps[T]) -> StopIteration | None:
    """Some steps; the end when that was reached, as what is returned, since a future takes no StopIteration that is raised."""
    until = perf_counter() + SLICE_SECONDS
    try:
        next(steps)
        while perf_counter() < until:
            next(steps)
    except StopIteration as end:
        return end
    return None
