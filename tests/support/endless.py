"""A test that does not end fails, and says what its tasks wait for.

A signal interrupts the test, or its fixtures, wherever they are. It comes again while they go on: what it raises may have ended only a
task of the test's loop. Threads cannot be interrupted: with one that does not end either, the process ends without it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pytest

AGAIN_SECONDS = 5.0
LATE = "it did not end within"
"""What such a failure begins with."""


class Longest:
    """The plugin: how long a test may take, and each of making and removing its fixtures. Slow tests take as long as they take."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._interrupted = False
        self._status: int = pytest.ExitCode.INTERNAL_ERROR

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._bound(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._bound(item):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        with self._bound(item):
            return (yield)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._status = exitstatus

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        left = [thread.name for thread in threading.enumerate() if not thread.daemon]
        if self._interrupted and len(left) > 1:
            print(f"left behind: {', '.join(left)}", file=sys.stderr, flush=True)
            sys.stdout.flush()
            os._exit(self._status)

    def _note(self) -> None:
        self._interrupted = True

    @contextmanager
    def _bound(self, item: pytest.Item) -> Iterator[None]:
        if item.get_closest_marker("slow") or threading.current_thread() is not threading.main_thread():
            yield
            return
        with at_most(self._seconds, self._note):
            yield


@contextmanager
def at_most(seconds: float, on_interrupt: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Fail what takes longer, in the main thread."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        on_interrupt()
        pytest.fail(f"{LATE} {seconds:g} s{waiting()}")

    handler = signal.signal(signal.SIGALRM, interrupt)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)


def waiting() -> str:
    """Where each task of the loop that runs is."""
    loop = asyncio._get_running_loop()
    if loop is None:
        return ""
    return "".join(f"\n{task.get_name()}: {' > '.join(_places(task.get_coro()))}" for task in asyncio.all_tasks(loop))


def _places(awaited: Any) -> Iterator[str]:
    """The functions that wait for each other, from the task's own to the innermost."""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
        awaited = awaited.cr_await
