"""`POST /api/v1/pop…`, or GET as the first clients did: lease messages, at once or after a wait (long poll)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from http import HTTPStatus

import msgspec
from msgspec import UNSET

from skep.engine import Engine
from skep.engine.answers import Answers
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.call import NOTHING, Answer, Call, json_answer
from skep.http.request.endpoint import Handler
from skep.http.request.origin import check_popper
from skep.http.request.permission import POP, POP_LIST
from skep.http.request.route import Media, Parameter, Route
from skep.http.routes.ack import count_settled, results, settlements
from skep.http.routes.bulk import arrow_extra
from skep.http.views import dead_letter_story, json_headers, json_payload
from skep.ids import id_text, id_texts
from skep.model import (
    FROM_BEGINNING,
    FROM_NOW,
    QUEUE_MODE_GROUP,
    Delivery,
    PopRequest,
    PopResult,
    QueueKey,
    Start,
    StartMode,
    consumer,
)
from skep.observe.metrics import Meter
from skep.wire.leases import LeaseName, lease_id
from skep.wire.log import ARROW
from skep.wire.messages import Ack, PopBody, PoppedMessage, PopResponse
from skep.wire.times import to_datetime

DEFAULT_TIMEOUT_SECONDS = 30.0
"""The default wait of a pop with ``wait``."""


class SubscriptionMode(StrEnum):
    """Where a new group starts: at the beginning, or with new messages."""

    ALL = "all"
    NEW = "new"


PARAMETERS = (
    Parameter("batch", int, "how many messages at most; 1 by default"),
    Parameter("wait", bool, "wait for the first message instead of answering 204 at once"),
    Parameter("timeout", float, f"how many seconds to wait; {DEFAULT_TIMEOUT_SECONDS:g} by default"),
    Parameter("consumerGroup", str, f"the group; {QUEUE_MODE_GROUP} by default"),
    Parameter("autoAck", bool, "settle the messages as they are handed out: delivery at most once"),
    Parameter("partitions", int, "from how many partitions at most; 0, the default, takes as many as fill the batch"),
    Parameter("subscriptionMode", SubscriptionMode, "where a new group starts"),
    Parameter("subscriptionFrom", str, "a time or a seq from which a new group starts"),
    Parameter("leaseSeconds", float, "how long the lease lasts; the queue's lease_seconds by default"),
)
_ARROW = ARROW.encode()
_EPOCH = to_datetime(0)
_decode_body = msgspec.json.Decoder(PopBody)
ACKS_IN_JSON = "a pop with acks is answered as JSON: to pop as an Arrow stream, ack by POST /api/v1/ack/batch"
PARAMETERS_IN_QUERY = "A pop takes its parameters in the query, and nothing but acknowledgments in its body."
_ACKS = "The body may have acks of earlier messages: they are settled first, in the same transaction where that is possible, and the answer is 200 with a result for each, also when there are no messages."
_NONE = f"204 when there are none. With Accept: {ARROW} they come as an Arrow stream."
_BY_GET = f"{_NONE} A browser is answered only when it says that a page of this server asks."
MATCHING = (
    Parameter("namespace", str, "of all queues of this namespace"),
    Parameter("task", str, "of all queues of this task"),
)


def routes(engine: Engine, meter: Meter, answers: Answers) -> list[Route]:
    """Popping. Popped payloads reserve their memory in ``answers``."""

    async def pop(call: Call) -> Answer:
        if acks := await read_acks(call):
            return await settle_and_pop(engine, meter, answers, call, acks)
        wait_seconds = read_wait_seconds(call.query)
        call.room = answers.room()
        request = read(call, call.queue(call.path("queue")))
        taking = engine.pop(request, wait_seconds=wait_seconds, room=call.room)
        undo = undoing(engine, request)
        result = await (call.unless_gone(taking, undo) if wait_seconds else taking)
        return popped(call, result, undo)

    async def pop_matching(call: Call) -> Answer:
        check(call)
        wait_seconds = read_wait_seconds(call.query)
        call.room = answers.room()
        request = read(call, QueueKey("", call.tenant))
        taking = engine.pop_matching(
            request,
            namespace=call.query.get("namespace"),
            task=call.query.get("task"),
            wait_seconds=wait_seconds,
            allowed=call.visible,
            room=call.room,
        )
        undo = undoing(engine, request)
        result = await (call.unless_gone(taking, undo) if wait_seconds else taking)
        return popped(call, result, undo)

    def popped(call: Call, result: PopResult, undo: Callable[[PopResult], None]) -> Answer:
        if not result.deliveries:
            return NOTHING
        count_popped(meter, result.deliveries)
        made = arrow_answer(result.deliveries) if _is_in_columns(call) else answer(result.deliveries)
        made.undelivered = lambda: undo(result)
        return made

    return _declared(pop, pop_matching)


def _declared(pop: Handler, pop_matching: Handler) -> list[Route]:
    told = {200: (PopResponse, Media(ARROW)), 204: None}
    by_post = [
        Route(
            method="POST", path="/api/v1/pop/queue/{queue}", handler=pop, parameters=PARAMETERS, answers=told,
            request=PopBody, optional=True, summary="Lease messages of a queue", description=f"{_NONE} {_ACKS}", tag="Messages",
            verb="pop", access=POP,
        ),
        Route(
            method="POST", path="/api/v1/pop/queue/{queue}/partition/{partition}", handler=pop,
            parameters=PARAMETERS, answers=told, request=PopBody, optional=True, summary="Lease messages of one partition",
            description=f"{_NONE} {_ACKS}", tag="Messages", verb="pop", access=POP,
        ),
        Route(
            method="POST", path="/api/v1/pop", access=POP_LIST, handler=pop_matching, parameters=MATCHING + PARAMETERS, answers=told,
            summary="Lease messages of all queues of a namespace, a task or both, higher priority first",
            description=_NONE, tag="Messages", verb="pop",
        ),
    ]  # fmt: skip
    by_get = [
        msgspec.structs.replace(
            one,
            method="GET",
            request=None,
            optional=False,
            summary=f"{one.summary} (the same as by POST)",
            description=_BY_GET,
        )
        for one in by_post
    ]
    return [*by_get, *by_post]


async def settle_and_pop(engine: Engine, meter: Meter, answers: Answers, call: Call, acks: Sequence[Ack]) -> Answer:
    """Settle what the body says, and pop."""
    meant = settlements(acks, call)
    wait_seconds = read_wait_seconds(call.query)
    call.room = answers.room()
    request = read(call, call.queue(call.path("queue")))
    undo = undoing(engine, request)
    taking = engine.settle_and_pop(meant, request, wait_seconds=wait_seconds, room=call.room)
    done, result = await call.unless_gone(taking, lambda found: undo(found[1]))
    count_settled(meter, meant, done)
    count_popped(meter, result.deliveries)
    told = json_answer(PopResponse(popped_messages(result.deliveries), results(acks, done)))
    told.undelivered = lambda: undo(result)
    return told


def undoing(engine: Engine, request: PopRequest) -> Callable[[PopResult], None]:
    """What is done with messages that reached nobody: they are given back, or, if they were settled at once, logged as lost."""
    undo = engine.lost if request.auto_ack else engine.give_back
    return lambda result: undo(result.deliveries)


async def read_acks(call: Call) -> Sequence[Ack]:
    """The acks in the body of a pop; none without a body. Then the call is checked to be a pop."""
    is_empty = call.header(b"content-length") in (None, b"0") and call.header(b"transfer-encoding") is None
    if is_empty or call.scope["method"] == "GET":
        check(call)
        return ()
    try:
        acks = (await call.json(_decode_body)).acknowledgments
    except SkepError as error:
        if error.code is not Code.INVALID_REQUEST:
            raise
        raise SkepError(error.code, f"{error.message} {PARAMETERS_IN_QUERY}") from None
    if acks and _is_in_columns(call):
        raise SkepError(Code.INVALID_REQUEST, ACKS_IN_JSON)
    check_columns(call)
    return acks


def check(call: Call) -> None:
    """Check a pop: it changes something, so a browser may make it only for our own pages; its options are in the query."""
    is_get = call.scope["method"] == "GET"
    if is_get:
        check_popper(call.scope)
    # A chunked body could prove broken only after auto-acked messages are settled, so it is refused first.
    is_empty = is_get or call.header(b"content-length") in (None, b"0")
    if not is_empty or call.header(b"transfer-encoding") is not None:
        raise SkepError(Code.INVALID_REQUEST, "this pop has no body: it takes its parameters in the query")
    check_columns(call)


def check_columns(call: Call) -> None:
    """Check that an answer in columns can be made, before anything is leased."""
    if _is_in_columns(call):
        with arrow_extra():
            import skep.http.arrow  # noqa: F401 - the answer needs it


def _is_in_columns(call: Call) -> bool:
    return _ARROW in (call.header(b"accept") or b"")


def read_wait_seconds(query: dict[str, str]) -> float:
    """For how many seconds a pop waits for messages."""
    timeout = parameters.number(query, "timeout")
    return (DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout) if parameters.flag(query, "wait") else 0


def read(call: Call, queue: QueueKey) -> PopRequest:
    """The options of a pop, from its path and query."""
    query = call.query
    return PopRequest(
        queue=queue,
        group=query.get("consumerGroup", QUEUE_MODE_GROUP),
        batch=parameters.whole(query, "batch", 1),
        partition=call.path("partition") if "partition" in call.scope.get("path_params", ()) else None,
        max_partitions=parameters.whole(query, "partitions", 0),
        lease_seconds=parameters.number(query, "leaseSeconds"),
        auto_ack=parameters.flag(query, "autoAck"),
        start=_start(query),
        consumer=consumer.said(call.header(consumer.HEADER)),
    )


def _start(query: dict[str, str]) -> Start:
    mode = parameters.choice(query, "subscriptionMode", SubscriptionMode)
    origin = query.get("subscriptionFrom")
    if origin is None:
        return FROM_NOW if mode is SubscriptionMode.NEW else FROM_BEGINNING
    if mode is not None:
        raise SkepError(Code.INVALID_REQUEST, "give subscriptionMode or subscriptionFrom, not both")
    if origin.isdecimal():
        return Start(StartMode.SEQ, parameters.whole(query, "subscriptionFrom", 0))
    return Start(StartMode.TIME, parameters.time(query, "subscriptionFrom") or 0)


def answer(deliveries: Sequence[Delivery]) -> Answer:
    """The deliveries as JSON."""
    return json_answer(PopResponse(popped_messages(deliveries)), HTTPStatus.OK)


def arrow_answer(deliveries: Sequence[Delivery]) -> Answer:
    """The deliveries as an Arrow stream of one batch."""
    from skep.http.arrow import popped_stream

    leases: list[str] = []
    lease: tuple[object, ...] = ()
    text = ""
    for d in deliveries:
        if lease != (this := (d.partition, d.queue, d.token)):
            lease, text = this, lease_id(LeaseName(d.token, d.queue.tenant, d.queue.name, d.group, d.partition))
        leases.append(text)
    return Answer(HTTPStatus.OK, popped_stream(deliveries, leases), _ARROW)


def count_popped(meter: Meter, deliveries: Sequence[Delivery]) -> None:
    """Count the deliveries, queue by queue: those of one queue are neighbours."""
    start = 0
    while start < len(deliveries):
        key = deliveries[start].queue
        end = start + 1
        if deliveries[-1].queue == key:
            end = len(deliveries)
        while end < len(deliveries) and deliveries[end].queue == key:
            end += 1
        meter.queue(key.tenant, key.name).popped += end - start
        start = end


def popped_messages(deliveries: Sequence[Delivery]) -> list[PoppedMessage]:
    """The deliveries as structs of the wire. Neighbours mostly share lease and times, which are written once."""
    told = []
    lease: tuple[object, ...] = ()
    lease_text, deadline = "", _EPOCH
    created, created_at = -1, _EPOCH
    for d, id_ in zip(deliveries, id_texts([d.id for d in deliveries]), strict=True):
        if lease != (this := (d.partition, d.queue, d.token)):
            lease = this
            lease_text = lease_id(LeaseName(d.token, d.queue.tenant, d.queue.name, d.group, d.partition))
            deadline = to_datetime(d.lease_deadline)
        if d.created_at != created:
            created, created_at = d.created_at, to_datetime(d.created_at)
        told.append(
            PoppedMessage(
                d.queue.name, d.partition, d.seq, id_, d.transaction_id,
                id_ if d.trace_id == d.id else id_text(d.trace_id), json_payload(d.payload, d.content_type),
                json_headers(d.headers), d.content_type, d.priority, created_at, d.attempt, d.group,
                lease_text, deadline, UNSET if d.dead_letter is None else dead_letter_story(d.dead_letter),
            )
        )  # fmt: skip
    return told
