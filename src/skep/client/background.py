"""A monitor and a background task for buffers, once for asyncio and once for threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any


class AsyncMonitor:
    """A lock, and a way to wait under it for something to become true."""

    def __init__(self) -> None:
        self._condition = asyncio.Condition()

    async def __aenter__(self) -> None:
        await self._condition.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._condition.release()

    async def until(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Return when the condition holds, or after the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._condition.wait_for(holds)

    def changed(self) -> None:
        """Wake all waiters, so that they check their condition again."""
        self._condition.notify_all()


class Monitor:
    """A lock, and a way to wait under it for something to become true."""

    def __init__(self) -> None:
        self._condition = threading.Condition()

    def __enter__(self) -> None:
        self._condition.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._condition.release()

    def until(self, holds: Callable[[], bool], seconds: float | None = None) -> None:
        """Return when the condition holds, or after the timeout."""
        self._condition.wait_for(holds, seconds)

    def changed(self) -> None:
        """Wake all waiters, so that they check their condition again."""
        self._condition.notify_all()


class AsyncBackground:
    """Work that runs in the background."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = asyncio.create_task(work())

    async def finish(self) -> None:
        """Wait for its end."""
        await self._task


class Background:
    """Work that runs in the background."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=work, name="skep-buffer", daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait for its end."""
        self._thread.join()
