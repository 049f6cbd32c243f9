"""`/api/v1/messages…`: looking at messages without leasing them."""

from __future__ import annotations

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, page_limit
from skep.http.request.parameters import PREVIEW_BYTES_MAX
from skep.http.request.permission import READ
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable, Served
from skep.http.scheduled import browsed_scheduled
from skep.http.views import attempt_view, browsed_message, wanted_id
from skep.model import MessageFilter, MessageState, QueueKey, Seq, StoredMessage
from skep.model.history import Journey
from skep.model.scheduled import ScheduledFilter
from skep.wire.attempts import AttemptsResponse
from skep.wire.browsing import BrowsedMessage, MessagesResponse

TAG = "Looking at messages"
PREVIEW_BYTES = 1_024
FINDING_PAGES = 100
"""The most pages that are searched for one transaction id. Each page reads a bounded part of the log."""

QUEUE = Parameter("queue", str, "the queue", required=True)
PREVIEW = Parameter("preview", int, f"bytes of a payload to show, 0 to {PREVIEW_BYTES_MAX}; {PREVIEW_BYTES} by default")
LIST_PARAMETERS = (
    QUEUE,
    Parameter("partition", str, "only of this partition"),
    Parameter("consumerGroup", str, "show the state of each message for this group"),
    Parameter("state", MessageState, "only messages in this state for the group"),
    Parameter("transactionId", str, "only with this transaction id"),
    Parameter("traceId", str, "only of this trace"),
    Parameter("since", str, "only pushed at or after this time"),
    Parameter("until", str, "only pushed before this time"),
    Parameter("descending", bool, "newest first"),
    PREVIEW,
    AFTER_SEQ,
    LIMIT,
)


ROUTES: RouteTable[Served] = RouteTable(TAG)


@ROUTES.route(
    "GET", "/api/v1/messages", READ, "Browse the log of a queue", parameters=LIST_PARAMETERS,
    answers={200: MessagesResponse},
    description="The walk per page is bounded, so a page may be short, or empty with `after` set.",
)  # fmt: skip
async def browse(served: Served, call: Call) -> Answer:
    wanted = _filter(call)
    taken = min(wanted.limit * (wanted.preview_bytes or 0), served.answers.largest)
    room = await call.hold(served.answers, taken)
    page = await served.engine.browse.messages(wanted)
    room.keep(taken, sum(len(message.payload) for message in page.messages), at_any_rate=True)
    return json_answer(MessagesResponse([browsed_message(message) for message in page.messages], page.after))


@ROUTES.route(
    "GET", "/api/v1/messages/{partition}/{transactionId}", READ,
    "Show the newest message with a transaction id, also one that is scheduled, with its payload",
    parameters=(QUEUE,), answers={200: BrowsedMessage},
)  # fmt: skip
async def by_transaction_id(served: Served, call: Call) -> Answer:
    key = call.queue(parameters.needed(call.query, "queue"))
    partition, transaction_id = call.path("partition"), call.path("transactionId")
    await call.hold(served.answers, largest_message(served.engine))
    message = await newest(served.engine, key, partition, transaction_id)
    if message is None:
        wanted = ScheduledFilter(tenant=key.tenant, queue=key.name, partition=partition, transaction_id=transaction_id)
        waiting = (await served.engine.scheduled.page(wanted, limit=1)).messages
        if waiting:
            return json_answer(browsed_scheduled(waiting[0]))
        raise SkepError(Code.MESSAGE_NOT_FOUND, "there is no message with this partition and transaction id")
    return json_answer(browsed_message(message))


@ROUTES.route(
    "GET", "/api/v1/resources/queues/{queue}/messages/{seq}", READ, "Show the message at a seq, with its payload",
    parameters=(Parameter("seq", int, "the message's seq"),), answers={200: BrowsedMessage},
)  # fmt: skip
async def by_seq(served: Served, call: Call) -> Answer:
    seq = parameters.position({"seq": call.path("seq")}, "seq") or 0
    key = call.queue(call.path("queue"))
    await call.hold(served.answers, largest_message(served.engine))
    return json_answer(browsed_message(await served.engine.browse.message(key, Seq(seq))))


@ROUTES.route(
    "GET", "/api/v1/resources/queues/{queue}/messages/{seq}/attempts", READ,
    "Show the attempts of the message at a seq: the consumer, the outcome and the error of each",
    parameters=(Parameter("seq", int, "the message's seq"),), answers={200: AttemptsResponse},
)  # fmt: skip
async def attempts(served: Served, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    seq = Seq(parameters.position({"seq": call.path("seq")}, "seq") or 0)
    message = await served.engine.browse.message(key, seq)
    [found] = await served.engine.history.attempts([Journey(key, message.partition, seq, message.created_at)])
    return json_answer(AttemptsResponse(key.name, seq, [attempt_view(one) for one in found]))


async def newest(
    engine: Engine, key: QueueKey, partition: str, transaction_id: str, preview_bytes: int | None = None
) -> StoredMessage | None:
    """The newest message with a transaction id, which may be used again once its deduplication window has passed."""
    after: Seq | None = None
    for _ in range(FINDING_PAGES):
        page = await engine.browse.messages(
            MessageFilter(
                queue=key,
                partition=partition,
                transaction_id=transaction_id,
                limit=1,
                descending=True,
                after=after,
                preview_bytes=preview_bytes,
            )
        )
        if page.messages or page.after is None:
            return page.messages[0] if page.messages else None
        after = page.after
    return None


def _filter(call: Call) -> MessageFilter:
    query = call.query
    after = parameters.position(query, "after")
    trace_id = query.get("traceId")
    return MessageFilter(
        queue=call.queue(parameters.needed(query, "queue")),
        partition=query.get("partition"),
        group=query.get("consumerGroup"),
        state=parameters.choice(query, "state", MessageState),
        transaction_id=query.get("transactionId"),
        trace_id=None if trace_id is None else wanted_id(trace_id, Code.INVALID_TRACE_ID),
        since=parameters.time(query, "since"),
        until=parameters.time(query, "until"),
        after=None if after is None else Seq(after),
        descending=parameters.flag(query, "descending"),
        limit=page_limit(query),
        preview_bytes=preview_bytes(query),
    )


def preview_bytes(query: dict[str, str]) -> int:
    """How many bytes of each payload to show."""
    preview = parameters.whole(query, "preview", PREVIEW_BYTES)
    if not 0 <= preview <= PREVIEW_BYTES_MAX:
        raise SkepError(Code.INVALID_REQUEST, f"preview must be from 0 to {PREVIEW_BYTES_MAX}", value=preview)
    return preview


def largest_message(engine: Engine) -> int:
    """The most bytes of one message with its payload."""
    limits = engine.settings.limits
    return limits.payload_bytes + limits.headers_bytes
