"""`POST /api/v1/queues/{queue}/forget` and `GET /api/v1/log/{queue}/forgotten`: erasing messages for good, and what was erased."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.clock import Instant
from skep.engine import Engine
from skep.engine.forgetting import NAMED_RANGES, ForgetReport
from skep.errors import Code
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.request.permission import ADMIN, READ
from skep.http.routes.queues import queue_key
from skep.http.routes.route_table import RouteTable
from skep.http.views import wanted_id
from skep.model import QueueKey
from skep.model.forgetting import ForgetFilter, SeqRange
from skep.wire.forgetting import ForgetRequest, ForgetResponse, ForgottenResponse, TombstoneView
from skep.wire.times import to_datetime

_decode_forget = msgspec.json.Decoder(ForgetRequest)


ROUTES: RouteTable[Engine] = RouteTable("Log")


@ROUTES.route(
    "POST", "/api/v1/queues/{queue}/forget", ADMIN, "Erase messages for good, with all that stems from them",
    request=ForgetRequest, answers={200: ForgetResponse},
    description="They leave the log, settled or not, and with them their dead letters, what replays made of these, their errors, "
    "events of traces, scheduled messages and deduplication keys. A repeat erases what is left. 409 with LOG_REPLACED when the queue "
    "was made anew since.",
    example={"seqs": [4, [10, 20]], "dryRun": True},
)  # fmt: skip
async def forget(engine: Engine, call: Call) -> Answer:
    key = queue_key(call)
    request = await call.json(_decode_forget)
    wanted = _filter(key, request)
    target = f"queue {key.name}, by {', '.join(wanted.names) or 'nothing'}"
    call.note(target=target, dry_run=request.dry_run)
    done = await engine.forgetting.forget(wanted, dry_run=request.dry_run)
    call.note(target=target, count=done.count, after=_told(done, request.dry_run), dry_run=request.dry_run)
    return json_answer(
        ForgetResponse(
            key.name, done.log, request.dry_run, done.count, done.messages, done.letters, done.copies, done.scheduled, done.operations
        )
    )  # fmt: skip


def _filter(key: QueueKey, request: ForgetRequest) -> ForgetFilter:
    seqs = request.seqs
    return ForgetFilter(
        queue=key,
        log=None if request.log is None else Instant(request.log),
        ranges=None
        if seqs is None
        else [SeqRange(one, one) if isinstance(one, int) else SeqRange(*one) for one in seqs],
        partition=request.partition,
        transaction_id=request.transaction_id,
        trace_id=None if request.trace_id is None else wanted_id(request.trace_id, Code.INVALID_TRACE_ID),
    )


def _told(done: ForgetReport, dry_run: bool) -> str | None:
    """The seqs for the audit log, which does not tell what was in them."""
    if dry_run or not done.ranges:
        return None
    return f"forgotten: seqs {_words(done.ranges)}{', …' if len(done.ranges) == NAMED_RANGES else ''}"


def _words(ranges: Sequence[SeqRange]) -> str:
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)


@ROUTES.route(
    "GET", "/api/v1/log/{queue}/forgotten", READ, "Which seqs of the log were forgotten",
    parameters=(AFTER_SEQ, LIMIT), answers={200: ForgottenResponse},
    description="For those who keep copies of the log elsewhere: they erase these seqs, too. `forgotten` of the bounds is the newest "
    "position.",
)  # fmt: skip
async def forgotten(engine: Engine, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    limit = page_limit(call.query)
    after = parameters.position(call.query, "after") or 0
    found = await engine.forgetting.tombstones(key, after=after, limit=limit)
    views = [
        TombstoneView(one.position, one.first_seq, one.last_seq, to_datetime(one.forgotten_at))
        for one in found.tombstones
    ]
    return json_answer(
        ForgottenResponse(key.name, found.log, views, next_after(found.tombstones, limit, lambda one: one.position))
    )
