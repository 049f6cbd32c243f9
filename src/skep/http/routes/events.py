"""`POST /api/v1/events/{queue}`: CloudEvents."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from skep.engine import Engine
from skep.http import pushing
from skep.http.cloud_events import (
    SEVERAL,
    SINGLE,
    Destination,
    binary_event,
    format_of,
    message_of,
    messages_of,
    read_event,
)
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import PUSH
from skep.http.request.route import Media, Route
from skep.model import NewMessage
from skep.observe.metrics import Meter
from skep.wire.cloud_events import BATCHED, STRUCTURED, CloudEvent
from skep.wire.messages import PushResponse
from skep.wire.operations import QueuedPushResponse

QUICK_BYTES = 64 * 1024
"""A larger body is read in a thread, so that it holds up no other call."""

T = TypeVar("T")


async def beside(body: bytes, work: Callable[..., T], *arguments: object) -> T:
    """What is made of a body; in a thread when that takes long."""
    if len(body) > QUICK_BYTES:
        return await asyncio.to_thread(work, *arguments)
    return work(*arguments)


def routes(engine: Engine, meter: Meter, json_depth: int) -> list[Route]:
    """Events that come in."""

    async def take(call: Call) -> Answer:
        destination = Destination(call.queue(call.path("queue")), call.trace_context, call.principal)
        kind = format_of(call)
        body = await call.body()
        admission = engine.admission
        if not admission.lets_push_in():
            await admission.wait_to_push()
        try:
            messages = await read(call, kind, body, destination)
            if not messages:
                return json_answer(PushResponse(True, False, True, [], {}))
            return pushing.answer(await pushing.push(engine, meter, messages))
        finally:
            admission.leave_push()

    async def read(call: Call, kind: str | None, body: bytes, destination: Destination) -> list[NewMessage]:
        if kind == BATCHED:
            several = await call.read_json(body, SEVERAL, 2)
            return await beside(body, messages_of, several, destination, json_depth)
        if kind == STRUCTURED:
            members = await call.read_json(body, SINGLE, 1)
            event = await beside(body, read_event, members, json_depth)
        else:
            event = await beside(body, binary_event, call, body, json_depth)
        return [message_of(event, destination)]

    return [
        Route(
            method="POST",
            path="/api/v1/events/{queue}",
            handler=take,
            summary="Push CloudEvents, whole or not at all",
            description="An event in the structured or the binary content mode, or a batch of them. In the binary mode any content type is the"
            " type of the data, and the attributes are headers (`ce-id` and so on). 201 when something was stored, 200 when all were"
            " duplicates, 202 when it was queued as operations.",
            request=(Media(STRUCTURED, CloudEvent), Media(BATCHED, list[CloudEvent])),
            answers={201: PushResponse, 200: PushResponse, 202: QueuedPushResponse},
            tag="CloudEvents",
            verb="push",
            access=PUSH,
            example={
                "specversion": "1.0",
                "id": "1001",
                "source": "/shop/orders",
                "type": "com.example.order.placed",
                "partitionkey": "customer-42",
                "data": {"total": 99.5},
            },
        )
    ]
