"""SIGTERM and SIGINT: the first asks for a stop in order, the second ends the process at once.

An end at once is safe: answered requests are on disk already (I1).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def stop_signals(stop: Callable[[], None], at_once: Callable[[], None] | None = None) -> Iterator[None]:
    """Call ``stop`` in the running loop at the first signal; at the second ``at_once``, and then end the process."""
    loop = asyncio.get_running_loop()
    seen = 0

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a signal handler
        nonlocal seen
        seen += 1
        if seen == 1:
            loop.call_soon_threadsafe(stop)
            return
        if at_once is not None:
            at_once()
        os._exit(128 + number)

    with heard_by(on_signal, STOPPING):
        yield


@contextmanager
def heard_by(handler: Callable[[int, FrameType | None], None], numbers: Iterable[int]) -> Iterator[None]:
    """Handle these signals, and put the earlier handlers back at the end."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
