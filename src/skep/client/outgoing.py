"""Messages to push: any object that can be JSON, bytes with a content type, or a `NewMessage` with its own fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from skep.client.message_data import MessageData
from skep.client.options import no_others
from skep.client.spelling import Unsaid
from skep.client.tracing import current_context
from skep.clock import Clock, seconds
from skep.errors import Code, SkepError
from skep.ids import IdMint, id_texts
from skep.model import DEFAULT_PARTITION
from skep.wire.messages import PushedMessage, PushItem
from skep.wire.times import to_datetime
from skep.wire.traceparent import TRACEPARENT, TRACESTATE

Headers = dict[str, str]
Durability = Literal["stored", "buffered"]


class NewMessage(Struct, frozen=True):
    """A message to push, with its own fields. A missing field comes from the options of the push."""

    payload: Any
    partition: str | UnsetType = UNSET
    transaction_id: str | None | UnsetType = UNSET
    trace_id: str | None | UnsetType = UNSET
    headers: Headers | None | UnsetType = UNSET
    content_type: str | None | UnsetType = UNSET
    deliver_at: datetime | None | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    delay: float | timedelta | None | UnsetType = UNSET


_SEVERAL = (list, tuple, Iterator)
_BYTES = (bytes, bytearray, memoryview)


class MessageOptions(TypedDict, total=False):
    """Options for all messages of a push.

    Without a ``transaction_id`` each message gets one that is minted for it, so that a push whose answer is lost can be
    made again and is stored once. ``transaction_id=None`` pushes without one; such a push is not tried again when it may
    have been stored.

    ``delay`` (seconds, or a timedelta) is another way to say ``deliver_at``: so long after this call.
    """

    partition: str
    transaction_id: str | None
    trace_id: str | None
    headers: Headers | None
    content_type: str | None
    deliver_at: datetime | None
    priority: int
    namespace: str | None
    task: str | None
    delay: float | timedelta | None


class PushOptions(MessageOptions, total=False):
    """Options for all messages of a push that do not set them themselves, and callbacks.

    ``delay`` (seconds, or a timedelta) and ``deliver_at`` hold them back. ``on_success``, ``on_duplicate`` and ``on_error`` get the
    messages that they are about, ``on_error`` the error, too.

    ``durability="buffered"`` (QoS 0) is answered before it is stored: after ``buffer_ms``, or when ``buffer_max`` messages wait
    for their queue, for which the server has defaults. Such a push gets no transaction id of its own accord, and is not tried
    again when it may have been taken.
    """

    durability: Durability
    buffer_ms: int
    buffer_max: int
    on_success: Callable[[list[PushedMessage]], object]
    on_duplicate: Callable[[list[PushedMessage]], object]
    on_error: Callable[[list[PushedMessage], SkepError], object]


PUSH_DEFAULTS = {
    "partition": DEFAULT_PARTITION, "transaction_id": Unsaid("minted"), "trace_id": None, "headers": None, "content_type": None,
    "deliver_at": None, "delay": None, "priority": 0, "namespace": None, "task": None, "durability": "stored",
}  # fmt: skip
_MESSAGE_OPTIONS = frozenset(MessageOptions.__annotations__)
_PUSH_OPTIONS = frozenset(PushOptions.__annotations__)


def copied(message: MessageData) -> NewMessage:
    """A popped message as a new one: payload, partition, trace id, headers, content type and priority."""
    payload = Raw(message.payload) if message.content_type is None else message.payload
    return NewMessage(
        payload, partition=message.partition, trace_id=message.trace_id, headers=message.headers or None,
        content_type=message.content_type, priority=message.priority,
    )  # fmt: skip


def push_items(queue: str, messages: object, options: MessageOptions, mint: IdMint) -> list[PushItem]:
    """The items that a push sends; ids are minted here, before the first try."""
    no_others(options, _PUSH_OPTIONS)
    if "transaction_id" not in options and buffering(options) is not None:
        options = {**options, "transaction_id": None}
    several = listed(messages)
    common = _common(options)
    if len(several) > 1 and options.get("transaction_id") is not None:
        raise SkepError(
            Code.INVALID_REQUEST, "one transaction id names one message; give each its own with skep.NewMessage"
        )
    ids = id_texts(mint.mint_many(len(several)))
    items = [_item(queue, one, id_, common, mint.clock) for one, id_ in zip(several, ids, strict=True)]
    carry(items)
    return items


def buffering(options: Mapping[str, Any]) -> tuple[int | None, int | None] | None:
    """How long and how many messages the server may hold before it stores them; None when it may not (QoS 1 and 2)."""
    durability = options.get("durability")
    wait_ms, most = options.get("buffer_ms"), options.get("buffer_max")
    named = wait_ms is not None or most is not None
    if durability not in (None, "stored", "buffered") or (durability == "stored" and named):
        raise SkepError(Code.INVALID_REQUEST, 'durability is "stored" or, with a buffer_ms or buffer_max, "buffered"')
    return (wait_ms, most) if named or durability == "buffered" else None


def written_items(queue: str, messages: object, options: MessageOptions, mint: IdMint) -> list[PushItem]:
    """The items, encoded now: later changes of the caller's objects do not change what is sent."""
    no_others(options, _MESSAGE_OPTIONS)
    items = push_items(queue, messages, options, mint)
    for item in items:
        item.payload = Raw(encode(item.payload))
        if cast("object", item.headers) is not UNSET:
            item.headers = Raw(encode(item.headers))
    return items


def repeatable(items: Iterable[PushItem]) -> bool:
    """Whether pushing these again stores nothing twice."""
    return all(item.transaction_id is not None for item in items)


def carry(items: Iterable[PushItem]) -> None:
    """Add the current trace context to messages that have none."""
    current = current_context()
    if current is None:
        return
    context = current.headers
    for item in items:
        headers = cast("object", item.headers)
        if headers is UNSET:
            item.headers = cast("Raw", context)
        elif isinstance(headers, dict) and TRACEPARENT not in headers:
            # A state of another trace does not go with this one's parent.
            item.headers = cast("Raw", {**{name: headers[name] for name in headers if name != TRACESTATE}, **context})


def listed(messages: object) -> list[object]:
    """Lists, tuples and iterators are several messages; anything else is one."""
    if isinstance(messages, list):
        return messages
    if isinstance(messages, _SEVERAL):
        return list(messages)
    return [messages]


class _Common(Struct, frozen=True):
    """The options for all messages of a push, by the fields that a message may set itself."""

    partition: str
    transaction_id: str | None | UnsetType
    """Unset where each message gets one of its own."""
    trace_id: str | None
    headers: Headers | None
    content_type: str | None
    deliver_at: datetime | None
    priority: int
    delay: float | timedelta | None
    namespace: str | None
    task: str | None


def _common(options: MessageOptions) -> _Common:
    return _Common(
        options.get("partition", DEFAULT_PARTITION), options.get("transaction_id", UNSET), options.get("trace_id"), options.get("headers"), options.get("content_type"),
        options.get("deliver_at"), options.get("priority", 0), options.get("delay"), options.get("namespace"), options.get("task"),
    )  # fmt: skip


def _item(queue: str, message: object, minted_id: str, common: _Common, clock: Clock) -> PushItem:
    """The item of one message. Its own fields replace the options of the push; its own time or delay replaces theirs."""
    if isinstance(message, MessageData):
        message = copied(message)
    if isinstance(message, NewMessage):
        own, payload = message, message.payload
        timed: NewMessage | _Common = common if own.deliver_at is UNSET and own.delay is UNSET else own
        partition = common.partition if own.partition is UNSET else own.partition
        transaction_id = common.transaction_id if own.transaction_id is UNSET else own.transaction_id
        trace_id = common.trace_id if own.trace_id is UNSET else own.trace_id
        headers = common.headers if own.headers is UNSET else own.headers
        content_type = common.content_type if own.content_type is UNSET else own.content_type
        priority = common.priority if own.priority is UNSET else own.priority
    else:
        timed, payload = common, message
        partition, transaction_id, trace_id = common.partition, common.transaction_id, common.trace_id
        headers, content_type, priority = common.headers, common.content_type, common.priority
    if isinstance(payload, _BYTES) is not (content_type is not None):
        raise _misnamed(content_type)
    # Payload and headers go into the JSON as they are, encoded once with the rest (bytes as base64; what is unset is left
    # out). The struct keeps them raw for the server's sake.
    return PushItem(
        queue,
        cast("Raw", payload),
        partition,
        minted_id if transaction_id is UNSET else transaction_id,
        trace_id,
        cast("Raw", UNSET if headers is None else headers),
        content_type,
        _deliver_at(timed, clock),
        priority,
        common.namespace,
        common.task,
    )


def _misnamed(content_type: str | None) -> SkepError:
    if content_type is None:
        return SkepError(
            Code.INVALID_PAYLOAD, "bytes need a content_type; JSON that is encoded already goes as msgspec.Raw"
        )
    return SkepError(Code.INVALID_PAYLOAD, "with a content_type the payload is bytes")


def _deliver_at(said: NewMessage | _Common, clock: Clock) -> datetime | None:
    """When a message is due: a delay means a time by this clock, so that the same push made again is the same."""
    deliver_at, delay = said.deliver_at, said.delay
    if deliver_at is UNSET:
        deliver_at = None
    if delay is UNSET or delay is None:
        return deliver_at
    if deliver_at is not None:
        raise SkepError(Code.INVALID_REQUEST, "give deliver_at or delay, not both")
    try:
        length = delay.total_seconds() if isinstance(delay, timedelta) else float(delay)
        if not length >= 0:  # NaN is not either
            raise ValueError
        return to_datetime(clock.now() + seconds(length))
    except (TypeError, ValueError, OverflowError):
        raise SkepError(
            Code.INVALID_TIME, f"a delay is a timedelta or a number of seconds from 0 on, not {delay!r}"
        ) from None


def _by_its_own_means(value: object) -> Any:
    """Objects that msgspec does not know: pydantic models write themselves."""
    write = getattr(value, "model_dump_json", None)
    if write is None:
        raise NotImplementedError(f"{type(value).__name__} cannot be written as JSON")
    return Raw(write().encode())


_encoder = msgspec.json.Encoder(enc_hook=_by_its_own_means)


def encode(value: object) -> bytes:
    """A body as JSON; INVALID_PAYLOAD when something in it cannot be that."""
    try:
        return _encoder.encode(value)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
        raise SkepError(Code.INVALID_PAYLOAD, f"the payload cannot be written as JSON: {error}") from error
