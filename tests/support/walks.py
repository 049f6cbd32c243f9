"""Which of our functions call which: traced while something runs, so that a walk through the code can be held to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

from skep.testing.server import RunningServer

ROOT = Path(__file__).resolve().parents[2]
OURS = str(ROOT / "src/skep") + "/"


class Function(NamedTuple):
    """A function by its file and its name in it."""

    file: str
    name: str


class Walk:
    """What was called by whom."""

    def __init__(self) -> None:
        self.calls: set[tuple[Function | None, Function]] = set()
        """Who called whom; None is the event loop, or a thread."""

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """What the interpreter tells of calls."""
        if event == "call" and (called := _ours(frame.f_code)) is not None:
            self.calls.add((_caller(frame), called))


def _ours(code: CodeType) -> Function | None:
    if not code.co_filename.startswith(OURS) or code.co_name.startswith("<"):
        return None
    return Function(f"src/skep/{code.co_filename.removeprefix(OURS)}", code.co_qualname.rpartition("<locals>.")[2])


def _caller(frame: FrameType) -> Function | None:
    """The nearest of our functions that has called this one; None when the event loop did."""
    above = frame.f_back
    while above is not None and "/asyncio/" not in above.f_code.co_filename:
        if (found := _ours(above.f_code)) is not None:
            return found
        above = above.f_back
    return None


@contextmanager
def traced(server: RunningServer) -> Iterator[Walk]:
    """Note all calls that the server's event loop makes meanwhile."""
    walk = Walk()
    server.run(_profile(walk.note))
    try:
        yield walk
    finally:
        server.run(_profile(None))


async def _profile(note: Callable[[FrameType, str, object], None] | None) -> None:
    sys.setprofile(note)
