"""Calls under way: a stop refuses new calls and waits for these."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

import structlog

from skep.errors import Code, SkepError

log = structlog.get_logger("skep.engine")


class InFlight:
    """Counts requests: ``with in_flight:`` around each. Refuses them with STOPPING once closed."""

    def __init__(self) -> None:
        self.closed = False
        self._requests = 0
        self._background: set[asyncio.Task[None]] = set()
        self._drained: asyncio.Future[None] | None = None

    def __enter__(self) -> None:
        if self.closed:
            raise SkepError(Code.STOPPING, "the server is stopping")
        self._requests += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests -= 1
        if self._drained is not None and not self._requests and not self._drained.done():
            self._drained.set_result(None)

    def spawn(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """Run a task in the background. A stop waits for it; its failure is logged."""
        task = asyncio.get_running_loop().create_task(_logged(work, what))
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._requests and not self._background

    def close(self) -> None:
        """Refuse new requests."""
        self.closed = True

    async def drain(self) -> None:
        """Return once nothing is under way."""
        if self._requests:
            self._drained = self._drained or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._drained)
        while self._background:
            await asyncio.wait(self._background)


async def _logged(work: Coroutine[Any, Any, None], what: str) -> None:
    try:
        await work
    except SkepError as error:
        log.warning("background work failed", work=what, error=str(error))
    except Exception:
        log.error("background work failed", work=what, traceback=traceback.format_exc(limit=-8))
