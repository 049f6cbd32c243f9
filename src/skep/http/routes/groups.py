"""`/api/v1/consumer-groups…`: see the progress of consumer groups, and move them."""

from __future__ import annotations

import msgspec

from skep.clock import Instant
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME
from skep.http.request.permission import ADMIN, POP, READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.queues import DRY_RUN
from skep.http.routes.route_table import RouteTable
from skep.http.tenant_scan import TenantScan, asked_page, figures, survey
from skep.http.views import group_figures
from skep.model import GroupStats, MessageFilter, QueueKey, QueueStats, Seq, Start, StartMode
from skep.wire.groups import (
    GroupDeleted,
    GroupDetail,
    GroupFigures,
    GroupsResponse,
    LeasesReleased,
    ProgressOfMany,
    ProgressOfManyResponse,
    ProgressRequest,
    ReleaseRequest,
    SeekRequest,
    SeekResponse,
    SeekTo,
)
from skep.wire.log import MOST_QUEUES
from skep.wire.times import to_instant

QUEUE = Parameter("queue", str, "only of this queue")
PAGE_QUEUES = Parameter("limit", int, "queues whose groups one page has; 100 by default, 1000 at most")

_decode_seek = msgspec.json.Decoder(SeekRequest)
_decode_release = msgspec.json.Decoder(ReleaseRequest)
_decode_progress = msgspec.json.Decoder(ProgressRequest)
_decode_progress_of_many = msgspec.json.Decoder(ProgressOfMany)


ROUTES: RouteTable[Engine] = RouteTable("Consumer groups")


@ROUTES.route(
    "GET", "/api/v1/consumer-groups", READ_LIST, "List groups with their lag, queue by queue",
    parameters=(QUEUE, AFTER_NAME, PAGE_QUEUES), answers={200: GroupsResponse},
)  # fmt: skip
async def list_groups(engine: Engine, call: Call) -> Answer:
    seen, after = await _page(engine, call)
    return json_answer(GroupsResponse([group_figures(group, stats) for stats in seen for group in stats.groups], after))


@ROUTES.route(
    "GET", "/api/v1/consumer-groups/{group}", READ_LIST, "Show a group in all queues that it reads",
    parameters=(QUEUE,), answers={200: GroupDetail},
)  # fmt: skip
async def show(engine: Engine, call: Call) -> Answer:
    name = call.path("group")
    seen = await _in_question(engine, call)
    found = [
        group_figures(group, one.stats) for one in seen.queues for group in one.stats.groups if group.group == name
    ]
    if not found:
        raise _no_group(name)
    lag_seconds = max(group.lag_seconds for group in found)
    return json_answer(GroupDetail(name, sum(group.lag for group in found), lag_seconds, found, seen.complete))


@ROUTES.route(
    "POST", "/api/v1/consumer-groups/{group}/seek", ADMIN, "Move a group to a position; a missing group is made",
    request=SeekRequest, answers={200: SeekResponse}, description="Its leases end, and its counters start again.",
    example={"queue": "orders", "to": "time", "time": "2026-01-31T12:00:00Z", "dryRun": True},
)  # fmt: skip
async def seek(engine: Engine, call: Call) -> Answer:
    name = call.path("group")
    request = await call.json(_decode_seek)
    start = start_of(request)
    key = call.queue(request.queue)
    stats = await engine.browse.queue_stats(key)
    before = _group(stats, name)
    if request.dry_run:
        to_seq = await reached(engine, key, stats, start)
        pending = pending_after(stats, to_seq)
    else:
        moved = await engine.groups.seek(key, name, start)
        to_seq, pending = moved.progress_seq, moved.lag_messages
    at = "no group" if before is None else f"seq {before.progress_seq}"
    call.note(count=pending, before=at, after=f"seq {to_seq}", dry_run=request.dry_run)
    return json_answer(
        SeekResponse(
            key.name, name, request.dry_run, None if before is None else before.progress_seq, to_seq, pending,
            0 if before is None else before.in_flight,
        )
    )  # fmt: skip


@ROUTES.route(
    "POST", "/api/v1/consumer-groups/{group}/release", ADMIN,
    "End the leases of a partition, whoever holds them: its messages are delivered again at once",
    request=ReleaseRequest, answers={200: LeasesReleased},
    description="The delivery counts as an attempt. The earlier holder may still ack until another consumer has them.",
    example={"queue": "orders", "partition": "customer-42"},
)  # fmt: skip
async def release(engine: Engine, call: Call) -> Answer:
    name = call.path("group")
    request = await call.json(_decode_release)
    key = call.queue(request.queue)
    released = await engine.groups.end_leases(key, name, request.partition)
    call.note(target=f"partition {request.partition} of queue {key.name}, group {name}", count=released)
    return json_answer(LeasesReleased(key.name, name, request.partition, released))


@ROUTES.route(
    "POST", "/api/v1/consumer-groups/{group}/progress", POP, "Report the progress of a reader of the raw log",
    request=ProgressRequest, answers={200: GroupFigures},
    description="A missing group is made, and marked external: it has no leases, and nobody pops for it. Its lag is shown and "
    "retention waits for it, as for any group. Its progress never goes back, except by a seek. With `archived` the group is an archive: "
    "the messages up to `seq` are safe in its lake, and retention that requires an archive may delete them.",
    example={"queue": "orders", "seq": 1200, "archived": True},
)  # fmt: skip
async def progress(engine: Engine, call: Call) -> Answer:
    request = await call.json(_decode_progress)
    key = call.queue(request.queue)
    stats = await engine.log.report_progress(key, call.path("group"), Seq(request.seq), archived=request.archived)
    return json_answer(group_figures(stats))


@ROUTES.route(
    "POST", "/api/v1/consumer-groups/{group}/progress/batch", POP,
    "Report the progress of a reader of the raw log in many queues",
    request=ProgressOfMany, answers={200: ProgressOfManyResponse},
    description=f"At most {MOST_QUEUES} queues; missing ones are left out of the answer. An error names a queue; the reports of others may have "
    "taken effect. Repeating all of them does no harm.",
    example={"seqs": {"orders": 1200}},
)  # fmt: skip
async def progress_of_many(engine: Engine, call: Call) -> Answer:
    group, request = call.path("group"), await call.json(_decode_progress_of_many)
    seqs = request.seqs
    for queue in seqs:
        call.queue(queue)
    reported = {queue: Seq(seq) for queue, seq in seqs.items()}
    done = await engine.log.report_progress_of(call.tenant, group, reported, archived=request.archived)
    return json_answer(ProgressOfManyResponse(group, {queue: done[queue] for queue in seqs if queue in done}))


@ROUTES.route(
    "DELETE", "/api/v1/consumer-groups/{group}", ADMIN, "Forget a group of a queue, and its leases",
    parameters=(Parameter("queue", str, "the queue whose group it is", required=True), DRY_RUN),
    answers={200: GroupDeleted},
)  # fmt: skip
async def delete(engine: Engine, call: Call) -> Answer:
    name = call.path("group")
    key = call.queue(parameters.needed(call.query, "queue"))
    dry_run = parameters.flag(call.query, "dryRun")
    group = _group(await engine.browse.queue_stats(key), name)
    call.note(count=None if group is None else group.pending, dry_run=dry_run)
    if group is None or (not dry_run and not await engine.groups.delete(key, name)):
        raise _no_group(name)
    return json_answer(GroupDeleted(key.name, name, dry_run, group.pending, group.in_flight))


async def _page(engine: Engine, call: Call) -> tuple[list[QueueStats], str | None]:
    if "queue" in call.query:
        return [await engine.browse.queue_stats(call.queue(call.query["queue"]))], None
    queues, after = await asked_page(engine, call)
    return [one.stats for one in await figures(engine, queues)], after


async def _in_question(engine: Engine, call: Call) -> TenantScan:
    if "queue" not in call.query:
        return await survey(engine, call.tenant, sees=call.visible)
    queue = await engine.get_queue(call.queue(call.query["queue"]))
    return TenantScan(await figures(engine, [queue]), True)


def start_of(request: SeekRequest) -> Start:
    """The position of a request."""
    if (request.time is not None) != (request.to is SeekTo.TIME) or (request.seq is not None) != (
        request.to is SeekTo.SEQ
    ):
        raise SkepError(
            Code.INVALID_REQUEST, "'time' goes with to: time, 'seq' with to: seq, and neither with the others"
        )
    match request.to:
        case SeekTo.BEGINNING:
            return Start(StartMode.ALL)
        case SeekTo.END:
            return Start(StartMode.NEW)
        case SeekTo.TIME:
            assert request.time is not None
            return Start(StartMode.TIME, to_instant(request.time))
        case SeekTo.SEQ:
            return Start(StartMode.SEQ, request.seq or 0)


async def reached(engine: Engine, key: QueueKey, stats: QueueStats, start: Start) -> int:
    """The seq up to which all messages would count as read."""
    first = await _first(engine, key, stats, start)
    return min(max(first, stats.first_seq), stats.last_seq + 1) - 1


def pending_after(stats: QueueStats, to_seq: int) -> int:
    """How many messages follow a seq. Amid a log with gaps this is too high, as counting the gaps would take a read of the log."""
    return stats.last_seq - to_seq - (stats.gaps if to_seq < stats.first_seq else 0)


async def _first(engine: Engine, key: QueueKey, stats: QueueStats, start: Start) -> int:
    match start.mode:
        case StartMode.ALL:
            return stats.first_seq
        case StartMode.NEW:
            return stats.last_seq + 1
        case StartMode.SEQ:
            return start.value
        case StartMode.TIME:
            since = MessageFilter(queue=key, since=Instant(start.value), limit=1, preview_bytes=0)
            page = await engine.browse.messages(since)
            return page.messages[0].seq if page.messages else stats.last_seq + 1


def _group(stats: QueueStats, name: str) -> GroupStats | None:
    return next((group for group in stats.groups if group.group == name), None)


def _no_group(name: str) -> SkepError:
    return SkepError(Code.GROUP_NOT_FOUND, f"there is no group {name!r} here", group=name)
