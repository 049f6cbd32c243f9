"""Traces: the way of a trace across queues as a waterfall, waiting lighter than processing, and what workers told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from skep.clock import Instant
from skep.dashboard.deliveries import deliveries_of
from skep.dashboard.payloads import one_line
from skep.dashboard.site import Action, Page, Site
from skep.engine.attempts import DeliveryAttempt
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.routes.traces import is_seen
from skep.ids import Id, id_text, parse_id
from skep.model import StoredMessage
from skep.model.history import TraceEvent
from skep.model.scheduled import ScheduledFilter, ScheduledMessage

SHOWN_MESSAGES = 100
SHOWN_EVENTS = 500
_PREVIEW_BYTES = 400
NAMES, NAMED = 200, 50
WIDTH = 1_000
"""Units that a waterfall is wide."""


class Bar(NamedTuple):
    """A stretch of time in a waterfall."""

    kind: str
    left: float
    width: float
    title: str


class Tick(NamedTuple):
    """A moment in a waterfall."""

    kind: str
    left: float
    title: str


class TraceLane(NamedTuple):
    """One attempt of one group, or the wait for the first; ``attempt`` is None then."""

    attempt: DeliveryAttempt | None
    bars: list[Bar]
    ticks: list[Tick]
    waited_seconds: float | None
    worked_seconds: float | None


class Hop(NamedTuple):
    """A message of a trace with its deliveries: a lane for each group and attempt."""

    message: StoredMessage
    line: str
    lanes: list[TraceLane]
    since_start_seconds: float
    is_bad: bool
    events: list[TraceEvent]


async def traces(site: Site, call: Call) -> Answer:
    """A trace, or what there is to look for."""
    links = site.links(call)
    wanted = links.query.get("id", "").strip()
    problem, trace_id, hops, loose, total = None, None, list[Hop](), list[TraceEvent](), 0.0
    if wanted:
        try:
            trace_id = await _trace_id(site, call, wanted)
        except SkepError as error:
            if error.code not in (Code.INVALID_TRACE_ID, Code.MESSAGE_NOT_FOUND):
                raise
            problem = error.sentence
    cut, sees, waiting = False, call.visible, list[ScheduledMessage]()
    if trace_id is not None:
        found = await site.engine.browse.trace(trace_id, links.tenant, limit=SHOWN_MESSAGES + 1)
        told = await site.engine.history.events(trace_id, links.tenant, limit=SHOWN_EVENTS)
        events = [event for event in told if is_seen(event, call)]
        cut = len(found) > SHOWN_MESSAGES
        found = [message for message in found[:SHOWN_MESSAGES] if sees(message.queue)]
        deliveries = await deliveries_of(site.engine, found)
        hops, total = waterfall(found, deliveries, events, site.engine.now())
        known = {message.id for message in found}
        loose = [event for event in events if event.message_id not in known]
        waiting = [
            message for message in await _scheduled(site, links.tenant, trace_id=trace_id) if sees(message.queue)
        ]
        if not found and not events and not waiting:
            problem = "No messages or events were found for this trace: it may have expired, or belong to queues that your key may not read."
    name = links.query.get("name", "")
    before = parameters.position(links.query, "before")
    named = await site.engine.history.events_named(name, links.tenant, before=before, limit=NAMED + 1) if name else []
    return site.page(
        call, "traces.html", screen="traces", wanted=wanted, problem=problem, hops=hops, loose=loose, total_seconds=total,
        trace_id=None if trace_id is None else id_text(trace_id), cut=cut, id_text=id_text, width=WIDTH,
        names=await site.engine.history.names(links.tenant, limit=NAMES) if not wanted and call.sees_all else [], name=name,
        named=[event for event in named[:NAMED] if is_seen(event, call)], sees_all=call.sees_all,
        before=named[NAMED - 1].position if len(named) > NAMED else None, marks=[WIDTH * n // 4 for n in (1, 2, 3)],
        waiting=[(message, one_line(message.payload, message.content_type)) for message in waiting],
    )  # fmt: skip


async def _trace_id(site: Site, call: Call, wanted: str) -> Id:
    """The trace that an id means: its own, or the one of the newest message with that transaction id."""
    try:
        return parse_id(wanted)
    except ValueError:
        pass
    sees = call.visible
    for message in await site.engine.browse.with_transaction_id(wanted, call.tenant):
        if sees(message.queue):
            return message.trace_id
    for scheduled in await _scheduled(site, call.tenant, transaction_id=wanted):
        if sees(scheduled.queue):
            return scheduled.trace_id
    raise SkepError(Code.MESSAGE_NOT_FOUND, f"no message of any queue has the transaction id {wanted[:100]!r}")


async def _scheduled(
    site: Site, tenant: str, *, trace_id: Id | None = None, transaction_id: str | None = None
) -> list[ScheduledMessage]:
    wanted = ScheduledFilter(tenant=tenant, trace_id=trace_id, transaction_id=transaction_id)
    return (await site.engine.scheduled.page(wanted, limit=SHOWN_MESSAGES, preview_bytes=_PREVIEW_BYTES)).messages


def waterfall(
    messages: list[StoredMessage], deliveries: list[list[DeliveryAttempt]], events: list[TraceEvent], now: Instant
) -> tuple[list[Hop], float]:
    """The bars of each message on a common time line, and the length of that line in seconds."""
    if not messages:
        return [], 0.0
    start = min(message.created_at for message in messages)
    known = {message.id for message in messages}
    ends = [one.settled_at or now for each in deliveries for one in each]
    ends += [event.at for event in events if event.message_id in known]
    end = max([*ends, *(message.created_at for message in messages)], default=start)
    span = max(1, end - start)

    def place(at: int) -> float:
        return round(max(0.0, min(1.0, (at - start) / span)) * WIDTH, 1)

    hops = []
    for message, each in zip(messages, deliveries, strict=True):
        own = [event for event in events if event.message_id == message.id]
        lanes = lanes_of(message, each, place, now)
        lanes[0].ticks.extend(Tick("event", place(event.at), event.name) for event in own)
        hops.append(
            Hop(
                message, one_line(message.payload, message.content_type), lanes, (message.created_at - start) / 1e6,
                any(one.is_bad for one in each), own,
            )
        )  # fmt: skip
    return hops, span / 1e6


def lanes_of(
    message: StoredMessage, attempts: list[DeliveryAttempt], place: Callable[[int], float], now: Instant
) -> list[TraceLane]:
    """A lane for each group and attempt, group by group: each group waits and tries on its own."""
    if not attempts:
        return [
            TraceLane(
                None,
                [_bar("wait", place(message.created_at), WIDTH, "no delivery is known")],
                [],
                None,
                None,
            )
        ]
    lanes = []
    waits_from: dict[str, int] = {}
    for one in attempts:
        begun, ended = waits_from.get(one.group, message.created_at), one.settled_at or now
        bars = []
        if one.leased_at > begun:
            bars.append(_bar("wait", place(begun), place(one.leased_at), "waited"))
        kind = "bad" if one.is_bad else "work" if one.settled_at else "open"
        title = f"attempt {one.attempt}: {one.outcome.replace('_', ' ')}"
        bars.append(_bar(kind, place(one.leased_at), place(ended), title))
        ticks = [Tick("attempt", place(one.leased_at), f"attempt {one.attempt}")]
        waited, worked = max(0, one.leased_at - begun) / 1e6, (ended - one.leased_at) / 1e6
        lanes.append(TraceLane(one, bars, ticks, waited, worked))
        waits_from[one.group] = max(begun, ended)
    first = {group: number for number, group in enumerate(waits_from)}
    return sorted(lanes, key=lambda lane: first[lane.attempt.group] if lane.attempt else 0)


def _bar(kind: str, left: float, right: float, title: str) -> Bar:
    """A bar that can be seen, however short."""
    return Bar(kind, min(left, WIDTH - 3), max(3.0, round(right - left, 1)), title)


PAGES: list[Page] = [Page("/traces", ("id", "name", "before"), traces)]
ACTIONS: list[tuple[str, Action]] = []
