"""ReceiveMessage: pops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from skep.clock import MICROS_PER_MS
from skep.http.producer import PRODUCER
from skep.http.request.call import Call
from skep.http.routes.pop import count_popped
from skep.http.sqs import attributes
from skep.http.sqs.door import SqsDoor, Undoable, queue_of
from skep.http.sqs.faults import invalid
from skep.http.sqs.message import (
    CONTENT_TYPE,
    attributes_of,
    md5,
    md5_of_attributes,
    read_headers,
    shown_body,
    wanted,
    xray_of,
)
from skep.http.sqs.names import MESSAGES_MAX, Handle, account_of, arn, write_handle
from skep.http.sqs.queues import SqsQueue
from skep.http.sqs.shapes import AttributeValue, ReceiveRequest, ReceiveResult, SqsMessage
from skep.ids import id_text, minted_at
from skep.model import DEFAULT_PARTITION, Delivery, PopRequest, QueueKey, consumer
from skep.model.key import Verb

WAIT_SECONDS_MAX = 20
ATTEMPT_CHARACTERS = 128
FIRST_RECEIVED = "ApproximateFirstReceiveTimestamp"
SYSTEM = (
    "SenderId", "SentTimestamp", "ApproximateReceiveCount", FIRST_RECEIVED, "SequenceNumber", "MessageDeduplicationId",
    "MessageGroupId", "AWSTraceHeader", "DeadLetterQueueSourceArn",
)  # fmt: skip


async def receive(door: SqsDoor, call: Call, request: ReceiveRequest) -> Undoable:
    """Receive up to ten messages, at once or after a wait."""
    queue = await queue_of(door, call, request.queue_url, Verb.POP)
    names = [*request.attribute_names, *request.message_system_attribute_names]
    _check(request, names)
    timeout = request.visibility_timeout
    lease_seconds = None if timeout is None else max(float(timeout), attributes.LEAST_LEASE_SECONDS)
    attempt = request.receive_request_attempt_id if queue.is_fifo else None
    if attempt is not None:
        usual = queue.queue.settings.lease_seconds
        again = await door.attempts.again(queue.key, attempt, usual if lease_seconds is None else lease_seconds)
        if again is not None:
            return Undoable(ReceiveResult(await _messages(door, call, queue, again, request, names)), _keep)
    wait = request.wait_time_seconds
    wait_seconds = float(queue.number(attributes.WAIT, 0) if wait is None else wait)
    deliveries = await _pop(door, call, queue, request.max_number_of_messages, lease_seconds, wait_seconds)
    if attempt is not None and deliveries:
        door.attempts.remember(queue.key, attempt, deliveries)
    result = ReceiveResult(await _messages(door, call, queue, deliveries, request, names))
    # The client repeats a receive with an attempt id: then its messages wait for it.
    return Undoable(result, _keep if attempt is not None else lambda: door.engine.give_back(deliveries))


def _keep() -> None:
    """Undo nothing."""


def _check(request: ReceiveRequest, names: Sequence[str]) -> None:
    attempt = request.receive_request_attempt_id
    if attempt is not None and not 1 <= len(attempt) <= ATTEMPT_CHARACTERS:
        raise invalid("ReceiveRequestAttemptId", attempt, f"It has 1 to {ATTEMPT_CHARACTERS} characters.")
    most, timeout, wait = request.max_number_of_messages, request.visibility_timeout, request.wait_time_seconds
    if not 1 <= most <= MESSAGES_MAX:
        raise invalid("MaxNumberOfMessages", most, f"Must be between 1 and {MESSAGES_MAX}, if provided.")
    if timeout is not None and not 0 <= timeout <= attributes.VISIBILITY_SECONDS_MAX:
        raise invalid(
            "VisibilityTimeout", timeout, f"Must be between 0 and {attributes.VISIBILITY_SECONDS_MAX}, if provided."
        )
    if wait is not None and not 0 <= wait <= WAIT_SECONDS_MAX:
        raise invalid("WaitTimeSeconds", wait, f"Must be >= 0 and <= {WAIT_SECONDS_MAX}, if provided.")
    for name in names:
        if name != "All" and name not in SYSTEM and name not in attributes.NAMES and name not in attributes.TOLD:
            raise invalid("AttributeName", name, "there is no such attribute.")


async def _pop(
    door: SqsDoor, call: Call, queue: SqsQueue, most: int, lease_seconds: float | None, wait_seconds: float
) -> list[Delivery]:
    engine = door.engine
    call.room = door.answers.room()
    wanted = PopRequest(
        queue.key, batch=most, lease_seconds=lease_seconds, consumer=consumer.said(call.header(consumer.HEADER))
    )
    taking = engine.pop(wanted, wait_seconds=wait_seconds, room=call.room)
    if wait_seconds:
        result = await call.unless_gone(taking, lambda found: engine.give_back(found.deliveries))
    else:
        result = await taking
    count_popped(door.meter, result.deliveries)
    return result.deliveries


async def _messages(
    door: SqsDoor,
    call: Call,
    queue: SqsQueue,
    deliveries: Sequence[Delivery],
    request: ReceiveRequest,
    names: Sequence[str],
) -> list[SqsMessage]:
    """The deliveries as messages of SQS."""
    asks_all = "All" in names
    first_received = await _first_received(door, deliveries) if asks_all or FIRST_RECEIVED in names else []
    in_lease = Counter(one.partition for one in deliveries)
    told = []
    for place, one in enumerate(deliveries):
        body, kind = shown_body(one.payload, one.content_type)
        headers = read_headers(one.headers) if one.headers is not None else {}
        shown = None
        if names:
            system = _system(call, queue, one, headers)
            if first_received:
                system[FIRST_RECEIVED] = str(first_received[place])
            shown = system if asks_all else {name: system[name] for name in SYSTEM if name in names and name in system}
        chosen = {}
        if request.message_attribute_names and (headers or kind is not None):
            every = attributes_of(headers)
            if kind is not None:
                every[CONTENT_TYPE] = AttributeValue("String", kind)
            chosen = wanted(every, request.message_attribute_names)
        receipt = Handle(
            one.token, one.queue.tenant, one.queue.name, one.group, one.partition, one.seq, in_lease[one.partition]
        )
        told.append(
            SqsMessage(
                id_text(one.id), write_handle(receipt), md5(body.encode()), body, shown or None,
                md5_of_attributes(chosen) if chosen else None, chosen or None,
            )
        )  # fmt: skip
    return told


def _system(call: Call, queue: SqsQueue, one: Delivery, headers: dict[str, str]) -> dict[str, str]:
    """The system attributes of a message, except when it was first received."""
    sent = minted_at(one.id)
    shown = {
        "SenderId": headers.get(PRODUCER) or account_of(one.queue.tenant),
        "SentTimestamp": str((one.created_at if sent is None else sent) // MICROS_PER_MS),
        "ApproximateReceiveCount": str(one.attempt + (0 if one.dead_letter is None else one.dead_letter.attempts)),
    }
    if queue.is_fifo or one.partition != DEFAULT_PARTITION:
        shown["MessageGroupId"] = one.partition
    if queue.is_fifo:
        shown["SequenceNumber"] = f"{one.seq:020}"
        if one.transaction_id is not None:
            shown["MessageDeduplicationId"] = one.transaction_id
    if (trace := xray_of(headers)) is not None:
        shown["AWSTraceHeader"] = trace
    if one.dead_letter is not None:
        shown["DeadLetterQueueSourceArn"] = arn(call, QueueKey(one.dead_letter.source_queue, one.queue.tenant))
    return shown


async def _first_received(door: SqsDoor, deliveries: Sequence[Delivery]) -> list[int]:
    """When each message was first received, in milliseconds. What failed before is looked up."""
    now = door.now_ms()
    found = [now] * len(deliveries)
    again = [place for place, one in enumerate(deliveries) if one.attempt > 1]
    if again:
        failures = await door.engine.history.failures(
            [(deliveries[place].queue, deliveries[place].seq) for place in again]
        )
        for place, failed in zip(again, failures, strict=True):
            group = deliveries[place].group
            found[place] = min([one.leased_at // MICROS_PER_MS for one in failed if one.group == group], default=now)
    return found
