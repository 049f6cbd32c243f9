"""SendMessage and SendMessageBatch: pushes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.http.producer import stamp, stamped
from skep.http.pushing import count_misfits, count_pushed, refusal, trace_id_in
from skep.http.request.call import Call
from skep.http.sqs import attributes
from skep.http.sqs.batches import check_batch, failed
from skep.http.sqs.door import SqsDoor, queue_of
from skep.http.sqs.faults import BATCH_TOO_LONG, INVALID_VALUE, SqsError, invalid, missing
from skep.http.sqs.message import (
    TRACE_HEADER,
    body_bytes,
    check_attributes,
    content_type_of,
    encode_headers,
    headers_of,
    md5,
    md5_of_attributes,
)
from skep.http.sqs.queues import SqsQueue
from skep.http.sqs.shapes import (
    FailedEntry,
    SendBatchRequest,
    SendBatchResult,
    SendEntry,
    SendRequest,
    SendResult,
    SentEntry,
)
from skep.ids import id_text
from skep.model import DEFAULT_PARTITION, NewMessage, PushOutcome, PushResult
from skep.model.key import Verb
from skep.wire.traceparent import with_context

_ID = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}", re.ASCII)


class Sendable(NamedTuple):
    """A message that is ready to be pushed, and what its sender is told of it."""

    message: NewMessage
    size_bytes: int
    md5_of_body: str
    md5_of_attributes: str | None
    md5_of_system_attributes: str | None


async def send(door: SqsDoor, call: Call, request: SendRequest) -> SendResult:
    """Send a message."""
    queue = await queue_of(door, call, request.queue_url, Verb.PUSH)
    prepared = await _prepared(door, call, queue, request)
    outcome = await _push(door, [prepared])
    if outcome.refused:
        raise refusal(outcome)
    result = outcome.results[0]
    return SendResult(id_text(result.id), *prepared[2:], _sequence(queue, result))


async def send_batch(door: SqsDoor, call: Call, request: SendBatchRequest) -> SendBatchResult:
    """Send up to ten messages, each on its own merits."""
    check_batch(request.entries)
    queue = await queue_of(door, call, request.queue_url, Verb.PUSH)
    wanted: list[tuple[str, Sendable]] = []
    done: list[SentEntry] = []
    lost: list[FailedEntry] = []
    for entry in request.entries:
        id_ = entry.id or ""
        try:
            wanted.append((id_, await _prepared(door, call, queue, entry)))
        except SqsError as error:
            lost.append(failed(id_, error))
    if sum(prepared.size_bytes for _, prepared in wanted) > attributes.MESSAGE_BYTES_MAX:
        raise SqsError(BATCH_TOO_LONG, f"Batch requests cannot be longer than {attributes.MESSAGE_BYTES_MAX} bytes.")
    while wanted:
        outcome = await _push(door, [prepared for _, prepared in wanted])
        if not outcome.refused:
            for (id_, prepared), result in zip(wanted, outcome.results, strict=True):
                done.append(SentEntry(id_text(result.id), *prepared[2:], _sequence(queue, result), id=id_))
            break
        # A push is whole or not at all: what was refused is told, and the others are tried without it.
        pairs = list(zip(wanted, outcome.results, strict=True))
        lost += [failed(id_, _error_of(result)) for (id_, _), result in pairs if result.code is not Code.BATCH_REFUSED]
        wanted = [one for one, result in pairs if result.code is Code.BATCH_REFUSED]
    return SendBatchResult(done, lost)


def _error_of(result: PushResult) -> SkepError:
    return SkepError(result.code or Code.INTERNAL, result.reason or "refused")


async def _push(door: SqsDoor, prepared: Sequence[Sendable]) -> PushOutcome:
    engine = door.engine
    admission = engine.admission
    messages = [one.message for one in prepared]
    if not admission.lets_push_in():
        await admission.wait_to_push()
    try:
        outcome = await engine.push(messages, json_checked=True)
    except SkepError as error:
        count_misfits(door.meter, messages, error)
        raise
    finally:
        admission.leave_push()
    count_pushed(door.meter, messages, outcome)
    return outcome


def _sequence(queue: SqsQueue, result: PushResult) -> str | None:
    """The sequence number of a message; None in a queue without, and for one that waits in front of its log."""
    return f"{result.seq:020}" if queue.is_fifo and result.seq is not None else None


async def _prepared(door: SqsDoor, call: Call, queue: SqsQueue, entry: SendEntry) -> Sendable:
    """Check a message, and make what is pushed of it."""
    if not entry.message_body:
        raise missing("MessageBody")
    body = body_bytes(entry.message_body)
    size = len(body) + check_attributes(entry.message_attributes)
    most = queue.number(attributes.MESSAGE_SIZE, attributes.MESSAGE_BYTES_MAX)
    if size > most:
        raise SqsError(
            INVALID_VALUE, f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes."
        )
    trace_header = _trace_header(entry)
    group, dedup_id = _place(queue, entry, body)
    given = headers_of(entry.message_attributes, trace_header)
    headers = with_context(None if given is None else encode_headers(given), call.trace_context)
    trace_id = trace_id_in(headers)
    if call.principal is not None:
        headers = stamped(headers, call.principal) if headers is not None else stamp(call.principal)
    message = NewMessage(
        queue.key, body, group, dedup_id, trace_id, headers, await content_type_of(body), _due_at(door, queue, entry)
    )
    system = entry.message_system_attributes
    return Sendable(
        message, size, md5(body), md5_of_attributes(entry.message_attributes) if entry.message_attributes else None,
        md5_of_attributes(system) if system else None,
    )  # fmt: skip


def _trace_header(entry: SendEntry) -> str | None:
    for name, value in entry.message_system_attributes.items():
        if name != TRACE_HEADER or value.data_type != "String" or not value.string_value:
            raise invalid("MessageSystemAttributes", name, f"there is only {TRACE_HEADER}, a String.")
        return value.string_value
    return None


def _place(queue: SqsQueue, entry: SendEntry, body: bytes) -> tuple[str, str | None]:
    """The partition and the transaction id of a message: its group and its deduplication id."""
    group, dedup_id = entry.message_group_id, entry.message_deduplication_id
    for name, value in (("MessageGroupId", group), ("MessageDeduplicationId", dedup_id)):
        if value is not None and not _ID.fullmatch(value):
            raise invalid(name, value, "it has 1 to 128 letters, digits and punctuation.")
    if not queue.is_fifo:
        if dedup_id is not None:
            raise invalid(
                "MessageDeduplicationId",
                dedup_id,
                "The request includes a parameter that is not valid for this queue type.",
            )
        return group or DEFAULT_PARTITION, None
    if group is None:
        raise missing("MessageGroupId")
    if dedup_id is None:
        if not queue.is_set(attributes.CONTENT_BASED):
            raise SqsError(
                INVALID_VALUE, "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
            )  # fmt: skip
        dedup_id = hashlib.sha256(body).hexdigest()
    return group, dedup_id


def _due_at(door: SqsDoor, queue: SqsQueue, entry: SendEntry) -> Instant | None:
    """When a message is due; in a FIFO queue the queue's setting delays all messages alike."""
    delay = entry.delay_seconds
    if delay is not None and not 0 <= delay <= 900:
        raise invalid("DelaySeconds", delay, "DelaySeconds must be >= 0 and <= 900.")
    if queue.is_fifo:
        if delay:
            raise invalid("DelaySeconds", delay, "The request include parameter that is not valid for this queue type.")
        return None
    delay = queue.number(attributes.DELAY, 0) if delay is None else delay
    return Instant(door.engine.now() + seconds(delay)) if delay else None
