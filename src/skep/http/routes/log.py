"""`GET /api/v1/log/{queue}`: the raw log by seq, any range, without a lease, as JSON or as an Arrow stream; and the bounds of logs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from itertools import accumulate

import msgspec
from msgspec import structs

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.pushing import parse_trace_id
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.parameters import COMPRESSIONS
from skep.http.request.permission import READ
from skep.http.request.route import Media, Parameter
from skep.http.routes.bulk import arrow_extra, most_bytes
from skep.http.routes.pop import DEFAULT_TIMEOUT_SECONDS
from skep.http.routes.route_table import RouteTable, Served
from skep.http.views import json_payload
from skep.ids import id_text
from skep.model import SEALED_TYPE, LogBounds, MessageFilter, QueueKey, Seq, StoredMessage
from skep.wire.log import (
    ARROW,
    MOST_QUEUES,
    LogBoundsResponse,
    LoggedMessage,
    LogResponse,
    LogsBoundsRequest,
    LogsBoundsResponse,
)
from skep.wire.messages import NULL
from skep.wire.times import to_datetime, to_instant

LAST_SEQ = 2**63 - 1
JSON_MESSAGES = 1_000
JSON_BYTES = 8 * 1024 * 1024
"""The bytes of payloads in one JSON answer. The message that reaches this limit is the last."""
ARROW_MESSAGES = 1_000_000
PARAMETERS = (
    Parameter("from", int, "the first seq, 1 by default; below the log's first, it starts there"),
    Parameter("to", int, "the last seq, inclusive; the end of the log by default"),
    Parameter("limit", int, f"how many messages at most; {JSON_MESSAGES} by default, as Arrow {ARROW_MESSAGES}"),
    Parameter("columns", str, "of an Arrow stream: only these, separated by commas; all by default"),
    Parameter(
        "partition", list[str], "of an Arrow stream: only messages of this partition; may be given several times"
    ),
    Parameter(
        "transactionId", list[str], "of an Arrow stream: only messages with one of these; may be given several times"
    ),
    Parameter("traceId", list[str], "of an Arrow stream: only messages of these traces; may be given several times"),
    Parameter("compression", str, "of an Arrow stream: lz4, zstd or none, which is the default"),
    Parameter(
        "sealed",
        str,
        "of an Arrow stream of an encrypted queue: open, which is the default, keep for payloads as they are stored, with "
        f"content_type {SEALED_TYPE}, or blank to open them and leave empty what cannot be opened",
    ),
)
BOUNDS = (
    Parameter("after", int, "with wait: answer when the log goes beyond this seq"),
    Parameter("wait", bool, "wait until the log goes beyond ``after``"),
    Parameter("timeout", float, f"how many seconds to wait; {DEFAULT_TIMEOUT_SECONDS:g} by default"),
    Parameter("at", datetime, "a time; ``atSeq`` is then the first seq at or after it"),
    Parameter("from", int, "with maxBytes: the seq to begin at"),
    Parameter(
        "maxBytes", int, "``throughSeq`` is then the last seq such that payloads from ``from`` on fit, at least one"
    ),
)
_ARROW_ONLY = ("columns", "partition", "transactionId", "traceId", "compression", "sealed")

_decode_queues = msgspec.json.Decoder(LogsBoundsRequest)


ROUTES: RouteTable[Served] = RouteTable("Log")


@ROUTES.route(
    "GET", "/api/v1/log/{queue}", READ, "The raw log by seq, without a lease", parameters=PARAMETERS,
    answers={200: (LogResponse, Media(ARROW))},
    description=f"With Accept: {ARROW} it comes as an Arrow stream, batch by batch.",
)  # fmt: skip
async def read(served: Served, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    first = parameters.position(call.query, "from")
    last = parameters.position(call.query, "to")
    first, last = 1 if first is None else first, LAST_SEQ if last is None else last
    if ARROW.encode() in (call.header(b"accept") or b""):
        return await _read_arrow(served, call, key, first, last)
    if wrong := [name for name in _ARROW_ONLY if name in call.query]:
        raise SkepError(Code.INVALID_REQUEST, f"{wrong[0]!r} is for an Arrow stream: ask for one with Accept: {ARROW}")
    limit = min(parameters.count(call.query, "limit", JSON_MESSAGES), served.engine.settings.limits.page)
    # Sizes first: the payloads of so many messages may be more than memory holds.
    wanted = MessageFilter(queue=key, after=Seq(first - 1), limit=limit, preview_bytes=0)
    sizes = [one.payload_bytes for one in (await served.engine.browse.messages(wanted)).messages if one.seq <= last]
    if not sizes:
        return json_answer(LogResponse([]))
    count = fitting(sizes, JSON_BYTES)
    await call.hold(served.answers, sum(sizes[:count]))
    page = await served.engine.browse.messages(structs.replace(wanted, limit=count, preview_bytes=None))
    return json_answer(LogResponse([_told(message) for message in page.messages if message.seq <= last]))


async def _read_arrow(served: Served, call: Call, key: QueueKey, first: int, last: int) -> Answer:
    with arrow_extra():
        from skep.arrow.log import LogIds
        from skep.http.arrow import LogWish, log_stream

    compression = call.query.get("compression", "none")
    if compression not in COMPRESSIONS:
        raise SkepError(Code.INVALID_REQUEST, "'compression' is lz4, zstd or none")
    sealed = parameters.sealed(call.query)
    columns = call.query["columns"].split(",") if "columns" in call.query else None
    partitions = call.values("partition") or None
    served.engine.log.check_wanted(columns, partitions)
    bounds = await served.engine.log.bounds(key)  # an unknown queue is told before the stream begins
    wish = LogWish(
        max(first, bounds.first_seq),
        # Messages that are pushed while the stream runs are not part of it, or it might never end.
        min(last, bounds.last_seq),
        parameters.count(call.query, "limit", ARROW_MESSAGES),
        columns,
        partitions,
        LogIds(
            tuple(call.values("transactionId")) or None,
            tuple(parse_trace_id(text) for text in call.values("traceId")) or None,
        ),
        None if compression == "none" else compression,
        sealed,
    )
    return Answer(200, log_stream(served.engine, key, wish), ARROW.encode())


@ROUTES.route(
    "POST", "/api/v1/log/{queue}/open", READ, "Open sealed messages that were copied out of a log", request=Media(ARROW),
    answers={200: Media(ARROW)},
    description="The stream has the columns partition, message_id, trace_id and payload, as the log gives them with sealed=keep. The answer has "
    "the payloads, in the same order, null where one cannot be opened: its key was destroyed, or it is not the one of that message. The caller "
    "needs the permission for the queue whose key is needed: for a dead letter that is its source queue.",
)  # fmt: skip
async def open_copies(served: Served, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    with arrow_extra():
        from skep.http.arrow import copies_in, payloads_stream

    if call.header(b"content-type") != ARROW.encode():
        raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, f"the body must be {ARROW}")
    most = most_bytes(served.engine)
    body = await call.body(most)
    await call.hold(served.answers, len(body))
    rows = await asyncio.to_thread(copies_in, body, most, key)
    opened = await served.engine.encryption.open_copies(rows, call.check)
    return Answer(200, payloads_stream(opened), ARROW.encode())


@ROUTES.route(
    "GET", "/api/v1/log/{queue}/bounds", READ, "Which seqs the log holds", parameters=BOUNDS,
    answers={200: LogBoundsResponse},
    description="With after and wait=true it answers when there is more, or when the timeout is over.",
)  # fmt: skip
async def bounds(served: Served, call: Call) -> Answer:
    return json_answer(await _bounds(served.engine, call))


@ROUTES.route(
    "POST", "/api/v1/logs/bounds", READ, "Which seqs the logs of many queues hold", request=LogsBoundsRequest,
    answers={200: LogsBoundsResponse},
    description=f"At most {MOST_QUEUES} queues; missing ones are left out of the answer. With at also the seq of that time in each, with "
    "from and maxBytes how far that many bytes reach in each, and with consumerGroup the group's progress in each.",
    example={"queues": ["orders", "invoices"], "at": "2026-01-31T12:00:00Z", "from": {"orders": 1}, "maxBytes": 1_000_000, "consumerGroup": "lake"},
)  # fmt: skip
async def bounds_of_many(served: Served, call: Call) -> Answer:
    asked, log = await call.json(_decode_queues), served.engine.log
    for name in asked.queues:
        call.queue(name)
    if others := asked.first.keys() - set(asked.queues):
        raise SkepError(Code.INVALID_REQUEST, f"'from' names {min(others)!r}, which 'queues' does not")
    if (asked.max_bytes is None) != (not asked.first):
        raise SkepError(Code.INVALID_REQUEST, "'from' and 'maxBytes' go together")
    found = await log.bounds_of(call.tenant, asked.queues)
    at = fits = progress = dict[str, Seq]()
    if asked.at is not None:
        at = await log.first_seqs_at(call.tenant, asked.queues, to_instant(asked.at))
    if asked.max_bytes is not None:
        firsts = {name: Seq(seq) for name, seq in asked.first.items()}
        fits = await log.last_seqs_within(call.tenant, firsts, asked.max_bytes)
    if asked.consumer_group is not None:
        progress = await log.progress_of(call.tenant, asked.queues, asked.consumer_group)
    logs = [
        structs.replace(
            _told_bounds(name, found[name]),
            at_seq=at.get(name), through_seq=fits.get(name), progress_seq=progress.get(name),
        )
        for name in asked.queues
        if name in found
    ]  # fmt: skip
    return json_answer(LogsBoundsResponse(logs))


async def _bounds(engine: Engine, call: Call) -> LogBoundsResponse:
    query, key = call.query, call.queue(call.path("queue"))
    after, waits = parameters.position(query, "after"), parameters.flag(query, "wait")
    timeout = parameters.number(query, "timeout")
    if (after is None) == waits:
        raise SkepError(Code.INVALID_REQUEST, "'after' and 'wait=true' go together")
    at, first = parameters.time(query, "at"), parameters.position(query, "from")
    if (first is None) != ("maxBytes" not in query):
        raise SkepError(Code.INVALID_REQUEST, "'from' and 'maxBytes' go together")
    if after is None:
        found = await engine.log.bounds(key)
    else:
        wait_seconds = DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
        found = await call.unless_gone(engine.log.bounds(key, after=Seq(after), wait_seconds=wait_seconds))
    at_seq = None
    if at is not None:
        at_seq = (await engine.log.first_seqs_at(key.tenant, [key.name], at)).get(key.name)
    through_seq = None
    if first is not None:
        most = parameters.count(query, "maxBytes", 1)
        fits = await engine.log.last_seqs_within(key.tenant, {key.name: Seq(first)}, most)
        through_seq = fits.get(key.name)
    return structs.replace(_told_bounds(key.name, found), at_seq=at_seq, through_seq=through_seq)


def _told_bounds(queue: str, found: LogBounds) -> LogBoundsResponse:
    last_at = None if found.last_at is None else to_datetime(found.last_at)
    return LogBoundsResponse(
        queue, found.first_seq, found.last_seq, last_at, found.created_at, forgotten=found.forgotten
    )


def fitting(sizes: Sequence[int], most: int) -> int:
    """How many messages an answer takes: up to the one whose size reaches the bound, at least one."""
    return 1 + sum(total < most for total in accumulate(sizes[:-1]))


def _told(m: StoredMessage) -> LoggedMessage:
    headers = NULL if m.headers is None else json_payload(m.headers, None)
    return LoggedMessage(
        m.queue.name, m.partition, m.seq, id_text(m.id), m.transaction_id, id_text(m.trace_id),
        json_payload(m.payload, m.content_type), headers, m.content_type, m.priority, to_datetime(m.created_at),
    )  # fmt: skip
