"""The child's side of a process that was started with an order: the order is the first line of stdin, and when stdin ends, it stops."""

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
    """What this process is told."""
    return msgspec.json.decode(sys.stdin.buffer.readline(), type=kind)


def on_stdin_end(stop: Callable[[], None]) -> None:
    """Stop when stdin ends: the parent says so, or has gone."""
    loop = asyncio.get_running_loop()

    def look() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            stop()

    loop.add_reader(0, look)


def tell_ready() -> None:
    """Tell the parent. When it has gone meanwhile, stdin has ended as well, and that is what counts."""
    with contextlib.suppress(BrokenPipeError):
        os.write(1, READY)
