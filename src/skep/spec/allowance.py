"""Evaluations beside an event loop: short ones run in the loop, long ones in a thread, so that other requests do not wait.

Nobody knows beforehand how long an evaluation takes. So it starts in the caller's loop, with a small allowance of units. When the
allowance is spent, the evaluation starts again in a thread, with the whole budget. Nearly all evaluations end within the allowance and
cost nothing more; the others pay the allowance on top. There is only one thread, since each further one would compete with the loop,
too. Work in many steps, such as a batch of messages, holds the thread for a slice at a time, so that others have their turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from time import perf_counter
from typing import TypeVar

AT_ONCE = 2_000
"""The most units in the loop for one piece of work, all its expressions together: about a millisecond."""
SLICE_SECONDS = 0.02
"""How long one piece of work holds the thread before others have their turn; its last step may take longer."""

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that can pause after each of its steps."""


class Allowance:
    """The units that may still be spent in the loop."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


class NotAtOnceError(Exception):
    """An evaluation that needs more than its allowance. Only `off_loop` and `off_loop_in_turns` catch it."""


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
    """Run work in steps beside the loop; others have their turn between slices. Work that ``is_large`` goes to the thread at once."""
    if not is_large:
        try:
            return _at_once(lambda: _whole(begin()))
        except NotAtOnceError:
            pass
    steps, loop = begin(), asyncio.get_running_loop()
    while True:
        end = await loop.run_in_executor(_THREAD, _slice, steps)
        if end is not None:
            return end.value  # type: ignore[no-any-return]  # StopIteration is not generic


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
    """Run some steps; return the StopIteration when the work ended. A future cannot carry a raised one."""
    until = perf_counter() + SLICE_SECONDS
    try:
        next(steps)
        while perf_counter() < until:
            next(steps)
    except StopIteration as end:
        return end
    return None
