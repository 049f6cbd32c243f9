"""What is pushed: any object that can be JSON, bytes with a content type, or a `NewMessage` with fields of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypedDict, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from skep.client.delivered import Delivered
from skep.client.options import no_others
from skep.client.spelling import Unsaid
from skep.client.tracing import current_context
from skep.clock import Clock, seconds
from skep.errors import Code, SkepError
from skep.ids import IdMint, id_text
from skep.model import DEFAULT_PARTITION
from skep.traceparent import TRACEPARENT, TRACESTATE
from skep.wire.messages import PushedMessage, PushItem
from skep.wire.times import to_datetime

Headers = dict[str, str]
Durability = Literal["stored", "buffered"]


class NewMessage(Struct, frozen=True):
    """A message to push, with fields of its own; what is not given here is taken from the push it is in."""

    payload: Any
    partition: str | UnsetType = UNSET
    transaction_id: str | None | UnsetType = UNSET
    trace_id: str | None | UnsetType = UNSET
    headers: Headers | None | UnsetType = UNSET
    content_type: str | None | UnsetType = UNSET
    deliver_at: datetime | None | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    delay: float | timedelta | None | UnsetType = UNSET


_OWN_FIELDS = NewMessage.__struct_fields__[1:]
_SEVERAL = (list, tuple, Iterator)
_BYTES = (bytes, bytearray, memoryview)


class MessageOptions(TypedDict, total=False):
    """What may be said of all messages of a push at once.

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
    """What holds for all messages that do not say it themselves, and whom to tell.

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


def copied(message: Delivered) -> NewMessage:
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
    if len(several) > 1 and options.get("transaction_id") is not None:
        raise SkepError(
            Code.INVALID_REQUEST, "one transaction id names one message; give each its own with skep.NewMessage"
        )
    ids = iter(mint.mint_many(len(several)))
    items = [_item(queue, message, options, ids, mint.clock) for message in several]
    context = current_context()
    if context is not None:
        _carry(items, context.headers)
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
    """The same, written now: what is sent later is what was given, whatever its owner does to the object meanwhile."""
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


def _carry(items: list[PushItem], context: Headers) -> None:
    """Let messages carry the trace they are pushed in, those that were not given one."""
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


def _item(queue: str, message: object, options: MessageOptions, ids: Iterator[bytes], clock: Clock) -> PushItem:
    if isinstance(message, Delivered):
        message = copied(message)
    payload = message
    said = cast("dict[str, Any]", options)
    if isinstance(message, NewMessage):
        payload = message.payload
        own = ((name, getattr(message, name)) for name in _OWN_FIELDS)
        said = _own_first(said, {name: value for name, value in own if value is not UNSET})
    content_type = said.get("content_type")
    is_bytes = isinstance(payload, _BYTES)
    if is_bytes and content_type is None:
        raise SkepError(
            Code.INVALID_PAYLOAD, "bytes need a content_type; JSON that is encoded already goes as msgspec.Raw"
        )
    if content_type is not None and not is_bytes:
        raise SkepError(Code.INVALID_PAYLOAD, "with a content_type the payload is bytes")
    transaction_id = said["transaction_id"] if "transaction_id" in said else id_text(next(ids))
    headers = said.get("headers")
    # Payload and headers go into the JSON as they are, encoded once with the rest (bytes as base64; what is unset is left
    # out). The struct keeps them raw for the server's sake.
    return PushItem(
        queue,
        cast("Raw", payload),
        said.get("partition", DEFAULT_PARTITION),
        transaction_id,
        said.get("trace_id"),
        cast("Raw", UNSET if headers is None else headers),
        content_type,
        said.get("deliver_at") if said.get("delay") is None else _delayed(said, clock),
        said.get("priority", 0),
        said.get("namespace"),
        said.get("task"),
    )


def _own_first(said: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """What a message says itself goes before what is said of all; its time, however it says it, before their time."""
    others = {"deliver_at", "delay"} - own.keys() if own.keys() & {"deliver_at", "delay"} else ()
    return {name: value for name, value in {**said, **own}.items() if name not in others}


def _delayed(said: Mapping[str, Any], clock: Clock) -> datetime:
    """The time that a delay means: by this clock, so that the same push made again is the same."""
    delay = said["delay"]
    if said.get("deliver_at") is not None:
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
