"""`POST /api/v1/configure`, `/api/v1/resources/queues…` and what is done to a queue as a whole."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from skep.engine import Engine
from skep.engine.settings import parse_changes
from skep.errors import Code, SkepError
from skep.http.auditing import note_settings, settings_before
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import ADMIN, READ, READ_LIST
from skep.http.request.route import Parameter, Route
from skep.http.tenant_scan import figures, listed
from skep.http.views import listed_queue, queue_detail, queue_view
from skep.model import NO_DEAD_LETTER_QUEUE, QueueChanges, QueueKey
from skep.wire.queues import (
    ClearRequest,
    ClearResponse,
    ConfigureRequest,
    QueueDeleted,
    QueueDetail,
    QueuesResponse,
    QueueView,
)

TAG = "Queues"
DRY_RUN = Parameter("dryRun", bool, "only say what would happen")
LIST_PARAMETERS = (
    Parameter("namespace", str, "only queues of this namespace"),
    Parameter("task", str, "only queues of this task"),
    Parameter("stats", bool, "whether to tell each one's figures; true by default"),
    AFTER_NAME,
    LIMIT,
)


class _Configure(Struct, forbid_unknown_fields=True):
    """As `ConfigureRequest`, with settings left as they are written: the engine has a better word for an unknown one."""

    queue: str
    settings: dict[str, Any] = {}


_decode_configure = msgspec.json.Decoder(_Configure)
_decode_clear = msgspec.json.Decoder(ClearRequest)


def routes(engine: Engine) -> list[Route]:
    """Queues."""

    async def configure(call: Call) -> Answer:
        request = await call.json(_decode_configure)
        changes = parse_changes(request.settings)
        check_burial(call, changes)
        key = call.queue(request.queue)
        before = await settings_before(engine, key)
        queue = await engine.configure_queue(key, changes)
        note_settings(call, before, queue.settings)
        return json_answer(queue_view(queue))

    async def list_queues(call: Call) -> Answer:
        query = call.query
        limit = page_limit(query)
        queues = await listed(
            engine,
            call.tenant,
            after=query.get("after", ""),
            limit=limit,
            namespace=query.get("namespace"),
            task=query.get("task"),
            sees=call.visible,
        )
        after = next_after(queues, limit, lambda queue: queue.key.name)
        keys = {one.queue: one.created_at for one in await engine.encryption.wrapped_keys()}  # oldest first
        wants_stats = parameters.flag({"stats": "true", **query}, "stats")
        found = await figures(engine, queues) if wants_stats else [(queue, None) for queue in queues]
        return json_answer(QueuesResponse([listed_queue(queue, stats, keys) for queue, stats in found], after))

    async def show(call: Call) -> Answer:
        key = queue_key(call)
        queue = await engine.get_queue(key)
        return json_answer(queue_detail(queue, await engine.look.queue_stats(key)))

    async def delete(call: Call) -> Answer:
        key = queue_key(call)
        dry_run = parameters.flag(call.query, "dryRun")
        stats = await engine.look.queue_stats(key)
        call.note(count=stats.depth, dry_run=dry_run)
        if not dry_run and not await engine.delete_queue(key):
            raise SkepError(Code.QUEUE_NOT_FOUND, f"there is no queue {key.name!r}", queue=key.name)
        return json_answer(
            QueueDeleted(key.name, dry_run, stats.depth, stats.scheduled, stats.in_flight, len(stats.groups))
        )

    async def pause(call: Call) -> Answer:
        key = queue_key(call)
        before = await settings_before(engine, key)
        queue = await engine.pause_queue(key)
        note_settings(call, before, queue.settings)
        return json_answer(queue_view(queue))

    async def resume(call: Call) -> Answer:
        key = queue_key(call)
        before = await settings_before(engine, key)
        queue = await engine.resume_queue(key)
        note_settings(call, before, queue.settings)
        return json_answer(queue_view(queue))

    async def clear(call: Call) -> Answer:
        key = queue_key(call)
        request = await call.json(_decode_clear, empty=ClearRequest())
        call.note(dry_run=request.dry_run)
        cleared = await engine.clear(key, request.scope, dry_run=request.dry_run)
        call.note(count=cleared.pending + cleared.scheduled, dry_run=request.dry_run)
        return json_answer(ClearResponse(key.name, request.scope, request.dry_run, cleared.pending, cleared.scheduled))

    return [
        Route(
            method="POST", path="/api/v1/configure", access=ADMIN, handler=configure, tag=TAG, request=ConfigureRequest,
            answers={200: QueueView}, summary="Make a queue, or change settings of the one there is",
            description="Only the settings that are given change.",
            example={"queue": "orders", "settings": {"lease_seconds": 60, "max_attempts": 5}},
        ),
        Route(
            method="GET", path="/api/v1/resources/queues", access=READ_LIST, handler=list_queues, tag=TAG, parameters=LIST_PARAMETERS,
            answers={200: QueuesResponse}, summary="List queues by name",
        ),
        Route(
            method="GET", path="/api/v1/resources/queues/{queue}", access=READ, handler=show, tag=TAG, answers={200: QueueDetail},
            summary="Show a queue with its settings, figures and groups",
        ),
        Route(
            method="DELETE", path="/api/v1/resources/queues/{queue}", access=ADMIN, handler=delete, tag=TAG, parameters=(DRY_RUN,),
            answers={200: QueueDeleted}, summary="Delete a queue with all it holds",
            description="409 while another queue buries its dead letters there.",
        ),
        Route(
            method="POST", path="/api/v1/queues/{queue}/pause", access=ADMIN, handler=pause, tag=TAG, answers={200: QueueView},
            summary="Hand out nothing more; pushes and acks go on",
        ),
        Route(
            method="POST", path="/api/v1/queues/{queue}/resume", access=ADMIN, handler=resume, tag=TAG, answers={200: QueueView},
            summary="Hand out messages again",
        ),
        Route(
            method="POST", path="/api/v1/queues/{queue}/clear", access=ADMIN, handler=clear, tag=TAG, request=ClearRequest, optional=True,
            answers={200: ClearResponse}, summary="Take messages away: what waits, what is scheduled, or all",
            example={"scope": "pending", "dryRun": True},
        ),
    ]  # fmt: skip


def queue_key(call: Call) -> QueueKey:
    """The queue that the path names."""
    return call.queue(call.path("queue"))


def check_burial(call: Call, changes: QueueChanges) -> None:
    """Refuse to bury where one may not: a dead-letter queue that settings name is made when it is missing, and filled from here."""
    if isinstance(changes.dead_letter_queue, str) and changes.dead_letter_queue != NO_DEAD_LETTER_QUEUE:
        call.queue(changes.dead_letter_queue)
