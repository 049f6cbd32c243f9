"""`GET /api/v1/log/{queue}`: the raw log by seq, any range, without a lease; as JSON or as an Arrow stream."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from msgspec import structs

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http import parameters
from skep.http.exchange import Answer, Call, json_answer
from skep.http.operation import Media, Operation, Parameter
from skep.http.shown import json_payload
from skep.ids import id_text
from skep.model import MessageFilter, QueueKey, Seq, StoredMessage
from skep.wire.log import ARROW, LogBoundsResponse, LoggedMessage, LogResponse
from skep.wire.messages import NULL
from skep.wire.times import to_datetime

LAST_SEQ = 2**63 - 1
JSON_MESSAGES = 1_000
JSON_BYTES = 8 * 1024 * 1024
"""Payloads in one answer as JSON; it ends with the message that reaches this."""
ARROW_MESSAGES = 1_000_000
PARAMETERS = (
    Parameter("from", int, "the first seq, 1 by default; below the log's first, it starts there"),
    Parameter("to", int, "the last seq, inclusive; the end of the log by default"),
    Parameter("limit", int, f"how many messages at most; {JSON_MESSAGES} by default, as Arrow {ARROW_MESSAGES}"),
    Parameter("compression", str, "of an Arrow stream: lz4 or zstd; none by default"),
)


def operations(engine: Engine) -> list[Operation]:
    """The raw log."""

    async def read(call: Call) -> Answer:
        key = QueueKey(call.path("queue"), call.tenant)
        first = parameters.whole(call.query, "from", 1)
        last = parameters.whole(call.query, "to", LAST_SEQ)
        if ARROW.encode() in (call.header(b"accept") or b""):
            return await read_arrow(call, key, first, last)
        limit = parameters.whole(call.query, "limit", JSON_MESSAGES)
        # Sizes first: the payloads of so many messages may be more than memory holds.
        wanted = MessageFilter(queue=key, after=Seq(first - 1), limit=limit, preview_bytes=0)
        sizes = [one.payload_bytes for one in (await engine.messages(wanted)).messages if one.seq <= last]
        if not sizes:
            return json_answer(LogResponse([]))
        page = await engine.messages(structs.replace(wanted, limit=fitting(sizes, JSON_BYTES), preview_bytes=None))
        return json_answer(LogResponse([_told(message) for message in page.messages if message.seq <= last]))

    async def read_arrow(call: Call, key: QueueKey, first: int, last: int) -> Answer:
        from skep.http.arrow import log_stream

        compression = call.query.get("compression")
        if compression not in (None, "lz4", "zstd"):
            raise SkepError(Code.INVALID_REQUEST, "compression is lz4 or zstd")
        bounds = await engine.log_bounds(key)  # an unknown queue is told before the stream begins
        limit = parameters.whole(call.query, "limit", ARROW_MESSAGES)
        # What is pushed while the stream runs is not part of it, or it might never end.
        stream = log_stream(engine, key, max(first, bounds.first_seq), min(last, bounds.last_seq), limit, compression)
        return Answer(200, stream, ARROW.encode())

    async def bounds(call: Call) -> Answer:
        name = call.path("queue")
        found = await engine.log_bounds(QueueKey(name, call.tenant))
        last_at = None if found.last_at is None else to_datetime(found.last_at)
        return json_answer(LogBoundsResponse(name, found.first_seq, found.last_seq, last_at))

    return [
        Operation(
            method="GET", path="/api/v1/log/{queue}", handler=read, parameters=PARAMETERS,
            answers={200: (LogResponse, Media(ARROW))},
            summary="The raw log by seq, without a lease", tag="Log",
            description=f"With Accept: {ARROW} it comes as an Arrow stream, batch by batch.",
        ),
        Operation(
            method="GET", path="/api/v1/log/{queue}/bounds", handler=bounds, answers={200: LogBoundsResponse},
            summary="Which seqs the log holds", tag="Log",
        ),
    ]  # fmt: skip


def fitting(sizes: Sequence[int], most: int) -> int:
    """How many of them, and at least one, come before their sum reaches the most."""
    return 1 + sum(total < most for total in accumulate(sizes[:-1]))


def _told(m: StoredMessage) -> LoggedMessage:
    headers = NULL if m.headers is None else json_payload(m.headers, None)
    return LoggedMessage(
        m.queue.name, m.partition, m.seq, id_text(m.id), m.transaction_id, id_text(m.trace_id),
        json_payload(m.payload, m.content_type), headers, m.content_type, m.priority, to_datetime(m.created_at),
    )  # fmt: skip
