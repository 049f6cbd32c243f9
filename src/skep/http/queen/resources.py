"""`resources` and `queues/…/clear`: queues and partitions, with Queen's options and words."""

from __future__ import annotations

from skep.errors import Code, SkepError
from skep.http.queen.configuring import options_of
from skep.http.queen.door import QueenDoor, group_of
from skep.http.queen.finding import part
from skep.http.queen.grouping import group_view
from skep.http.queen.names import PartitionName, write_id
from skep.http.queen.shapes import QueenCounts, QueenPartition, QueenQueue
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.tenant_scan import ALL_QUEUES, Scanned, all_listed, figures
from skep.model import ClearScope, PartitionStats, QueueKey
from skep.wire.times import to_datetime

PARTITIONS = 1_000
"""How many partitions an answer has at most."""


async def list_queues(door: QueenDoor, call: Call) -> Answer:
    """List queues by name. Dead-letter queues are left out: their messages are dead letters of others."""
    query = call.query
    queues, _ = await all_listed(door.engine, call.tenant, ALL_QUEUES, call.visible)
    search = query.get("search", "")
    wanted = [
        queue for queue in queues
        if not queue.holds_dead_letters and search in queue.key.name
        and query.get("namespace") in (None, "", queue.settings.namespace)
        and query.get("task") in (None, "", queue.settings.task)
    ]  # fmt: skip
    shown = await figures(door.engine, part(wanted, query))
    return json_answer({"queues": [_view(one) for one in shown], "total": len(wanted)})


async def show_queue(door: QueenDoor, call: Call) -> Answer:
    """Show a queue with its options, its figures and its partitions with work."""
    key = call.queue(call.path("queue"))
    found = Scanned(await door.engine.get_queue(key), await door.engine.browse.queue_stats(key))
    view = _view(found)
    view.partitions = await _partitions(door, call, key)
    return json_answer(view)


async def delete_queue(door: QueenDoor, call: Call) -> Answer:
    """Delete a queue and its messages. One that is not there is gone already. Its dead letters stay."""
    key = call.queue(call.path("queue"))
    existed = await door.engine.delete_queue(key)
    call.note(target=f"queue {key.name}", count=int(existed))
    return json_answer({"deleted": True, "queue": key.name, "existed": existed})


async def clear_queue(door: QueenDoor, call: Call) -> Answer:
    """Remove all messages of a queue, also leased and scheduled ones."""
    key = call.queue(call.path("queue"))
    if call.query.get("partition"):
        raise SkepError(
            Code.INVALID_REQUEST,
            "only a whole queue can be cleared; delete single messages, or pop the partition with autoAck",
        )
    cleared = await door.engine.clear(key, ClearScope.ALL)
    count = cleared.pending + cleared.scheduled
    call.note(target=f"queue {key.name}", count=count)
    return json_answer({"queue": key.name, "cleared": True, "count": count})


async def list_partitions(door: QueenDoor, call: Call) -> Answer:
    """List the partitions of a queue that have unsettled messages of a group."""
    key = call.queue(parameters.needed(call.query, "queue"))
    return json_answer({"partitions": part(await _partitions(door, call, key), call.query)})


async def _partitions(door: QueenDoor, call: Call, key: QueueKey) -> list[QueenPartition]:
    group = group_of(call.query.get("consumerGroup"))
    found = await door.engine.browse.partition_stats(key, group, limit=PARTITIONS)
    return [_partition(one) for one in found]


def _partition(one: PartitionStats) -> QueenPartition:
    return QueenPartition(
        id=write_id(PartitionName(one.queue.tenant, one.queue.name, one.partition)), name=one.partition,
        queue_name=one.queue.name, pending=one.pending, processing=one.in_flight, retry_count=max(0, one.attempts - 1),
        oldest_message=to_datetime(one.oldest_at), last_error=one.last_error,
        lease_expires_at=None if one.lease_deadline is None else to_datetime(one.lease_deadline),
    )  # fmt: skip


def _view(found: Scanned) -> QueenQueue:
    """A queue. Its messages are counted for the group that is furthest behind."""
    queue, stats = found
    slowest = max(stats.groups, key=lambda group: group.lag_messages, default=None)
    counts = QueenCounts(
        total=stats.depth + stats.in_flight if slowest is None else slowest.pushed,
        pending=stats.depth if slowest is None else slowest.pending,
        processing=0 if slowest is None else slowest.in_flight,
        completed=0 if slowest is None else slowest.completed,
        dead_letter=stats.dead_letters,
        scheduled=stats.scheduled,
    )
    return QueenQueue(
        name=queue.key.name, namespace=queue.settings.namespace, task=queue.settings.task,
        created_at=to_datetime(queue.created_at), options=options_of(queue), messages=counts, paused=queue.settings.paused,
        consumer_groups=[group_view(group) for group in stats.groups],
    )  # fmt: skip
