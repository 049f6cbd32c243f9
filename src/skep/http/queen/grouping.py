"""`consumer-groups`: their lag, and moving and deleting them. A group is one of a queue with us, and spans queues with Queen."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.errors import Code, SkepError
from skep.http.queen.door import QueenDoor
from skep.http.queen.popping import instant_of
from skep.http.queen.shapes import QueenGroup, QueenSeek, QueenSubscription
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.tenant_scan import survey
from skep.model import FROM_NOW, GroupStats, Start, StartMode
from skep.model.group import no_group
from skep.wire.times import to_datetime

LAG_SECONDS = 60
STABLE, LAGGING = "Stable", "Lagging"
_START, _END = ("beginning", "start", "earliest"), ("end", "latest")

_decode_seek = msgspec.json.Decoder(QueenSeek)
_decode_subscription = msgspec.json.Decoder(QueenSubscription)


async def list_groups(door: QueenDoor, call: Call) -> Answer:
    """List groups, queue by queue."""
    return json_answer([group_view(one) for one in await _groups(door, call)])


async def lagging(door: QueenDoor, call: Call) -> Answer:
    """List groups whose oldest message waits for longer than asked."""
    least = parameters.duration_seconds(call.query, "minLagSeconds")
    wanted = LAG_SECONDS if least is None else least
    return json_answer([group_view(one) for one in await _groups(door, call) if one.lag_seconds >= wanted])


async def show(door: QueenDoor, call: Call) -> Answer:
    """Show a group in all queues that it reads."""
    found = await _named(door, call)
    return json_answer(
        {
            "name": call.path("group"),
            "totalLag": sum(one.lag_messages for one in found),
            "maxTimeLag": max(one.lag_seconds for one in found),
            "queues": [group_view(one) for one in found],
        }
    )


async def refresh(door: QueenDoor, call: Call) -> Answer:  # noqa: ARG001 - it has nothing to do
    """Do nothing: figures are counted as things happen."""
    call.visible  # noqa: B018 - it shows no queue
    return json_answer({"success": True})


async def delete(door: QueenDoor, call: Call) -> Answer:
    """Delete a group in all queues that it reads, or let it start again where it began."""
    return await _deleted(door, call, await _named(door, call))


async def delete_in_queue(door: QueenDoor, call: Call) -> Answer:
    """Delete a group in one queue, or let it start again where it began."""
    key = call.queue(call.path("queue"))
    name = call.path("group")
    stats = await door.engine.browse.queue_stats(key)
    found = [one for one in stats.groups if one.group == name]
    if not found:
        raise no_group(key.name, name)
    return await _deleted(door, call, found)


async def _deleted(door: QueenDoor, call: Call, found: Sequence[GroupStats]) -> Answer:
    """Without its metadata a group is gone; with them it forgets its progress, and keeps its subscription."""
    forgets = parameters.flag({"deleteMetadata": "true", **call.query}, "deleteMetadata")
    call.note(count=len(found), target=f"group {call.path('group')} of {_named_queues(found)}")
    for one in found:
        if forgets:
            await door.engine.groups.delete(one.queue, one.group)
        else:
            await door.engine.groups.seek(one.queue, one.group, Start(StartMode.SEQ, one.start_seq + 1))
    queues = [one.queue.name for one in found]
    return json_answer(
        {
            "success": True,
            "deleted": True,
            "consumerGroup": call.path("group"),
            "queues": queues,
            "metadataDeleted": forgets,
        }
    )


def _named_queues(found: Sequence[GroupStats]) -> str:
    return f"queue {found[0].queue.name}" if len(found) == 1 else f"{len(found)} queues"


async def subscription(door: QueenDoor, call: Call) -> Answer:
    """Move a group to a time in all queues that it reads."""
    request = await call.json(_decode_subscription)
    start = Start(StartMode.TIME, instant_of(request.subscription_timestamp, "subscriptionTimestamp"))
    found = await _named(door, call)
    for one in found:
        await door.engine.groups.seek(one.queue, one.group, start)
    call.note(count=len(found), target=f"group {call.path('group')} of {_named_queues(found)}")
    queues = [one.queue.name for one in found]
    return json_answer({"success": True, "consumerGroup": call.path("group"), "queues": queues})


async def seek(door: QueenDoor, call: Call) -> Answer:
    """Move a group of a queue; a missing one is made."""
    key = call.queue(call.path("queue"))
    start = _start_of(await call.json(_decode_seek, QueenSeek()))
    stats = await door.engine.groups.seek(key, call.path("group"), start)
    call.note(count=stats.lag_messages, after=f"seq {stats.progress_seq}")
    return json_answer(
        {"success": True, "consumerGroup": stats.group, "queue": key.name, "totalLag": stats.lag_messages}
    )


def _start_of(request: QueenSeek) -> Start:
    position = request.mode if request.position is None else request.position
    if request.to_end or position in _END:
        return FROM_NOW
    if request.timestamp is not None:
        return Start(StartMode.TIME, instant_of(request.timestamp, "timestamp"))
    if position in _START:
        return Start(StartMode.ALL)
    if type(position) is int:
        return Start(StartMode.SEQ, position)
    if request.mode is not None:
        return Start(StartMode.TIME, instant_of(request.mode, "mode"))
    raise SkepError(
        Code.INVALID_REQUEST,
        "say where to: toEnd, a timestamp, or a position (beginning, end, or the seq of a message)",
    )


async def _groups(door: QueenDoor, call: Call) -> list[GroupStats]:
    """All groups of the tenant that the caller may see."""
    seen = await survey(door.engine, call.tenant, sees=call.visible)
    return [group for one in seen.queues for group in one.stats.groups]


async def _named(door: QueenDoor, call: Call) -> list[GroupStats]:
    """The group of the path in all queues where the caller may do this; GROUP_NOT_FOUND when there is none."""
    name = call.path("group")
    found = [one for one in await _groups(door, call) if one.group == name]
    if not found:
        raise SkepError(Code.GROUP_NOT_FOUND, f"there is no group {name!r:.200} here", group=name)
    return found


def group_view(one: GroupStats) -> QueenGroup:
    """A group of a queue."""
    return QueenGroup(
        name=one.group, queue_name=one.queue.name, total_lag=one.lag_messages, max_time_lag=one.lag_seconds,
        in_flight=one.in_flight, members=one.partitions_leased, completed=one.completed, failed=one.dead,
        state=LAGGING if one.lag_seconds >= LAG_SECONDS else STABLE, created_at=to_datetime(one.created_at),
    )  # fmt: skip
