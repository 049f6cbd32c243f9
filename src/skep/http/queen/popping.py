"""`pop`: of a queue, a partition, or all queues of a namespace and a task; at once or after a wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.http.producer import PRODUCER
from skep.http.queen.door import QueenDoor, group_of
from skep.http.queen.names import LeasedBy, PartitionName, write_id
from skep.http.queen.shapes import QueenMessage, QueenPopped
from skep.http.request import parameters
from skep.http.request.call import NOTHING, Answer, Call, json_answer
from skep.http.request.origin import check_popper
from skep.http.routes.pop import count_popped, undoing
from skep.http.views import json_payload
from skep.ids import id_text
from skep.model import (
    FROM_BEGINNING,
    FROM_NOW,
    Delivery,
    PopRequest,
    PopResult,
    QueueKey,
    Start,
    StartMode,
    consumer,
)
from skep.wire.times import to_datetime, to_instant

TIMEOUT_MS = 30_000
MISSING_LOOK_SECONDS = 0.25
"""How often a pop that waits looks for a queue that is not there yet."""
_NEW = frozenset({"new", "new-only", "new_only"})
_ALL = frozenset({"all", "from_beginning"})
_headers = msgspec.json.Decoder(dict[str, str]).decode


async def pop(door: QueenDoor, call: Call) -> Answer:
    """Pop from a queue, or from one of its partitions."""
    check_popper(call.scope)
    return await _popped(door, call, _read(call, call.queue(call.path("queue"))))


async def pop_matching(door: QueenDoor, call: Call) -> Answer:
    """Pop from all queues of a namespace, a task or both."""
    check_popper(call.scope)
    return await _popped(door, call, _read(call, QueueKey("", call.tenant)))


async def _popped(door: QueenDoor, call: Call, request: PopRequest) -> Answer:
    wait_seconds = _wait_seconds(door, call)
    call.room = door.answers.room()
    taking = _taking(door, call, request, wait_seconds)
    undo = undoing(door.engine, request)
    result = await (call.unless_gone(taking, undo) if wait_seconds else taking)
    if not result.deliveries:
        return NOTHING
    count_popped(door.meter, result.deliveries)
    made = json_answer(_response(result.deliveries, request))
    made.undelivered = lambda: undo(result)
    return made


async def _taking(door: QueenDoor, call: Call, request: PopRequest, wait_seconds: float) -> PopResult:
    """Pop. A queue that is not there is an empty one: who waits may get what is pushed to it when it is."""
    engine = door.engine
    if not request.queue.name:
        return await engine.pop_matching(
            request,
            namespace=call.query.get("namespace") or None,
            task=call.query.get("task") or None,
            wait_seconds=wait_seconds,
            allowed=call.visible,
            room=call.room,
        )
    over_at = engine.steady() + seconds(wait_seconds)
    while True:
        left = max(0.0, (over_at - engine.steady()) / 1_000_000)
        try:
            return await engine.pop(request, wait_seconds=left, room=call.room)
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                raise
        if not await _comes(door, request.queue, over_at):
            return PopResult([])


async def _comes(door: QueenDoor, key: QueueKey, over_at: int) -> bool:
    """Wait for a queue until an instant of the steady clock. To look for it takes no room of answers, as a pop does."""
    engine = door.engine
    while (left := over_at - engine.steady()) > 0 and not door.ending.is_set():
        await _sleep(door, Instant(engine.now() + min(left, seconds(MISSING_LOOK_SECONDS))))
        try:
            await engine.get_queue(key)
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                raise
        else:
            return True
    return False


async def _sleep(door: QueenDoor, until: Instant) -> None:
    """Sleep until an instant, or until the server ends."""
    waits = [asyncio.ensure_future(door.engine.sleep_until(until)), asyncio.ensure_future(door.ending.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()


def _wait_seconds(door: QueenDoor, call: Call) -> float:
    """For how long a pop waits; Queen counts in milliseconds. A longer wait than the server's is cut: the client asks again."""
    if not parameters.flag(call.query, "wait"):
        return 0.0
    timeout = parameters.number(call.query, "timeout")
    wait = (TIMEOUT_MS if timeout is None else timeout) / 1_000
    if not wait >= 0:  # NaN is not, either
        raise SkepError(Code.INVALID_REQUEST, "timeout must be a number of milliseconds, 0 or more")
    return min(wait, door.engine.settings.limits.wait_seconds)


def _read(call: Call, queue: QueueKey) -> PopRequest:
    query = call.query
    return PopRequest(
        queue=queue,
        group=group_of(query.get("consumerGroup")),
        batch=parameters.whole(query, "batch", 1),
        partition=call.path("partition") if "partition" in call.scope.get("path_params", ()) else None,
        max_partitions=parameters.count(query, "partitions", 1),
        auto_ack=parameters.flag(query, "autoAck"),
        start=_start(query.get("subscriptionMode"), query.get("subscriptionFrom")),
        consumer=consumer.said(call.header(consumer.HEADER)),
    )


def _start(mode: str | None, origin: str | None) -> Start:
    """Where a new group starts: at a time, now, or at the beginning."""
    if mode and mode not in _NEW and mode not in _ALL:
        raise SkepError(Code.INVALID_REQUEST, f"subscriptionMode is all or new, not {mode[:100]!r}")
    if origin and origin not in ("now", "beginning"):
        return Start(StartMode.TIME, instant_of(origin, "subscriptionFrom"))
    return FROM_NOW if origin == "now" or (not origin and mode in _NEW) else FROM_BEGINNING


def instant_of(text: str, what: str) -> Instant:
    """The instant of a time as clients write it. One that names no offset is in UTC, as Queen takes it."""
    try:
        moment = datetime.fromisoformat(text)
        in_utc = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):  # the year 0 or 10,000 in UTC
        raise SkepError(Code.INVALID_TIME, f"{what} is a time like 2026-01-31T12:00:00Z, not {text[:100]!r}") from None
    return to_instant(in_utc)


def _response(deliveries: Sequence[Delivery], request: PopRequest) -> QueenPopped:
    repeated = _repeated(deliveries) if len(deliveries) > 1 else ()
    messages = [_message(one, request, is_repeated=_name(one) in repeated) for one in deliveries]
    first = messages[0]
    return QueenPopped(
        True, first.queue, first.partition, first.partition_id, first.lease_id, first.consumer_group, messages
    )


def _name(one: Delivery) -> tuple[QueueKey, str, str | None]:
    return one.queue, one.partition, one.transaction_id


def _repeated(deliveries: Sequence[Delivery]) -> Collection[tuple[QueueKey, str, str | None]]:
    """The transaction ids that several messages of a partition have: the deduplication window of the first one has passed."""
    counts = Counter(_name(one) for one in deliveries if one.transaction_id is not None)
    return {name for name, count in counts.items() if count > 1} if len(counts) < len(deliveries) else ()


def _message(one: Delivery, request: PopRequest, *, is_repeated: bool) -> QueenMessage:
    tenant, queue = one.queue.tenant, one.queue.name
    place = PartitionName(tenant, queue, one.partition, one.seq if is_repeated else None)
    id_ = id_text(one.id)
    lease = None if request.auto_ack else write_id(LeasedBy(one.token, tenant, queue, one.group))
    told = QueenMessage(
        id_, one.transaction_id or id_, id_text(one.trace_id), queue, one.partition,
        write_id(place), lease, one.group, json_payload(one.payload, one.content_type),
        one.attempt - 1, one.priority, to_datetime(one.created_at),
        content_type=UNSET if one.content_type is None else one.content_type,
    )  # fmt: skip
    if one.headers is not None:
        told.headers = msgspec.Raw(one.headers)
        if (producer := _headers(one.headers).get(PRODUCER)) is not None:
            told.producer_sub = producer
    return told
