"""Read the CloudEvents of a request, in each of the three content modes, and make messages of them.

All events of a request are checked before the first is pushed, and each error names the event. Nothing here waits: a large batch is read
in a thread.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec import Raw, Struct

from skep.access.principal import Principal
from skep.errors import Code, SkepError
from skep.http.producer import stamped
from skep.http.pushing import trace_id_in
from skep.http.request.call import Call
from skep.http.request.scope import REPEATED
from skep.model import DEFAULT_PARTITION, NewMessage, QueueKey
from skep.strict_json import check_depth, find_repeated_key, may_repeat_keys, why_no_json
from skep.wire.cloud_events import (
    ANY_FORMAT,
    BATCHED,
    CONTENT_TYPE,
    DATA,
    DATA_BASE64,
    OCTETS,
    PARTITION_KEY,
    PREFIX,
    STRUCTURED,
    decode_value,
    fault_of,
    headers_of,
    is_json_type,
    transaction_id_of,
)
from skep.wire.traceparent import TraceContext, with_context

INTEGERS = range(-(2**31), 2**31)
"""The whole numbers that an attribute may have as its value."""
CHARSETS = frozenset({"utf-8", "us-ascii", "iso-8859-1", "windows-1252", "utf-16", "utf-16le", "utf-16be"})
"""The character sets that a text in `data` may be written in, where its content type names one."""
SINGLE = msgspec.json.Decoder(dict[str, Raw])
SEVERAL = msgspec.json.Decoder(list[dict[str, Raw]])
NO_EVENT = (
    f"the request carries no event: send {STRUCTURED} or {BATCHED}, or the headers ce-specversion, ce-id, ce-source and ce-type"
    " with the data as the body"
)
NULL = b"null"

_text = msgspec.json.Decoder(str).decode
_value = msgspec.json.Decoder(bool | int | float | str | None).decode
_encode = msgspec.json.Encoder().encode


class Event(Struct, frozen=True, gc=False):
    """An event: its attributes as texts, and its data. Data with no content type is JSON; None is an event without data."""

    attributes: dict[str, str]
    data: bytes | None
    content_type: str | None


class Destination(NamedTuple):
    """Where the events of a request go, and what the request says of all of them."""

    queue: QueueKey
    context: TraceContext | None
    principal: Principal | None


def format_of(call: Call) -> str | None:
    """The format of the events in the body, STRUCTURED or BATCHED; None in the binary mode."""
    header = call.single_header(b"content-type", Code.INVALID_EVENT)
    kind, _, parameters = (header or b"").decode("latin-1").lower().partition(";")
    kind = kind.strip()
    if not kind.startswith(ANY_FORMAT):
        return None
    if kind not in (STRUCTURED, BATCHED):
        raise SkepError(
            Code.UNSUPPORTED_MEDIA_TYPE, f"of the formats of events only {STRUCTURED} and {BATCHED} are taken"
        )
    charset = _charset(parameters)
    if charset not in (None, "utf-8"):
        raise SkepError(Code.UNSUPPORTED_MEDIA_TYPE, "events are written in UTF-8")
    return kind


def binary_event(call: Call, body: bytes, json_depth: int) -> Event:
    """The event whose attributes are headers of the request, and whose data is its body."""
    attributes = {}
    for name, value in call.scope["headers"]:
        if name.startswith(b"ce-"):
            attribute = name.decode("latin-1").removeprefix(PREFIX)
            if name in call.scope[REPEATED]:
                raise _unsound(f"{attribute[:40]} is given twice")
            try:
                attributes[attribute] = decode_value(value)
            except ValueError:
                raise _unsound(f"{attribute[:40]} is not percent-encoded UTF-8") from None
    if not attributes:
        raise SkepError(Code.INVALID_EVENT, NO_EVENT)
    if CONTENT_TYPE in attributes:
        raise _unsound("the header Content-Type tells the type of the data: leave out ce-datacontenttype")
    kind = call.header(b"content-type")
    if kind is not None:
        attributes[CONTENT_TYPE] = kind.decode("latin-1")
    _check(attributes)
    return Event(attributes, *_data_of_bytes(attributes.get(CONTENT_TYPE), body or None, json_depth))


def read_event(members: Mapping[str, Raw], json_depth: int) -> Event:
    """An event of the JSON format."""
    attributes = {}
    for name, raw in members.items():
        if name not in (DATA, DATA_BASE64):
            value = _attribute(name, raw)
            if value is not None:
                attributes[name] = value
    _check(attributes)
    encoded = members.get(DATA_BASE64)
    if encoded is not None and bytes(encoded) == NULL:
        encoded = None
    kind = attributes.get(CONTENT_TYPE)
    if encoded is None:
        return Event(attributes, *_data_of_json(kind, members.get(DATA)))
    if DATA in members:
        raise _unsound("it has both data and data_base64: leave one out")
    try:
        data = base64.b64decode(_text(encoded), validate=True)
    except (msgspec.DecodeError, binascii.Error, ValueError):
        raise _unsound("data_base64 is not Base64") from None
    return Event(attributes, *_data_of_bytes(kind, data, json_depth))


def messages_of(events: Sequence[Mapping[str, Raw]], destination: Destination, json_depth: int) -> list[NewMessage]:
    """The messages of a batch in the JSON format."""
    messages = []
    first: dict[tuple[str, str], int] = {}
    for index, members in enumerate(events):
        try:
            event = read_event(members, json_depth)
        except SkepError as error:
            raise SkepError(error.code, f"event {index}: {error.message}", index=index) from None
        key = (event.attributes["source"], event.attributes["id"])
        if first.setdefault(key, index) != index:
            raise SkepError(
                Code.INVALID_EVENT,
                f"event {index} has the source and id of event {first[key]}: an id is of one event of its source",
                index=index,
            )
        messages.append(message_of(event, destination))
    return messages


def message_of(event: Event, destination: Destination) -> NewMessage:
    """The message of an event."""
    attributes = event.attributes
    headers = with_context(_encode(headers_of(attributes, has_data=event.data is not None)), destination.context)
    assert headers is not None
    trace_id = trace_id_in(headers)
    if destination.principal is not None:
        headers = stamped(headers, destination.principal)
    return NewMessage(
        destination.queue,
        NULL if event.data is None else event.data,
        attributes.get(PARTITION_KEY) or DEFAULT_PARTITION,
        transaction_id_of(attributes["source"], attributes["id"]),
        trace_id,
        headers,
        event.content_type,
    )


def _unsound(why: str) -> SkepError:
    return SkepError(Code.INVALID_EVENT, f"the event is not sound: {why}")


def _check(attributes: Mapping[str, str]) -> None:
    fault = fault_of(attributes)
    if fault is not None:
        raise _unsound(fault)


def _attribute(name: str, raw: Raw) -> str | None:
    """The value of an attribute as a text; None when it is null, which is the same as none."""
    try:
        value = _value(raw)
    except msgspec.DecodeError:
        value = 0.5  # an object, a list, or a number beyond all measure
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if value in INTEGERS:
            return str(value)
        case _:
            raise _unsound(
                f"{name[:40]!r} is no text, no whole number of 32 bits, and neither true nor false: write it as a text"
            )


def _data_of_json(kind: str | None, data: Raw | None) -> tuple[bytes | None, str | None]:
    """The bytes of `data`, and their type if that is not JSON."""
    if data is None or is_json_type(kind):
        return None if data is None else bytes(data), None
    assert kind is not None
    try:
        text = _text(data)
    except msgspec.DecodeError:
        raise _unsound(
            "data is no text, and datacontenttype is not JSON: send a text or data_base64, or mend the type"
        ) from None
    charset = _charset(kind.partition(";")[2]) or "utf-8"
    try:
        if charset in CHARSETS:
            return text.encode(charset), kind
    except UnicodeEncodeError:
        pass
    raise _unsound(f"data cannot be written in {charset[:40]!r}: send data_base64")


def _data_of_bytes(kind: str | None, data: bytes | None, json_depth: int) -> tuple[bytes | None, str | None]:
    """Data as it is, and its type if that is not JSON. Data without a type is JSON if it can be."""
    if not is_json_type(kind):
        return data or b"", kind
    if data is None:
        return None, None
    try:
        check_json(data, json_depth)
    except SkepError:
        if kind is None:
            return data, OCTETS
        raise
    return data, None


def check_json(data: bytes, json_depth: int) -> None:
    """Refuse data that is no JSON, gives a key twice, or is nested too deeply."""
    try:
        msgspec.json.Decoder(Raw).decode(data)
        data.decode()
        if may_repeat_keys(data):
            find_repeated_key(data)
    except RecursionError:
        raise SkepError(Code.INVALID_REQUEST, "the data is nested too deeply") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SkepError(
            Code.MALFORMED, f"the data is not JSON, as its content type says: {why_no_json(error)}"
        ) from None
    check_depth(data, json_depth)


def _charset(parameters: str) -> str | None:
    for parameter in parameters.lower().split(";"):
        name, _, value = parameter.partition("=")
        if name.strip() == "charset":
            return value.strip().strip('"')
    return None
