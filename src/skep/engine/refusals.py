"""Requests that webhooks refused: noted at once, written together a little later. Reached as ``engine.refusals``.

Anybody can be refused, as often as they like, so a refusal costs no transaction: those of a second are one, and of each webhook
only as many are held as are kept. What was not written when a process dies is lost; it is for people to read, and no promise.
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
"""Refusals wait so long for others before they are written."""
FEW = 10
"""So many of each webhook are listed where all webhooks are."""
LOG_SECONDS = 10
"""In so many seconds there is one line in the log for each webhook and code."""
LOGGED_MAX = 1_000
"""So many webhooks and codes are told apart in the log; then all may be told again."""

log = structlog.get_logger("skep.webhooks")


class Refusals:
    """What was refused, on its way to the store."""

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
        """Keep a refusal, soon."""
        self._tell(refusal)
        self._waiting.setdefault(refusal.webhook, deque(maxlen=REFUSALS_KEPT)).append(refusal)
        if self._later is None:
            due = Instant(self._clock.now() + seconds(WRITE_SECONDS))
            self._later = self._timers.at(due, self._write_soon)

    async def list(
        self, webhook: str | None = None, *, visible: Callable[[Refusal], bool] = lambda _: True
    ) -> list[Refusal]:
        """The newest refusals of a webhook, or a few of each, newest first, those of this server up to now among them."""
        limit = FEW if webhook is None else REFUSALS_KEPT
        with self._in_flight:
            check_texts((webhook,))
            await self._write()
            return [one for one in await self._store.list(webhook, limit) if visible(one)]

    async def stop(self) -> None:
        """Write what waits."""
        if self._later is not None:
            self._later.cancel()
        await self._write_or_tell()

    def _write_soon(self) -> None:
        self._later = None
        self._in_flight.spawn(self._write_or_tell(), "note refused requests")

    async def _write_or_tell(self) -> None:
        try:
            await self._write()
        except SkepError as error:  # they wait for the next ones
            log.warning("refused requests cannot be noted", error=str(error))

    async def _write(self) -> None:
        async with self._writing:
            taken, self._waiting = self._waiting, {}
            if not taken:
                return
            try:
                # They are listed as they are written, and are held by webhook until then.
                noted = sorted((one for some in taken.values() for one in some), key=lambda one: one.at)
                await self._store.note(noted)
            except BaseException:
                for webhook, some in taken.items():
                    newer = self._waiting.get(webhook, ())
                    self._waiting[webhook] = deque((*some, *newer), maxlen=REFUSALS_KEPT)
                raise

    def _tell(self, refusal: Refusal) -> None:
        """One line in a while, with nothing in it that the request brought."""
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
