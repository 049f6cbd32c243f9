"""The past: figures by the minute, deliveries of messages, events of traces, and reasons of dead letters. Reached as ``engine.history``.

Every read is bounded, and so are the events of traces: a worker cannot fill the store with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine import validate
from skep.engine.attempts import DeliveryAttempt, story
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
"""How many queues one call reads the figures of."""
JOURNEYS_AT_ONCE = 200
"""How many messages one call reads the deliveries of."""
A_MINUTE = seconds(60)
TIMED_SECONDS = 3_600
"""Wait and handler times are taken from leases that ended within this time."""
LIVE_LEASES = 1_000
"""How many live leases of a queue are searched for those of a message."""
EVENTS_AT_ONCE = 1_000
DATA_BYTES = 16 * 1024
"""The most bytes of an event's ``data``."""


class HistoryAndLeases(HistoryVerbs, LeaseVerbs, Protocol):
    """The store's verbs for histories and live leases."""


@dataclass(eq=False)
class History:
    """The engine's interface for histories."""

    _store: HistoryAndLeases
    _opened: PayloadVerbs
    _clock: Clock
    _in_flight: InFlight
    _settings: EngineSettings

    async def figures(self, since: Instant, tenant: str = DEFAULT_TENANT) -> list[Moment]:
        """The figures of a whole tenant by the minute, oldest first."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            [found] = await self._store.past(tenant, None, since)
            return steady(found, since, self._clock.now(), self._settings.sample_seconds)

    async def figures_of(
        self, names: Sequence[str], since: Instant, tenant: str = DEFAULT_TENANT
    ) -> list[list[Moment]]:
        """The figures of queues by the minute, oldest first; an empty list for a queue that does not exist."""
        with self._in_flight:
            if not names:
                return []
            validate.check_count(len(names), QUEUES_AT_ONCE, "the number of queues")
            for name in names:
                validate.check_key(QueueKey(name, tenant))
            found = await self._store.past(tenant, names, since)
            now = self._clock.now()
            return [steady(moments, since, now, self._settings.sample_seconds) for moments in found]

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        """The finished leases of messages, as far as a bounded search finds them."""
        with self._in_flight:
            if not journeys:
                return []
            validate.check_count(len(journeys), JOURNEYS_AT_ONCE, "the number of messages")
            return await self._store.deliveries(journeys)

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        """The latest failed attempts of each message, oldest first."""
        with self._in_flight:
            if not places:
                return []
            validate.check_count(len(places), JOURNEYS_AT_ONCE, "the number of messages")
            return await self._opened.failures(places)

    async def attempts(self, journeys: Sequence[Journey]) -> list[list[DeliveryAttempt]]:
        """The deliveries of each message, finished and live, with the errors of failed ones."""
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
        """Wait and handler times of a queue by group, from its newest leases that ended in the last hour."""
        with self._in_flight:
            validate.check_key(key)
            since = Instant(self._clock.now() - seconds(TIMED_SECONDS))
            return timings(await self._store.lease_times(key, since))

    async def deaths(self, key: QueueKey, *, limit: int) -> list[Death]:
        """The reasons of the newest dead letters of a dead-letter queue, newest first."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_count(limit, self._settings.limits.page, "limit")
            return await self._opened.deaths(key, limit)

    async def tell(self, events: Sequence[TraceEvent], tenant: str = DEFAULT_TENANT) -> None:
        """Store events of traces that workers report. Each event gets the present time, whatever its ``at``."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_count(len(events), EVENTS_AT_ONCE, "the number of events")
            for event in events:
                _check_event(event)
            now = self._clock.now()
            await self._store.note_trace_events(tenant, [structs.replace(event, at=now) for event in events])

    async def events(self, trace_id: Id, tenant: str = DEFAULT_TENANT, *, limit: int = 1000) -> list[TraceEvent]:
        """The events of a trace, in the order in which they were reported."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            if len(trace_id) != validate.ID_BYTES:
                raise SkepError(Code.INVALID_TRACE_ID, "a trace id is a UUID")
            validate.check_count(limit, self._settings.limits.page, "limit")
            return await self._store.trace_events(tenant, trace_id, limit)

    async def events_named(
        self, name: str, tenant: str = DEFAULT_TENANT, *, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        """Events with this name before a position, newest first."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_texts((name,))
            validate.check_count(limit, self._settings.limits.page, "limit")
            return await self._store.named_trace_events(tenant, name, before, limit)

    async def names(self, tenant: str = DEFAULT_TENANT, *, after: str = "", limit: int = 100) -> list[TraceName]:
        """A page of the names of trace events, in alphabetical order."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_texts((after,))
            validate.check_count(limit, self._settings.limits.page, "limit")
            return await self._store.trace_names(tenant, after, limit)


def steady(moments: Sequence[Moment], since: Instant, now: Instant, sample_seconds: float) -> list[Moment]:
    """The moments of a period, with the unchanged ones that the store leaves out added at both ends.

    The store writes only changes. So an unchanged first moment begins at ``since``. The last moment is repeated for ``now`` only when
    it is older than two samples (at least a minute): a younger one may not have been sampled again yet.
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
