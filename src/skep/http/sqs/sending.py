"""SendMessage and SendMessageBatch: pushes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from skep.access.principal import Principal
from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.http.producer import stamp, stamped
from skep.http.pushing import push, refusal, trace_id_in
from skep.http.request.call import Call
from skep.http.sqs import attributes
from skep.http.sqs.batches import check_batch, failed
from skep.http.sqs.door import SqsDoor, queue_of
from skep.http.sqs.faults import BATCH_TOO_LONG, INVALID_VALUE, SqsError, invalid, missing
from skep.http.sqs.message import (
    LONG_BYTES,
    TRACE_HEADER,
    body_bytes,
    check_attributes,
    content_type_of,
    content_type_of_long,
    headers_of,
    is_tellable,
    md5,
    md5_of_attributes,
)
from skep.http.sqs.queues import SqsQueue
from skep.http.sqs.shapes import (
    Attributes,
    FailedEntry,
    SendBatchRequest,
    SendBatchResult,
    SendEntry,
    SendRequest,
    SendResult,
    SentEntry,
)
from skep.ids import id_text, id_texts
from skep.model import DEFAULT_PARTITION, NewMessage, PushOutcome, PushResult, StoredRange
from skep.model.key import Verb
from skep.wire.traceparent import TraceContext, with_context

DELAY_SECONDS_MAX = 900
_ID = re.compile(r"[A-Za-z0-9!-/:-@\[-`{-~]{1,128}", re.ASCII)


class Sendable(NamedTuple):
    """A message that is ready to be pushed, and what its sender is told of it."""

    message: NewMessage
    size_bytes: int
    md5_of_body: str
    md5_of_attributes: str | None
    md5_of_system_attributes: str | None


class Sending(NamedTuple):
    """What all messages of a request have in common; it is looked up once."""

    queue: SqsQueue
    is_fifo: bool
    most_bytes: int
    delay_seconds: int
    deduplicates: bool
    """Whether the body makes a message a duplicate."""
    context: TraceContext | None
    principal: Principal | None
    headers: bytes | None
    """The headers of a message that has none of its own."""
    now: Instant


async def _begun(door: SqsDoor, call: Call, url: str | None) -> Sending:
    queue = await queue_of(door, call, url, Verb.PUSH)
    context, principal = call.trace_context, call.principal
    headers = with_context(None, context)
    return Sending(
        queue, queue.is_fifo, queue.number(attributes.MESSAGE_SIZE, attributes.MESSAGE_BYTES_MAX), queue.number(attributes.DELAY, 0),
        queue.is_set(attributes.CONTENT_BASED), context, principal, _stamped(headers, principal), door.engine.now(),
    )  # fmt: skip


def _stamped(headers: bytes | None, principal: Principal | None) -> bytes | None:
    if principal is None:
        return headers
    return stamp(principal) if headers is None else stamped(headers, principal)


async def send(door: SqsDoor, call: Call, request: SendRequest) -> SendResult:
    """Send a message."""
    sending = await _begun(door, call, request.queue_url)
    sendable = await _sendable(sending, request)
    outcome = await _push(door, [sendable])
    if outcome.refused:
        raise refusal(outcome)
    result = outcome.results[0]
    return SendResult(id_text(result.id), *sendable[2:], _sequence(sending, result))


async def send_batch(door: SqsDoor, call: Call, request: SendBatchRequest) -> SendBatchResult:
    """Send up to ten messages, each on its own merits."""
    entries = request.entries.listed()
    check_batch(entries)
    sending = await _begun(door, call, request.queue_url)
    wanted: list[tuple[str, Sendable]] = []
    done: list[SentEntry] = []
    lost: list[FailedEntry] = []
    lost_bytes = 0
    for entry in entries:
        id_ = entry.id or ""
        try:
            wanted.append((id_, await _sendable(sending, entry)))
        except SqsError as error:
            lost.append(failed(id_, error))
            lost_bytes += len((entry.message_body or "").encode())
    if sum([sendable.size_bytes for _, sendable in wanted], lost_bytes) > attributes.MESSAGE_BYTES_MAX:
        raise SqsError(BATCH_TOO_LONG, f"Batch requests cannot be longer than {attributes.MESSAGE_BYTES_MAX} bytes.")
    while wanted:
        outcome = await _push(door, [sendable for _, sendable in wanted])
        if not outcome.refused:
            done += _sent(sending, wanted, outcome.results)
            break
        # A push is whole or not at all: what was refused is told, and the others are tried without it.
        pairs = list(zip(wanted, outcome.results, strict=True))
        lost += [failed(id_, _error_of(result)) for (id_, _), result in pairs if result.code is not Code.BATCH_REFUSED]
        wanted = [one for one, result in pairs if result.code is Code.BATCH_REFUSED]
    return SendBatchResult(done, lost)


def _sent(
    sending: Sending, wanted: Sequence[tuple[str, Sendable]], results: list[PushResult] | StoredRange
) -> list[SentEntry]:
    """The entries that were sent; of a range of messages nothing but the ids is looked at, unless they have numbers."""
    texts = id_texts(results.ids if isinstance(results, StoredRange) else [result.id for result in results])
    if not sending.is_fifo:
        return [SentEntry(text, *one[2:], id=id_) for (id_, one), text in zip(wanted, texts, strict=True)]
    return [
        SentEntry(text, *one[2:], _sequence(sending, result), id=id_)
        for (id_, one), result, text in zip(wanted, results, texts, strict=True)
    ]


def _error_of(result: PushResult) -> SkepError:
    return SkepError(result.code or Code.INTERNAL, result.reason or "refused")


async def _push(door: SqsDoor, sendables: Sequence[Sendable]) -> PushOutcome:
    engine = door.engine
    admission = engine.admission
    messages = [one.message for one in sendables]
    if not admission.lets_push_in():
        await admission.wait_to_push()
    try:
        return await push(engine, door.meter, messages)
    finally:
        admission.leave_push()


def _sequence(sending: Sending, result: PushResult) -> str | None:
    """The sequence number of a message; None in a queue without, and for one that waits in front of its log."""
    return f"{result.seq:020}" if sending.is_fifo and result.seq is not None else None


async def _sendable(sending: Sending, entry: SendEntry) -> Sendable:
    """Check a message, and make what is pushed of it."""
    if not entry.message_body:
        raise missing("MessageBody")
    body = body_bytes(entry.message_body)
    given, system = entry.message_attributes or {}, entry.message_system_attributes or {}
    size = len(body) + (check_attributes(given) if given else 0)
    if size > sending.most_bytes:
        raise SqsError(
            INVALID_VALUE, f"One or more parameters are invalid. Reason: Message must be shorter than {sending.most_bytes} bytes."
        )  # fmt: skip
    group, dedup_id = _place(sending, entry, body)
    headers = sending.headers
    if given or system:
        headers = _stamped(headers_of(given, _trace_header(system), sending.context), sending.principal)
    message = NewMessage(
        sending.queue.key, body, group, dedup_id, None if headers is None else trace_id_in(headers), headers,
        content_type_of(body) if len(body) <= LONG_BYTES else await content_type_of_long(body), _due_at(sending, entry),
    )  # fmt: skip
    return Sendable(
        message,
        size,
        md5(body),
        md5_of_attributes(given) if given else None,
        md5_of_attributes(system) if system else None,
    )


def _trace_header(attributes: Attributes) -> str | None:
    for name, value in attributes.items():
        text = value.string_value
        if name != TRACE_HEADER or value.data_type != "String" or not text or not is_tellable(text):
            raise invalid("MessageSystemAttributes", name, f"there is only {TRACE_HEADER}, a String.")
        return value.string_value
    return None


def _place(sending: Sending, entry: SendEntry, body: bytes) -> tuple[str, str | None]:
    """The partition and the transaction id of a message: its group and its deduplication id."""
    group, dedup_id = entry.message_group_id, entry.message_deduplication_id
    is_fifo = sending.is_fifo
    if group is None and dedup_id is None and not is_fifo:
        return DEFAULT_PARTITION, None
    for name, value in (("MessageGroupId", group), ("MessageDeduplicationId", dedup_id)):
        if value is not None and not _ID.fullmatch(value):
            raise invalid(name, value, "it has 1 to 128 letters, digits and punctuation.")
    if not is_fifo:
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
        if not sending.deduplicates:
            raise SqsError(
                INVALID_VALUE, "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
            )  # fmt: skip
        dedup_id = hashlib.sha256(body).hexdigest()
    return group, dedup_id


def _due_at(sending: Sending, entry: SendEntry) -> Instant | None:
    """When a message is due; in a FIFO queue the queue's setting delays all messages alike."""
    delay = entry.delay_seconds
    if delay is not None and not 0 <= delay <= DELAY_SECONDS_MAX:
        raise invalid("DelaySeconds", delay, f"DelaySeconds must be >= 0 and <= {DELAY_SECONDS_MAX}.")
    if sending.is_fifo:
        if delay:
            raise invalid("DelaySeconds", delay, "The request include parameter that is not valid for this queue type.")
        return None
    delay = sending.delay_seconds if delay is None else delay
    return Instant(sending.now + seconds(delay)) if delay else None
