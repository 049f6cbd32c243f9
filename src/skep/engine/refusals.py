"""Requests that webhooks refused: noted at once, written together a little later. Reached as ``engine.refusals``.

Anybody can cause refusals at any rate, so a refusal costs no transaction: those of a second share one. In memory, each webhook has at
most as many as the store keeps. Unwritten refusals are lost when the process dies; they are only for people to read.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from skep.clock import MICROS_PER_SECOND, Clock, Instant, seconds
from skep.engine.inflight import InFlight
from skep.engine.timers import Timer, Timers
from skep.engine.validate import check_texts
from skep.errors import SkepError
from skep.model.refusal import Refusal
from skep.store.protocol.refusals import REFUSALS_KEPT, RefusalStore

WRITE_SECONDS = 1.0
"""How long refusals wait for others before they are written."""
FEW = 10
"""How many refusals of each webhook are listed in a list of all webhooks."""
LOG_SECONDS = 10
"""The least seconds between two log lines for the same webhook and code."""
LOGGED_MAX = 1_000
"""How many pairs of webhook and code are remembered for the log; then all are forgotten."""

log = structlog.get_logger("skep.webhooks")


class Refusals:
    """Refused requests on their way to the store."""

    def __init__(self, store: RefusalStore, clock: Clock, timers: Timers, in_flight: InFlight) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._in_flight = in_flight
        self._waiting: dict[str, deque[Refusal]] = {}
        self._writing = asyncio.Lock()
        self._later: Timer | None = None
        self._logged: dict[tuple[str, str], tuple[Instant, int]] = {}

    def note(self, refusal: Refusal) -> None:
        """Log a refusal, and write it to the store soon."""
        self._tell(refusal)
        self._waiting.setdefault(refusal.webhook, deque(maxlen=REFUSALS_KEPT)).append(refusal)
        if self._later is None:
            self._later = self._timers.after(seconds(WRITE_SECONDS), self._write_soon)

    async def list(
        self, webhook: str | None = None, *, visible: Callable[[Refusal], bool] = lambda _: True
    ) -> list[Refusal]:
        """The newest refusals of a webhook, or a few of each webhook, newest first. This server's own are written first."""
        limit = FEW if webhook is None else REFUSALS_KEPT
        with self._in_flight:
            check_texts((webhook,))
            await self._write()
            return [one for one in await self._store.list(webhook, limit) if visible(one)]

    async def stop(self) -> None:
        """Write the waiting refusals."""
        if self._later is not None:
            self._later.cancel()
        await self._write_or_tell()

    def _write_soon(self) -> None:
        self._later = None
        self._in_flight.spawn(self._write_or_tell(), "note refused requests")

    async def _write_or_tell(self) -> None:
        try:
            await self._write()
        except SkepError as error:  # the refusals wait for the next write
            log.warning("refused requests cannot be noted", error=str(error))

    async def _write(self) -> None:
        async with self._writing:
            taken, self._waiting = self._waiting, {}
            if not taken:
                return
            try:
                # Sorted by time: they are held by webhook, and listed in the order in which they are written.
                noted = sorted((one for some in taken.values() for one in some), key=lambda one: one.at)
                await self._store.note(noted)
            except BaseException:
                for webhook, some in taken.items():
                    newer = self._waiting.get(webhook, ())
                    self._waiting[webhook] = deque((*some, *newer), maxlen=REFUSALS_KEPT)
                raise

    def _tell(self, refusal: Refusal) -> None:
        """Log one line per webhook and code in a while, without content of the request."""
        key = (refusal.webhook, refusal.code)
        since, untold = self._logged.get(key, (None, 0))
        now = self._clock.now()
        if since is not None and abs(now - since) < LOG_SECONDS * MICROS_PER_SECOND:
            self._logged[key] = (since, untold + 1)
            return
        if len(self._logged) >= LOGGED_MAX:
            self._logged.clear()
        self._logged[key] = (now, 0)
        log.warning(
            "a webhook refused a request", webhook=refusal.webhook, code=refusal.code, status=refusal.status,
            remote=refusal.remote, more_since_last_line=untold,
        )  # fmt: skip
