"""Convert pushes between the wire's structs and the engine's."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus

import msgspec
from msgspec import Raw

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http import queued
from skep.http.producer import stamp, stamped
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.parameters import SECONDS_MAX
from skep.ids import Id, id_text, id_texts, parse_id
from skep.model import NewMessage, PushOutcome, PushResult, PushStatus, QueueKey, StoredRange
from skep.model.key import Verb
from skep.observe.metrics import Meter
from skep.wire.messages import NO_HEADERS, PushedMessage, PushItem, PushResponse, QueueDepth, StoredResponse
from skep.wire.times import to_instant
from skep.wire.traceparent import context_in, with_context

_base64_text = msgspec.json.Decoder(str)


LEVELS_ABOVE_PAYLOADS = 3
"""A payload stands in an item, in a list, in the body."""


def new_messages(items: Sequence[PushItem], call: Call, now: Callable[[], Instant] | None = None) -> list[NewMessage]:
    """The messages of the items, if the caller may push them. An item without a trace id gets the request's trace.

    ``now`` returns the time from which delays count; without it an item with a delay is refused.
    """
    context = call.trace_context
    keys: dict[str, QueueKey] = {}
    principal = call.principal
    alone = None if principal is None else stamp(principal)
    messages = []
    for item in items:
        key = keys.get(item.queue)
        if key is None:
            key = keys[item.queue] = call.queue(item.queue, Verb.PUSH)
        payload = bytes(item.payload)
        headers = None if item.headers is NO_HEADERS else _headers(item.headers)
        trace_id = None if item.trace_id is None else parse_trace_id(item.trace_id)
        if headers is not None or context is not None:
            headers = with_context(headers, context)
            if trace_id is None:
                trace_id = trace_id_in(headers)
        stamped_headers = headers
        if principal is not None:
            stamped_headers = alone if headers is None else stamped(headers, principal)
        messages.append(
            NewMessage(
                key,
                payload if item.content_type is None else _raw_bytes(payload),
                item.partition,
                item.transaction_id,
                trace_id,
                stamped_headers,
                item.content_type,
                None if item.deliver_at is None and item.delay_seconds is None else _due_at(item, now),
                item.priority,
            )
        )
    return messages


def _due_at(item: PushItem, now: Callable[[], Instant] | None) -> Instant:
    """When an item is due: by its time, or by its delay."""
    delay = item.delay_seconds
    if delay is None:
        assert item.deliver_at is not None
        return to_instant(item.deliver_at)
    if item.deliver_at is not None:
        raise SkepError(Code.INVALID_REQUEST, "give deliverAt or delaySeconds, not both")
    if now is None:  # a repeat could not be told from another transaction
        raise SkepError(Code.INVALID_REQUEST, "within a transaction a message has a deliverAt, and no delaySeconds")
    if not 0 <= delay <= SECONDS_MAX:  # NaN is within nothing
        raise SkepError(Code.INVALID_TIME, f"delaySeconds is a number from 0 to {SECONDS_MAX}")
    return Instant(now() + seconds(delay))


def trace_id_in(headers: bytes | None) -> Id | None:
    """The trace id in a message's headers."""
    context = None if headers is None else context_in(headers)
    return None if context is None else context.trace_id


def _headers(headers: msgspec.Raw) -> bytes | None:
    text = bytes(headers)
    return None if text == b"null" else text


def _raw_bytes(payload: bytes) -> bytes:
    try:
        return base64.b64decode(_base64_text.decode(payload), validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise SkepError(Code.INVALID_PAYLOAD, "with a contentType the payload is a base64 text") from None


def parse_trace_id(text: str) -> Id:
    """The trace id in a text."""
    try:
        return parse_id(text)
    except ValueError:
        raise SkepError(Code.INVALID_TRACE_ID, "a trace id is a UUID") from None


def _stored_messages(stored: StoredRange) -> Raw:
    """The results of a range as JSON, as `pushed_messages` has them, without an object for each."""
    texts = id_texts(stored.ids)
    told = [
        f'{{"transaction_id":null,"status":"stored","message_id":"{text}","trace_id":"{text}","seq":{seq},"code":null,"reason":null}}'
        for seq, text in enumerate(texts, stored.first_seq)
    ]
    return Raw(f"[{','.join(told)}]")


def pushed_messages(results: Iterable[PushResult]) -> list[PushedMessage]:
    """The results as structs of the wire."""
    told = []
    results = list(results)
    for result, text in zip(results, id_texts([result.id for result in results]), strict=True):
        trace_id = result.trace_id
        told.append(
            PushedMessage(
                result.transaction_id,
                result.status,
                text,
                text if trace_id == result.id else None if trace_id is None else id_text(trace_id),
                result.seq,
                result.code,
                result.reason,
            )
        )
    return told


async def push(engine: Engine, meter: Meter, messages: Sequence[NewMessage]) -> PushOutcome:
    """Push messages whose JSON is checked, and count what became of them. The caller has passed the door."""
    try:
        outcome = await engine.push(messages, json_checked=True)
    except SkepError as error:
        count_misfits(meter, messages, error)
        raise
    count_pushed(meter, messages, outcome)
    return outcome


def count_pushed(meter: Meter, messages: Sequence[NewMessage], outcome: PushOutcome) -> None:
    """Count the outcome of a push. A batch for one queue, the usual case, is counted as a whole."""
    if isinstance(outcome.results, StoredRange):
        key = messages[0].queue
        meter.queue(key.tenant, key.name).pushed += len(messages)
        return
    if outcome.refused:
        for message in messages:
            meter.known_queue(message.queue.tenant, message.queue.name).refused += 1
        return
    statuses = [result.status for result in outcome.results]
    if len(outcome.depths) == 1:
        key = messages[0].queue
        counts = meter.queue(key.tenant, key.name)
        duplicates = statuses.count(PushStatus.DUPLICATE)
        counts.duplicate += duplicates
        counts.pushed += len(statuses) - duplicates
        return
    for message, status in zip(messages, statuses, strict=True):
        counts = meter.queue(message.queue.tenant, message.queue.name)
        if status is PushStatus.DUPLICATE:
            counts.duplicate += 1
        else:
            counts.pushed += 1


def count_misfits(meter: Meter, messages: Sequence[NewMessage], error: SkepError) -> None:
    """Count all messages as refused when one does not fit its queue's type: that error refuses the whole push."""
    if error.code is Code.MESSAGE_INVALID:
        for message in messages:
            meter.known_queue(message.queue.tenant, message.queue.name).refused += 1


def depths(outcome: PushOutcome) -> dict[str, QueueDepth]:
    """How full each queue is after the push."""
    return {key.name: QueueDepth(depth.depth, depth.remaining) for key, depth in outcome.depths.items()}


def answer(outcome: PushOutcome) -> Answer:
    """The answer to a push: 201 when something was stored or spooled, 200 when all were duplicates, 202 when it was queued."""
    if isinstance(outcome.results, StoredRange):
        return json_answer(StoredResponse(True, False, True, _stored_messages(outcome.results), depths(outcome)), 201)
    if outcome.refused:
        raise refusal(outcome)
    if outcome.operations is not None:
        return queued.push_answer(list(outcome.results), outcome.operations)
    stored = any(result.status is not PushStatus.DUPLICATE for result in outcome.results)
    spooled = outcome.results[0].status is PushStatus.BUFFERED
    told = PushResponse(True, False, not spooled, pushed_messages(outcome.results), depths(outcome))
    return json_answer(told, HTTPStatus.CREATED if stored else HTTPStatus.OK)


def buffered_answer(outcome: PushOutcome, store_away: bool) -> Answer:
    """The answer to a push that is held in memory: its messages will be stored with the ids in the answer."""
    if outcome.refused:
        raise refusal(outcome)
    return json_answer(
        PushResponse(True, True, not store_away, pushed_messages(outcome.results), {}), HTTPStatus.CREATED
    )


def refusal(outcome: PushOutcome) -> SkepError:
    """The error of a refused push: it names the first refused message, and has all results in its details."""
    first = next(
        result
        for result in outcome.results
        if result.status is PushStatus.REFUSED and result.code not in (None, Code.BATCH_REFUSED)
    )
    return SkepError(first.code or Code.INTERNAL, first.reason or "refused", messages=pushed_messages(outcome.results))
