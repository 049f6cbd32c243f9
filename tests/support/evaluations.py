"""A thread for long evaluations that counts what it is given."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
T = TypeVar("T")


class CountingThread(ThreadPoolExecutor):
    """The one thread, in a test."""

    def __init__(self) -> None:
        super().__init__(1)
        self.given = 0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Count, and work."""
        self.given += 1
        return super().submit(fn, *args, **kwargs)


def counted(monkeypatch: pytest.MonkeyPatch) -> CountingThread:
    """Let long evaluations of this process be counted."""
    thread = CountingThread()
    monkeypatch.setattr("skep.spec.allowance._THREAD", thread)
    monkeypatch.setattr("skep.spec.allowance.SLICE_SECONDS", 600.0)  # so that a slow machine needs no second turn
    return thread
