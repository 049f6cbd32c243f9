"""Scheduled messages of a queue, or of all: a list by the time when they are due; run, moved or cancelled after a preview.

The preview has a mark. Messages that are scheduled or moved between the preview and the confirmation are not touched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

import msgspec

from skep.clock import Instant
from skep.dashboard.payloads import one_line
from skep.dashboard.site import Action, Fields, InvalidFormError, Page, Site, check_shown_again
from skep.dashboard.views.queue import key_of, key_to_change
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ, READ_TO_CHANGE
from skep.http.scheduled import place_of, place_text
from skep.http.tenant_scan import totals
from skep.http.views import wanted_id
from skep.ids import id_text
from skep.model import Queue, QueueKey
from skep.model.scheduled import Change, ScheduledFilter
from skep.wire.times import to_datetime

PAGE_ROWS = 50
PREVIEWED = 5
_PREVIEW_BYTES = 400
_NOTICES = {Change.CANCEL: "unscheduled", Change.RUN: "ran", Change.MOVE: "rescheduled"}


def _wanted(key: QueueKey, said: Mapping[str, str], ids: Sequence[str] = ()) -> ScheduledFilter:
    """Which messages are meant: those chosen, or all that match."""
    mark = parameters.position({"mark": said["mark"]}, "mark") if said.get("mark") else None
    return ScheduledFilter(
        tenant=key.tenant, queue=key.name, ids=[wanted_id(text) for text in ids] or None,
        partition=said.get("partition") or None, transaction_id=said.get("txid") or None, mark=mark,
    )  # fmt: skip


async def scheduled(site: Site, call: Call) -> Answer:
    """A page of the scheduled messages of a queue."""
    key = key_of(call)
    found = await site.engine.get_queue(key)
    return await _listed(site, call, found, (await site.engine.browse.queue_stats(key)).scheduled)


async def everywhere(site: Site, call: Call) -> Answer:
    """A page of the scheduled messages of all queues that may be read."""
    return await _listed(site, call, None, totals((await site.snapshot(call)).seen).scheduled)


async def _listed(site: Site, call: Call, queue: Queue | None, total: int) -> Answer:
    """The list, with the messages that are due first at the top."""
    links, sees = site.links(call), call.visible
    said = {name: links.query.get(name, "") for name in ("partition", "txid")}
    wanted = ScheduledFilter(
        tenant=links.tenant, queue=None if queue is None else queue.key.name, partition=said["partition"] or None,
        transaction_id=said["txid"] or None,
    )  # fmt: skip
    page = await site.engine.scheduled.page(
        wanted, after=place_of(links.query.get("after")), limit=PAGE_ROWS, preview_bytes=_PREVIEW_BYTES
    )
    return site.page(
        call, "scheduled.html", screen="queues", queue=queue, said=said, after=place_text(page.after), total=total,
        rows=[(one, one_line(one.payload, one.content_type)) for one in page.messages if sees(one.queue)], id_text=id_text,
    )  # fmt: skip


async def confirm(site: Site, call: Call) -> Answer:
    """The preview of a change."""
    links, key = site.links(call), key_to_change(call)
    what = parameters.choice(links.query, "do", Change)
    if what is None:
        raise SkepError(Code.INVALID_REQUEST, "scheduled messages are cancelled, run or moved")
    said = {name: links.query.get(name, "") for name in ("partition", "txid")}
    time = to_datetime(site.engine.now()).strftime("%Y-%m-%dT%H:%M:00Z")
    return await _question(site, call, _wanted(key, said, call.values("id")), what, said, call.values("id"), time)


async def _question(
    site: Site, call: Call, wanted: ScheduledFilter, what: Change, said: Mapping[str, str], ids: Sequence[str], time: str,
    problem: SkepError | None = None,
) -> Answer:  # fmt: skip
    """The page that asks for a confirmation; after a mistake with the typed ``time`` and the problem."""
    check_shown_again(call, wanted.key, problem)
    found = await site.engine.get_queue(wanted.key)
    would = await site.engine.scheduled.count(wanted)
    marked = msgspec.structs.replace(wanted, mark=would.mark)
    examples = await site.engine.scheduled.page(marked, limit=PREVIEWED, preview_bytes=_PREVIEW_BYTES)
    return site.page(
        call, "scheduled_confirm.html", HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY, screen="queues",
        queue=found, what=what.value, said=said, ids=ids, number=would.count, mark=would.mark, time=time, problem=problem,
        examples=[(message, one_line(message.payload, message.content_type)) for message in examples.messages],
    )  # fmt: skip


async def _changed(site: Site, call: Call, fields: Fields, what: Change, deliver_at: Instant | None = None) -> str:
    links, key = site.links(call), key_of(call)
    said = {name: fields.get(name) for name in ("partition", "txid", "mark")}
    done = await site.engine.scheduled.change(_wanted(key, said, fields.all("id")), what, deliver_at)
    call.note(count=done.count, after=None if deliver_at is None else str(to_datetime(deliver_at)))
    return links.url("queues", key.name, "scheduled", notice=_NOTICES[what], number=done.count)


async def cancel(site: Site, call: Call, fields: Fields) -> str:
    """Cancel the messages: they never enter the log."""
    return await _changed(site, call, fields, Change.CANCEL)


async def run(site: Site, call: Call, fields: Fields) -> str:
    """Let the messages enter the log now."""
    return await _changed(site, call, fields, Change.RUN)


async def move(site: Site, call: Call, fields: Fields) -> str:
    """Move the messages to another time."""
    key = key_of(call)  # refuses a queue that may not be changed, before a mistake in the form is told
    typed = fields.get("time").strip()
    try:
        deliver_at = parameters.time({"time": typed}, "time")
    except SkepError as error:
        said, ids = {name: fields.get(name) for name in ("partition", "txid")}, fields.all("id")
        wanted = _wanted(key, {**said, "mark": fields.get("mark")}, ids)
        page = await _question(site, call, wanted, Change.MOVE, said, ids, typed, error)
        raise InvalidFormError(error, page) from error
    return await _changed(site, call, fields, Change.MOVE, deliver_at)


PAGES: list[Page] = [
    Page("/scheduled", ("partition", "txid", "after"), everywhere),
    Page("/queues/{queue}/scheduled", ("partition", "txid", "after"), scheduled, READ),
    Page("/queues/{queue}/scheduled/confirm", ("do", "id*", "partition", "txid"), confirm, READ_TO_CHANGE),
]
ACTIONS: list[tuple[str, Action]] = [
    ("/queues/{queue}/scheduled/cancel", cancel),
    ("/queues/{queue}/scheduled/run", run),
    ("/queues/{queue}/scheduled/move", move),
]
