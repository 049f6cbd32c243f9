"""`POST /api/v1/configure`, `/api/v1/resources/queues…` and the calls about a whole queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from skep.engine import Engine
from skep.engine.queue_settings import parse_changes
from skep.http.auditing import note_settings, settings_before
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT
from skep.http.request.permission import ADMIN, READ, READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable
from skep.http.tenant_scan import asked_page, figures
from skep.http.views import listed_queue, queue_detail, queue_view
from skep.model import NO_DEAD_LETTER_QUEUE, Queue, QueueChanges, QueueKey
from skep.model.queue import no_queue
from skep.wire.queues import (
    ClearRequest,
    ClearResponse,
    ConfigureRequest,
    QueueDeleted,
    QueueDetail,
    QueuesResponse,
    QueueView,
)

DRY_RUN = Parameter("dryRun", bool, "only say what would happen")
LIST_PARAMETERS = (
    Parameter("namespace", str, "only queues of this namespace"),
    Parameter("task", str, "only queues of this task"),
    Parameter("stats", bool, "whether to add the figures of each queue; true by default"),
    AFTER_NAME,
    LIMIT,
)


class _Configure(Struct, forbid_unknown_fields=True):
    """As `ConfigureRequest`, with raw settings: the engine has a better error for an unknown one."""

    queue: str
    settings: dict[str, Any] = {}


_decode_configure = msgspec.json.Decoder(_Configure)
_decode_clear = msgspec.json.Decoder(ClearRequest)


ROUTES: RouteTable[Engine] = RouteTable("Queues")


@ROUTES.route(
    "POST", "/api/v1/configure", ADMIN, "Make a queue, or change the settings of an existing one",
    request=ConfigureRequest, answers={200: QueueView}, description="Only the settings that are given change.",
    example={"queue": "orders", "settings": {"lease_seconds": 60, "max_attempts": 5}},
)  # fmt: skip
async def configure(engine: Engine, call: Call) -> Answer:
    request = await call.json(_decode_configure)
    changes = parse_changes(request.settings)
    check_burial(call, changes)
    key = call.queue(request.queue)
    before = await settings_before(engine, key)
    queue = await engine.configure_queue(key, changes)
    note_settings(call, before, queue.settings)
    return json_answer(queue_view(queue))


@ROUTES.route(
    "GET", "/api/v1/resources/queues", READ_LIST, "List queues by name", parameters=LIST_PARAMETERS,
    answers={200: QueuesResponse},
)  # fmt: skip
async def list_queues(engine: Engine, call: Call) -> Answer:
    queues, after = await asked_page(engine, call)
    keys = {one.queue: one.created_at for one in await engine.encryption.wrapped_keys()}  # oldest first
    wants_stats = parameters.flag({"stats": "true", **call.query}, "stats")
    found = await figures(engine, queues) if wants_stats else [(queue, None) for queue in queues]
    return json_answer(QueuesResponse([listed_queue(queue, stats, keys) for queue, stats in found], after))


@ROUTES.route(
    "GET", "/api/v1/resources/queues/{queue}", READ, "Show a queue with its settings, figures and groups",
    answers={200: QueueDetail},
)  # fmt: skip
async def show(engine: Engine, call: Call) -> Answer:
    key = queue_key(call)
    queue = await engine.get_queue(key)
    return json_answer(queue_detail(queue, await engine.browse.queue_stats(key)))


@ROUTES.route(
    "DELETE", "/api/v1/resources/queues/{queue}", ADMIN, "Delete a queue with all it holds", parameters=(DRY_RUN,),
    answers={200: QueueDeleted}, description="409 while another queue buries its dead letters there.",
)  # fmt: skip
async def delete(engine: Engine, call: Call) -> Answer:
    key = queue_key(call)
    dry_run = parameters.flag(call.query, "dryRun")
    stats = await engine.browse.queue_stats(key)
    call.note(count=stats.depth, dry_run=dry_run)
    if not dry_run and not await engine.delete_queue(key):
        raise no_queue(key.name)
    return json_answer(
        QueueDeleted(key.name, dry_run, stats.depth, stats.scheduled, stats.in_flight, len(stats.groups))
    )


@ROUTES.route(
    "POST", "/api/v1/queues/{queue}/pause", ADMIN, "Hand out nothing more; pushes and acks go on",
    answers={200: QueueView},
)  # fmt: skip
async def pause(engine: Engine, call: Call) -> Answer:
    return await _changed(engine, call, engine.pause_queue)


async def _changed(engine: Engine, call: Call, change: Callable[[QueueKey], Awaitable[Queue]]) -> Answer:
    key = queue_key(call)
    before = await settings_before(engine, key)
    queue = await change(key)
    note_settings(call, before, queue.settings)
    return json_answer(queue_view(queue))


@ROUTES.route("POST", "/api/v1/queues/{queue}/resume", ADMIN, "Hand out messages again", answers={200: QueueView})
async def resume(engine: Engine, call: Call) -> Answer:
    return await _changed(engine, call, engine.resume_queue)


@ROUTES.route(
    "POST", "/api/v1/queues/{queue}/clear", ADMIN, "Remove messages: pending ones, scheduled ones, or all",
    request=ClearRequest, optional=True, answers={200: ClearResponse}, example={"scope": "pending", "dryRun": True},
)  # fmt: skip
async def clear(engine: Engine, call: Call) -> Answer:
    key = queue_key(call)
    request = await call.json(_decode_clear, empty=ClearRequest())
    call.note(dry_run=request.dry_run)
    cleared = await engine.clear(key, request.scope, dry_run=request.dry_run)
    call.note(count=cleared.pending + cleared.scheduled, dry_run=request.dry_run)
    return json_answer(ClearResponse(key.name, request.scope, request.dry_run, cleared.pending, cleared.scheduled))


def queue_key(call: Call) -> QueueKey:
    """The queue that the path names."""
    return call.queue(call.path("queue"))


def check_burial(call: Call, changes: QueueChanges) -> None:
    """Check that the caller may use the dead-letter queue of the settings: it is created when it is missing, and filled from this queue."""
    if isinstance(changes.dead_letter_queue, str) and changes.dead_letter_queue != NO_DEAD_LETTER_QUEUE:
        call.queue(changes.dead_letter_queue)
