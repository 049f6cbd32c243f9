"""Looking back: figures by the minute, deliveries of messages, events of traces, and why messages died. Reached as ``engine.history``.

Every look is bounded, and what is told is: nobody fills the store by telling of traces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from msgspec import structs

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine import validate
from skep.engine.attempts import Attempt, story
from skep.engine.inflight import InFlight
from skep.engine.pace import Timing, timings
from skep.engine.record_checks import is_json
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import DEFAULT_TENANT, QueueKey, Seq
from skep.model.history import Death, FailedAttempt, FinishedLease, Journey, Moment, TraceEvent, TraceName
from skep.store.protocol import PayloadVerbs
from skep.store.protocol.history import HistoryVerbs
from skep.store.protocol.leases import LeaseVerbs

QUEUES_AT_ONCE = 200
"""Queues whose figures one look takes in."""
JOURNEYS_AT_ONCE = 200
"""Messages whose deliveries one look takes in."""
A_MINUTE = seconds(60)
TIMED_SECONDS = 3_600
"""Wait and handler times are those of leases that ended so lately."""
LIVE_LEASES = 1_000
"""Live leases of a queue that are looked through for those of a message."""
EVENTS_AT_ONCE = 1_000
DATA_BYTES = 16 * 1024
"""What one event of a trace may carry."""


class HistoryAndLeases(HistoryVerbs, LeaseVerbs, Protocol):
    """What was, and the leases that are."""


class History:
    """What the engine tells of the past."""

    def __init__(
        self,
        store: HistoryAndLeases,
        opened: PayloadVerbs,
        clock: Clock,
        in_flight: InFlight,
        settings: EngineSettings,
    ) -> None:
        self._store = store
        self._opened = opened
        self._clock = clock
        self._in_flight = in_flight
        self._limits = settings.limits
        self._sample_seconds = settings.sample_seconds

    async def figures(self, since: Instant, tenant: str = DEFAULT_TENANT) -> list[Moment]:
        """A tenant as a whole by the minute, oldest first."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            [found] = await self._store.past(tenant, None, since)
            return steady(found, since, self._clock.now(), self._sample_seconds)

    async def figures_of(
        self, names: Sequence[str], since: Instant, tenant: str = DEFAULT_TENANT
    ) -> list[list[Moment]]:
        """Queues by the minute, oldest first; nothing of one that is not there."""
        with self._in_flight:
            if not names:
                return []
            validate.check_count(len(names), QUEUES_AT_ONCE, "the number of queues")
            for name in names:
                validate.check_key(QueueKey(name, tenant))
            found = await self._store.past(tenant, names, since)
            now = self._clock.now()
            return [steady(moments, since, now, self._sample_seconds) for moments in found]

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        """The finished leases that messages were in, as far as a bounded look finds them."""
        with self._in_flight:
            if not journeys:
                return []
            validate.check_count(len(journeys), JOURNEYS_AT_ONCE, "the number of messages")
            return await self._store.deliveries(journeys)

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        """The failed attempts of messages, oldest first: the latest of each."""
        with self._in_flight:
            if not places:
                return []
            validate.check_count(len(places), JOURNEYS_AT_ONCE, "the number of messages")
            return await self._opened.failures(places)

    async def attempts(self, journeys: Sequence[Journey]) -> list[list[Attempt]]:
        """The story of messages: the deliveries of each, finished and live, with the errors of those that failed."""
        finished = await self.deliveries(journeys)
        failed = await self.failures([(one.queue, one.seq) for one in journeys])
        now = self._clock.now()
        live = {
            key: await self._store.leases(key.tenant, now, key, None, LIVE_LEASES)
            for key in dict.fromkeys(one.queue for one in journeys)
        }
        return [
            story(one, ended, why, live[one.queue]) for one, ended, why in zip(journeys, finished, failed, strict=True)
        ]

    async def timings(self, key: QueueKey) -> dict[str, Timing]:
        """Wait and handler times of a queue by group: of its newest leases, as far as they ended in the last hour."""
        with self._in_flight:
            validate.check_key(key)
            since = Instant(self._clock.now() - seconds(TIMED_SECONDS))
            return timings(await self._store.lease_times(key, since))

    async def deaths(self, key: QueueKey, *, limit: int) -> list[Death]:
        """Why the newest dead letters of a dead-letter queue died, newest first."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_count(limit, self._limits.page, "limit")
            return await self._opened.deaths(key, limit)

    async def tell(self, events: Sequence[TraceEvent], tenant: str = DEFAULT_TENANT) -> None:
        """Keep what workers tell of traces. Each gets the present instant, whatever it says."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_count(len(events), EVENTS_AT_ONCE, "the number of events")
            for event in events:
                _check_event(event)
            now = self._clock.now()
            await self._store.note_trace_events(tenant, [structs.replace(event, at=now) for event in events])

    async def events(self, trace_id: Id, tenant: str = DEFAULT_TENANT, *, limit: int = 1000) -> list[TraceEvent]:
        """The events of a trace in the order of telling."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            if len(trace_id) != validate.ID_BYTES:
                raise SkepError(Code.INVALID_TRACE_ID, "a trace id is a UUID")
            validate.check_count(limit, self._limits.page, "limit")
            return await self._store.trace_events(tenant, trace_id, limit)

    async def events_named(
        self, name: str, tenant: str = DEFAULT_TENANT, *, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        """Events of a name, newest first, those before a position."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_texts((name,))
            validate.check_count(limit, self._limits.page, "limit")
            return await self._store.named_trace_events(tenant, name, before, limit)

    async def names(self, tenant: str = DEFAULT_TENANT, *, after: str = "", limit: int = 100) -> list[TraceName]:
        """The names that events have, in their order."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_texts((after,))
            validate.check_count(limit, self._limits.page, "limit")
            return await self._store.trace_names(tenant, after, limit)


def steady(moments: Sequence[Moment], since: Instant, now: Instant, sample_seconds: float) -> list[Moment]:
    """Moments with what the store leaves out: nothing changed before the first ones that are the same, nor after the last one.

    The last one is from now on only when it is older than looks are apart: until then nobody has looked whether it still holds.
    """
    found = list(moments)
    if found and found[0].at < since and all(_same(found[0], other) for other in found[1:2]):
        found[0] = structs.replace(found[0], at=since)
    if found and now - found[-1].at > max(A_MINUTE, 2 * seconds(sample_seconds)):
        found.append(structs.replace(found[-1], at=now))
    return found


def _same(one: Moment, other: Moment) -> bool:
    return structs.replace(one, at=other.at) == other


def _check_event(event: TraceEvent) -> None:
    validate.check_name(event.name, "trace event")
    if event.queue is not None:
        validate.check_name(event.queue)
    for id_ in (event.trace_id, event.message_id):
        if id_ is not None and len(id_) != validate.ID_BYTES:
            raise SkepError(Code.INVALID_TRACE_ID, "a trace id is a UUID")
    if len(event.data) > DATA_BYTES:
        raise SkepError(Code.PAYLOAD_TOO_LARGE, f"an event of a trace has at most {DATA_BYTES} bytes", limit=DATA_BYTES)
    if not event.data.startswith(b"{") or not is_json(event.data):
        raise SkepError(Code.INVALID_PAYLOAD, "what an event of a trace carries is a JSON object")
