"""`traces`: what consumers tell of a message. With us these are events of the message's trace.

An event has one name with us and any number with Queen, so it is stored once for each.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.http.queen.door import QueenDoor, group_of
from skep.http.queen.finding import find_message, message_of, part
from skep.http.queen.names import PartitionName, read_partition, write_id
from skep.http.queen.shapes import QueenTrace, QueenTraceRequest
from skep.http.request.call import Answer, Call, json_answer
from skep.http.routes.traces import is_seen
from skep.ids import id_text
from skep.model.history import TraceEvent
from skep.model.key import Verb
from skep.wire.times import to_datetime

NAMES_MAX = 100
EVENTS = 1_000
"""How many events or names are read for one answer."""
EVENT_TYPE = "info"


class ReportedEvent(Struct, rename="camel"):
    """The data of an event that came by this door."""

    transaction_id: str
    partition: str
    consumer_group: str
    event_type: str
    data: Raw


_decode = msgspec.json.Decoder(QueenTraceRequest)
_encode = msgspec.json.Encoder().encode
_told = msgspec.json.Decoder(ReportedEvent).decode


async def tell(door: QueenDoor, call: Call) -> Answer:
    """Store an event of a message."""
    request = await call.json(_decode)
    place = read_partition(request.partition_id, call, Verb.POP)
    names = list(dict.fromkeys(request.trace_names or ())) or [request.event_type or EVENT_TYPE]
    if len(names) > NAMES_MAX:
        raise SkepError(Code.INVALID_REQUEST, f"an event has at most {NAMES_MAX} names")
    message = await find_message(door.engine, place, request.transaction_id)
    group, kind = group_of(request.consumer_group), request.event_type or EVENT_TYPE
    data = _encode(ReportedEvent(request.transaction_id, place.partition, group, kind, request.data))
    events = [
        TraceEvent(
            trace_id=message.trace_id, name=name, data=data, at=Instant(0), message_id=message.id, queue=place.queue
        )
        for name in names
    ]
    await door.engine.history.tell(events, call.tenant)
    return json_answer({"success": True, "traceId": id_text(message.trace_id)}, HTTPStatus.CREATED)


async def of_message(door: QueenDoor, call: Call) -> Answer:
    """List the events of a message, in their order."""
    message = await message_of(door.engine, call, Verb.READ)
    found = await door.engine.history.events(message.trace_id, call.tenant, limit=EVENTS)
    shown = [_shown(event, call) for event in found if event.message_id == message.id and is_seen(event, call)]
    return json_answer({"traces": shown})


async def by_name(door: QueenDoor, call: Call) -> Answer:
    """List events with a name, newest first."""
    call.visible  # noqa: B018 - it may find nothing to ask it for
    found = await door.engine.history.events_named(call.path("name"), call.tenant, limit=EVENTS)
    shown = [_shown(event, call) for event in found if is_seen(event, call)]
    return json_answer({"traces": part(shown, call.query), "total": len(shown)})


async def names(door: QueenDoor, call: Call) -> Answer:
    """List the names of events."""
    found = await door.engine.history.names(call.tenant, limit=EVENTS)
    shown = [{"traceName": one.name, "lastSeen": to_datetime(one.last_at)} for one in found]
    return json_answer({"traceNames": part(shown, call.query), "total": len(shown)})


def _shown(event: TraceEvent, call: Call) -> QueenTrace:
    """An event. One that was told natively has no group, and its data as they are."""
    told: Any
    try:
        told = _told(event.data)
    except msgspec.DecodeError:
        told = ReportedEvent("", "", "", EVENT_TYPE, Raw(event.data))
    has_place = bool(told.partition and event.queue)
    return QueenTrace(
        trace_id=id_text(event.trace_id), trace_name=event.name, event_type=told.event_type, data=told.data,
        created_at=to_datetime(event.at), message_id=None if event.message_id is None else id_text(event.message_id),
        queue_name=event.queue, transaction_id=told.transaction_id or UNSET, consumer_group=told.consumer_group or UNSET,
        partition_id=write_id(PartitionName(call.tenant, event.queue or "", told.partition)) if has_place else UNSET,
    )  # fmt: skip
