"""Whether the store can be written to: up, or away (a circuit breaker).

A call that fails or takes too long raises doubt. A probe on a connection of its own decides, so that one broken session or a busy pool
is not taken for an outage. While the store is away no call is tried: calls fail at once, and pushes are spooled.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from contextlib import suppress

import structlog

from skep.clock import Clock, Instant, seconds
from skep.config import SpoolSettings
from skep.errors import SkepError
from skep.store.protocol.connection import ConnectionVerbs

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 2.0
GROWTH = 1.5

log = structlog.get_logger("skep.spool")


class StoreLink:
    """Watches the store. ``changed`` is called when the store answers after a doubt."""

    def __init__(
        self, store: ConnectionVerbs, clock: Clock, settings: SpoolSettings, changed: Callable[[], None]
    ) -> None:
        self._store = store
        self._clock = clock
        self._patience = settings.store_seconds / 2
        self._changed = changed
        self._checking: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._resumes = 0
        self._fenced = 0
        self._stopped = False
        self.away_since: Instant | None = None

    @property
    def away(self) -> bool:
        """Whether the store is away, so that no call is tried."""
        return self.away_since is not None

    @property
    def attempt(self) -> int:
        """The mark of an attempt that ends now. After `fence` with this mark, the attempt has no later effect."""
        return self._resumes

    def start(self) -> None:
        """Begin to watch for hanging calls."""
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """End the watch, and the wait for the store."""
        self._stopped = True
        for task in (self._looking, self._checking):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    def doubt(self) -> None:
        """Find out whether the store is away, as a call could not reach it, or takes long."""
        if self._checking is None and not self._stopped:
            self._checking = asyncio.get_running_loop().create_task(self._check())

    async def fence(self, attempt: int) -> None:
        """Return once no attempt up to this one can take effect any more."""
        if self._fenced <= attempt:
            await self._resume()

    async def _resume(self) -> None:
        self._resumes += 1
        number = self._resumes
        await self._store.resume()
        self._fenced = max(self._fenced, number)

    async def _look(self) -> None:
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + seconds(self._patience / 2)))
            if self._store.waited_seconds() >= self._patience:
                self.doubt()

    async def _check(self) -> None:
        try:
            if not await self._answers():
                self.away_since = self._clock.now()
                log.warning("the store is away: pushes are spooled")
                self._store.suspend()
                await self._wait()
                log.info("the store is back")
        finally:
            self._checking = None
        self._changed()

    async def _answers(self) -> bool:
        try:
            async with asyncio.timeout(self._patience):
                await self._store.probe()
        except (SkepError, TimeoutError) as error:
            log.warning("the store cannot be written to", error=str(error) or "no answer in time")
            return False
        except Exception:  # any error means that the store did not answer
            log.error("asking the store failed", traceback=traceback.format_exc(limit=-8))
            return False
        return True

    async def _wait(self) -> None:
        """Return once the store is back."""
        wait = FIRST_WAIT_SECONDS
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + seconds(wait)))
            try:
                await self._resume()
            except SkepError as error:
                log.debug("the store is still away", error=str(error))
            except Exception:  # after any error go on: giving up would leave the server without its store
                log.error("looking for the store failed", traceback=traceback.format_exc(limit=-8))
            else:
                self.away_since = None
                return
            wait = min(wait * GROWTH, LONGEST_WAIT_SECONDS)
