"""Health, maintenance and analytics: what Queen's administration asks of a server."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

import skep
from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.http.queen.door import QueenDoor
from skep.http.queen.popping import instant_of
from skep.http.queen.shapes import QueenSwitch
from skep.http.request.call import Answer, Call, json_answer
from skep.wire.times import to_datetime

ANALYTICS_SECONDS = 3_600
_decode = msgspec.json.Decoder(QueenSwitch)


async def health(door: QueenDoor, call: Call) -> Answer:  # noqa: ARG001 - it is the same for everybody
    """Tell whether the server can do its work."""
    told = {"status": "healthy", "database": "connected", "server": "skep", "version": skep.__version__}
    try:
        await door.engine.check_writable()
    except SkepError as error:
        told |= {"status": "unhealthy", "database": "disconnected", "error": str(error.code)}
        return json_answer(told, HTTPStatus.SERVICE_UNAVAILABLE)
    return json_answer(told)


async def maintenance(door: QueenDoor, call: Call) -> Answer:  # noqa: ARG001 - there is no such mode
    """Tell that no maintenance mode is on: there is none."""
    return json_answer(
        {"maintenanceMode": False, "popMaintenanceMode": False, "bufferHealthy": not door.engine.store_away}
    )


async def set_maintenance(door: QueenDoor, call: Call) -> Answer:
    """Switch a maintenance mode off, which it is; to switch it on is refused."""
    wanted = await call.json(_decode)
    if wanted.enabled:
        raise SkepError(
            Code.INVALID_REQUEST,
            "there is no maintenance mode: pushes are kept in the spool while the store is away; to stop pops, pause queues: "
            "skep queue pause NAME",
        )
    return await maintenance(door, call)


async def analytics(door: QueenDoor, call: Call) -> Answer:
    """Show the counters of the tenant by the minute."""
    now, query = door.engine.now(), call.query
    since = instant_of(query["from"], "from") if query.get("from") else Instant(now - seconds(ANALYTICS_SECONDS))
    until = instant_of(query["to"], "to") if query.get("to") else now
    found = await door.engine.history.figures(since, call.tenant)
    points = [
        {"timestamp": to_datetime(one.at), "pushed": one.pushed, "completed": one.completed, "retried": one.retried,
         "deadLetter": one.dead, "depth": one.depth}
        for one in found if one.at <= until
    ]  # fmt: skip
    return json_answer({"from": to_datetime(since), "to": to_datetime(until), "points": points})


async def not_here(door: QueenDoor, call: Call) -> Answer:  # noqa: ARG001 - there is nothing to look at
    """Refuse figures that only Queen's own server has."""
    raise SkepError(
        Code.ROUTE_NOT_FOUND, "these figures are of Queen's own server; Skep has its own under GET /metrics"
    )
