"""Messages: one filter box, page by page by seq, and a pane beside with all of one message. Nothing is leased."""

from __future__ import annotations

import shlex
from typing import NamedTuple

import msgspec

from skep.dashboard import filters
from skep.dashboard.deliveries import deliveries_of
from skep.dashboard.links import Links
from skep.dashboard.payloads import download, headers_of, one_line, shown
from skep.dashboard.site import Action, Page, Site
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call
from skep.http.request.permission import READ
from skep.http.routes.traces import is_seen
from skep.http.tenant_scan import listed
from skep.ids import id_text
from skep.model import MessageFilter, QueueKey, Seq, StoredMessage

PAGE_ROWS = 50
LISTED = 200
"""Queues to choose from where none is named."""
WALKED_ROWS = 2_000
"""Messages whose payloads one page looks into, for a filter on the payload."""
_WALK = 200
_PREVIEW_BYTES = 600
_PAYLOAD_BYTES = 64 * 1024


class FoundMessages(NamedTuple):
    """A page of messages; ``after`` is where the next begins, ``walked`` how many payloads were looked into."""

    messages: list[StoredMessage]
    after: Seq | None
    walked: int


async def messages(site: Site, call: Call) -> Answer:
    """The table, and the pane when a message is chosen."""
    links = site.links(call)
    text = links.query.get("q", "").strip()
    problem, wanted, found, chosen = None, filters.Filter(), FoundMessages([], None, 0), None
    try:
        wanted = filters.parse(text)
        if wanted.queue is not None:
            call.queue(wanted.queue)
            found = await _find(site, links, wanted)
        if "seq" in links.query:
            chosen = await _chosen(site, call, wanted)
    except SkepError as error:
        if error.code not in (Code.INVALID_REQUEST, Code.GROUP_NOT_FOUND, Code.QUEUE_NOT_FOUND, Code.MESSAGE_NOT_FOUND):
            raise
        problem = error.sentence
    queues = [] if wanted.queue else await listed(site.engine, links.tenant, limit=LISTED, sees=call.visible)
    rows = [(message, one_line(message.payload, message.content_type)) for message in found.messages]
    return site.page(
        call, "messages.html", screen="messages", q=text, wanted=wanted, rows=rows, after=found.after, walked=found.walked,
        problem=problem, chosen=chosen, queues=queues, states=filters.STATES, id_text=id_text, listed=LISTED,
    )  # fmt: skip


async def _find(site: Site, links: Links, wanted: filters.Filter) -> FoundMessages:
    after = parameters.position(links.query, "after")
    said = {name: value for name, value in (("since", wanted.since), ("until", wanted.until)) if value is not None}
    wish = MessageFilter(
        queue=QueueKey(wanted.queue or "", links.tenant), partition=wanted.partition, group=wanted.group, state=wanted.state,
        transaction_id=wanted.txid, trace_id=wanted.trace, since=parameters.time(said, "since"),
        until=parameters.time(said, "until"), after=None if after is None else Seq(after),
        descending=wanted.order != "oldest", limit=PAGE_ROWS, preview_bytes=_PREVIEW_BYTES,
    )  # fmt: skip
    if not wanted.payload:
        page = await site.engine.browse.messages(wish)
        return FoundMessages(page.messages, page.after, 0)
    return await _find_by_payload(site, wish, wanted)


async def _find_by_payload(site: Site, wish: MessageFilter, wanted: filters.Filter) -> FoundMessages:
    """Look into payloads, so many at most: the store keeps them as bytes, and has no index on what they say."""
    found: list[StoredMessage] = []
    walked, after = 0, wish.after
    while walked < WALKED_ROWS and len(found) < PAGE_ROWS:
        step = msgspec.structs.replace(wish, after=after, limit=_WALK, preview_bytes=_PAYLOAD_BYTES)
        page = await site.engine.browse.messages(step)
        for message in page.messages:
            walked += 1
            after = message.seq
            if _holds(message, wanted.payload):
                found.append(message)
                if len(found) == PAGE_ROWS:
                    return FoundMessages(found, after, walked)
        after = page.after
        if after is None:
            break
    return FoundMessages(found, after, walked)


def _holds(message: StoredMessage, tests: tuple[filters.PayloadTest, ...]) -> bool:
    if message.content_type is not None or len(message.payload) != message.payload_bytes:
        return False
    try:
        value = msgspec.json.decode(message.payload)
    except (msgspec.DecodeError, RecursionError):
        return False
    return all(test.holds(value) for test in tests)


async def _chosen(site: Site, call: Call, wanted: filters.Filter) -> dict[str, object] | None:
    links = site.links(call)
    seq = parameters.position(links.query, "seq")
    if seq is None or wanted.queue is None:
        return None
    message = await site.engine.browse.message(QueueKey(wanted.queue, links.tenant), Seq(seq))
    [deliveries] = await deliveries_of(site.engine, [message])
    events = await site.engine.history.events(message.trace_id, links.tenant, limit=200)
    return {
        "message": message, "payload": shown(message.payload, message.content_type, message.payload_bytes),
        "headers": headers_of(message.headers), "deliveries": deliveries, "id": id_text(message.id),
        "trace_id": id_text(message.trace_id), "curl": as_curl(call, links, message), "python": as_python(call, message),
        "events": [event for event in events if event.message_id in (None, message.id) and is_seen(event, call)],
    }  # fmt: skip


async def payload(site: Site, call: Call) -> Answer:
    """A message's whole payload, as a file."""
    key = call.queue(call.path("queue"))
    seq = parameters.position({"seq": call.path("seq")}, "seq") or 0
    message = await site.engine.browse.message(key, Seq(seq))
    return download(message.payload, key.name, message.seq)


def _host(call: Call) -> str:
    host = (call.header(b"host") or b"127.0.0.1").decode("latin-1")
    return f"{call.scope.get('scheme', 'http')}://{host}"


def as_curl(call: Call, links: Links, message: StoredMessage) -> str:
    """A line that pushes such a message."""
    body = msgspec.json.encode({"items": [_item(message)]}).decode()
    words = ["curl", "-X", "POST", _host(call) + links.api("push"), "-H", "Content-Type: application/json"]
    if links.tenant != "default":
        words += ["-H", f"Skep-Tenant: {links.tenant}"]
    return shlex.join([*words, "-d", body])


def as_python(call: Call, message: StoredMessage) -> str:
    """A Python program that pushes such a message."""
    item = _item(message)
    item.pop("queue"), item.pop("payload")
    options = "".join(f", {_SNAKE.get(name, name)}={value!r}" for name, value in item.items())
    try:
        payload = repr(msgspec.json.decode(message.payload)) if message.content_type is None else repr(message.payload)
    except msgspec.DecodeError:
        payload = repr(message.payload)
    return (
        f"import skep\n\nwith skep.Client({_host(call)!r}) as client:\n"
        f"    client.push({message.queue.name!r}, {payload}{options})\n"
    )


_SNAKE = {"contentType": "content_type"}


def _item(message: StoredMessage) -> dict[str, object]:
    """The item of a push of such a message, without the transaction id: that would make it a duplicate."""
    item: dict[str, object] = {"queue": message.queue.name}
    if message.content_type is None:
        item["payload"] = msgspec.Raw(message.payload)
    else:
        item |= {"payload": message.payload, "contentType": message.content_type}
    if message.partition != "Default":
        item["partition"] = message.partition
    if message.headers is not None:
        item["headers"] = dict(headers_of(message.headers))
    return item


PAGES: list[Page] = [
    Page("/messages", ("q", "after", "seq"), messages),
    Page("/messages/{queue}/{seq}/payload", (), payload, READ),
]
ACTIONS: list[tuple[str, Action]] = []
