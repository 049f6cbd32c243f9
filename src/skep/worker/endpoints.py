"""Endpoints of deliveries: all workers share one circuit breaker for each, which the store keeps.

After several failures an endpoint rests (its circuit is open); then one message at a time probes it. An endpoint that answered 410 is
stopped until an admin resets it. Messages for such an endpoint wait in their queue and are not popped.
"""

from __future__ import annotations

import logging

from skep.client.async_client import AsyncClient
from skep.clock import Clock, Instant, seconds
from skep.errors import SkepError
from skep.model.record import Report
from skep.wire.endpoints import EndpointView
from skep.wire.times import to_instant
from skep.worker.delivery import DeliveryOutcome, Result

REFRESH_SECONDS = 5.0
"""How old the known state of an endpoint may be: a reset, or another worker's failure, is noticed within this time."""
FAILURES = 5
"""The number of failures in a row after which an endpoint rests."""
REST_SECONDS = 30.0
"""How long an endpoint rests."""
REASON_CHARACTERS = 500

log = logging.getLogger("skep.worker")

_REPORTS = {
    Result.DELIVERED: Report.DELIVERED, Result.REFUSED: Report.DELIVERED, Result.FAILED: Report.FAILED,
    Result.GONE: Report.GONE,
}  # fmt: skip
"""The outcomes that count for or against an endpoint. An endpoint that refuses a message is well."""


class Breaker:
    """The breaker of one endpoint, for one tenant."""

    def __init__(self, client: AsyncClient, url: str, clock: Clock) -> None:
        self._client = client
        self._url = url
        self._clock = clock
        self._known: EndpointView | None = None
        self._fresh_until = Instant(0)

    @property
    def probing(self) -> bool:
        """Whether the next delivery is a trial: it failed before and nothing has got through since."""
        return self._known is not None and self._known.failures >= FAILURES

    @property
    def stopped(self) -> bool:
        """Whether it wants no more messages."""
        return self._known is not None and self._known.stopped_at is not None

    async def rests_until(self) -> Instant | None:
        """Until when nothing may be delivered; None when deliveries may go on. The store is asked again from time to time."""
        now = self._clock.now()
        if now >= self._fresh_until:
            await self._refresh(now)
        known = self._known
        if known is None:
            return None
        if known.stopped_at is not None:
            return self._fresh_until
        until = None if known.open_until is None else to_instant(known.open_until)
        return until if until is not None and until > now else None

    async def report(self, outcome: DeliveryOutcome) -> None:
        """Tell the store how a delivery went, when that changes anything."""
        report = _REPORTS[outcome.result]
        if report is Report.DELIVERED and (self._known is None or not self._known.failures):
            return
        reason = outcome.reason[:REASON_CHARACTERS] or None
        try:
            self._known = await self._client.report_endpoint(
                self._url, report, reason=reason, threshold=FAILURES, open_seconds=REST_SECONDS
            )
        except SkepError as error:
            log.warning("how %s is doing could not be told: %s", self._url, error)
            return
        if self._known.stopped_at is not None:
            log.error("%s is stopped until it is reset: %s", self._url, self._known.reason)
        elif self._known.open_until is not None:
            log.warning("%s failed %d times and rests: %s", self._url, self._known.failures, self._known.reason)

    async def _refresh(self, now: Instant) -> None:
        self._fresh_until = Instant(now + seconds(REFRESH_SECONDS))
        try:
            known = [one async for one in self._client.endpoints() if one.url == self._url]
            self._known = known[0] if known else None
        except SkepError as error:
            log.warning("how %s is doing could not be asked: %s", self._url, error)
