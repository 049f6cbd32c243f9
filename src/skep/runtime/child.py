"""The child's side of a process that was started with an order, the first line of stdin. When stdin ends, the process stops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

READY = b"ready\n"

T = TypeVar("T")


def read_order(kind: type[T]) -> T:
    """The order of this process."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)


def on_stdin_end(stop: Callable[[], None]) -> None:
    """Stop when stdin ends: the parent closed it, or has gone."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, look)


def tell_ready() -> None:
    """Tell the parent that this process is ready. If the parent has gone, the end of stdin stops this process."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, READY)
