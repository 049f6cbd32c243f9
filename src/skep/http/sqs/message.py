"""Messages: how body and attributes of SQS become a payload with headers, and the other way round.

A body that is a JSON object or array is a JSON payload; any other is `text/plain`. Message attributes are headers. The header `sqs-attributes`
has the type of each, so that a reader by SQS gets what was sent; without it (a message that was pushed natively) every header is a String.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
import struct
from collections.abc import Mapping, Sequence

import msgspec

from skep.errors import SkepError
from skep.http.producer import FIRST_PRODUCER, PRODUCER
from skep.http.sqs.faults import INVALID_CONTENTS, INVALID_VALUE, SqsError, invalid
from skep.http.sqs.shapes import Attributes, AttributeValue
from skep.strict_json import check_depth, find_repeated_key, may_repeat_keys
from skep.wire.traceparent import TRACEPARENT, TraceContext, trace_context

ATTRIBUTES_MAX = 10
NAME_CHARACTERS = 256
TEXT_TYPE = "text/plain; charset=utf-8"
TYPES = "sqs-attributes"
"""The header with the types of a message's attributes, as a JSON object."""
TRACE_HEADER = "AWSTraceHeader"
CONTENT_TYPE = "Content-Type"
"""The attribute with the content type of a payload that is no text: its body is Base64."""
JSON_DEPTH = 100
LONG_BYTES = 64 * 1_024
"""A longer body is examined in a thread, so that it holds up no other call."""

_NAME = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_UNFIT = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_XRAY = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})", re.ASCII)
_SPAN = re.compile(r"[0-9a-f]{16}", re.ASCII)
_KINDS = ("String", "Number", "Binary")
_OWN = frozenset({TYPES, TRACE_HEADER, PRODUCER, FIRST_PRODUCER})
_LOWERED = frozenset(name.lower() for name in _OWN)

_headers = msgspec.json.Decoder(dict[str, str]).decode
_types = msgspec.json.Decoder(dict[str, str]).decode
encode_headers = msgspec.json.Encoder().encode


def md5(data: bytes) -> str:
    """The digest that SQS tells of a body; it is no protection."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def is_tellable(text: str) -> bool:
    """Whether XML can hold a text."""
    # isprintable is one fast pass and mostly true; other texts, with line ends for example, are searched.
    return text.isprintable() or _UNFIT.search(text) is None


def body_bytes(body: str) -> bytes:
    """A body as bytes; InvalidMessageContents when it has characters that XML cannot hold."""
    if not is_tellable(body):
        raise SqsError(
            INVALID_CONTENTS,
            "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )
    return body.encode()


async def content_type_of_long(payload: bytes) -> str | None:
    """As `content_type_of`, for a payload whose look takes long: in a thread."""
    return await asyncio.to_thread(content_type_of, payload)


def content_type_of(payload: bytes) -> str | None:
    """None for a JSON object or array that a push of JSON would take; else text."""
    return None if payload[:1] in (b"{", b"[") and _is_sound_json(payload) else TEXT_TYPE


def _is_sound_json(payload: bytes) -> bool:
    """Whether a payload is JSON that is not nested too deeply, and without a key given twice."""
    try:
        if may_repeat_keys(payload):
            find_repeated_key(payload)
        if payload.count(b"{") + payload.count(b"[") > JSON_DEPTH:
            check_depth(payload, JSON_DEPTH)
    except (msgspec.DecodeError, RecursionError, SkepError):
        return False
    return True


def shown_body(payload: bytes, content_type: str | None) -> tuple[str, str | None]:
    """The body of a payload, and the content type that an attribute has to tell of: that of a payload that is no text."""
    if content_type is None or content_type.startswith("text/"):
        try:
            text = payload.decode()
        except UnicodeDecodeError:
            pass
        else:
            if is_tellable(text):
                return text, None
    return base64.b64encode(payload).decode(), content_type or "application/json"


# attributes


def check_attributes(attributes: Attributes) -> int:
    """Check message attributes; returns their size in bytes."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise SqsError(
            INVALID_VALUE,
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].",
        )
    return sum(_checked(name, value) for name, value in attributes.items())


def _checked(name: str, value: AttributeValue) -> int:
    lowered = name.lower()
    if (
        not 1 <= len(name) <= NAME_CHARACTERS
        or not _NAME.fullmatch(name)
        or lowered.startswith(("aws.", "amazon."))
        or lowered in _LOWERED
    ):
        raise invalid("MessageAttributeName", name, "it has characters or a beginning that is reserved.")
    kind = (value.data_type or "").partition(".")[0]
    if kind not in _KINDS or len(value.data_type or "") > NAME_CHARACTERS:
        raise invalid(
            f"MessageAttributes.{name}.DataType", value.data_type, "the type is String, Number or Binary, or begins so."
        )
    if value.string_value and value.binary_value:
        raise invalid(f"MessageAttributes.{name}", "", "it has a StringValue and a BinaryValue.")
    if kind == "Binary":
        if value.binary_value is None or not (data := _binary(name, value.binary_value)):
            raise _empty(name, kind)
        return len(name) + len(value.data_type or "") + len(data)
    if not value.string_value:
        raise _empty(name, kind)
    if not is_tellable(value.string_value):
        raise invalid(f"MessageAttributes.{name}", "", "it has characters that are not allowed.")
    if kind == "Number" and not _NUMBER.fullmatch(value.string_value):
        raise invalid(f"MessageAttributes.{name}", value.string_value, "a Number is a number.")
    return len(name) + len(value.data_type or "") + len(value.string_value.encode())


def _empty(name: str, kind: str) -> SqsError:
    return invalid(
        f"MessageAttributes.{name}", "", f"a {kind} attribute must contain a value of that type that is not empty."
    )


def _binary(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise invalid(f"MessageAttributes.{name}", text, "a binary value is Base64.") from None


def md5_of_attributes(attributes: Mapping[str, AttributeValue]) -> str:
    """The digest of attributes: of names, types and values, each after its length, by name."""
    parts = []
    for name in sorted(attributes):
        value = attributes[name]
        kind = (value.data_type or "").encode()
        if kind.startswith(b"Binary"):
            mark, data = b"\x02", base64.b64decode(value.binary_value or "")
        else:
            mark, data = b"\x01", (value.string_value or "").encode()
        encoded = name.encode()
        parts += [_long(encoded), encoded, _long(kind), kind, mark, _long(data), data]
    return md5(b"".join(parts))


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data))


def headers_of(attributes: Attributes, trace_header: str | None, context: TraceContext | None) -> bytes:
    """The headers of a message with these attributes. It keeps its own trace, in an attribute or the X-Ray header, rather than the request's."""
    headers = {name: value.binary_value or value.string_value or "" for name, value in attributes.items()}
    headers[TYPES] = encode_headers({name: value.data_type for name, value in attributes.items()}).decode()
    if trace_header is not None:
        headers[TRACE_HEADER] = trace_header
        context = context_of_xray(trace_header) or context
    if context is not None and TRACEPARENT not in headers:
        headers = {**context.headers, **headers}
    return encode_headers(headers)


def read_headers(headers: bytes | None) -> dict[str, str]:
    """A message's headers."""
    return {} if headers is None else _headers(headers)


def attributes_of(headers: Mapping[str, str]) -> Attributes:
    """The message attributes in a message's headers."""
    told = headers.get(TYPES)
    if told is not None:
        try:
            types = _types(told)
        except msgspec.DecodeError:
            types = None
        if types is not None:
            return {name: _value(types[name], headers[name]) for name in types if headers.get(name)}
    return {name: _value("String", value) for name, value in headers.items() if name not in _OWN and value}


def _value(kind: str, value: str) -> AttributeValue:
    """A header as an attribute. Who pushes natively may say any type, and has values that XML cannot hold: these are told as Binary."""
    base = kind.partition(".")[0]
    if base == "Binary":
        try:
            base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            base = ""
        else:
            return AttributeValue(kind, None, value)
    if not is_tellable(value):
        return AttributeValue("Binary", None, base64.b64encode(value.encode()).decode())
    return AttributeValue(kind if base in _KINDS else "String", value)


def wanted(attributes: Attributes, names: Sequence[str]) -> Attributes:
    """The attributes that these names and patterns ask for."""
    if "All" in names or ".*" in names:
        return attributes
    beginnings = tuple(name.removesuffix("*") for name in names if name.endswith(".*"))
    return {
        name: value
        for name, value in attributes.items()
        if name in names or (beginnings and name.startswith(beginnings))
    }


# traces


def context_of_xray(header: str) -> TraceContext | None:
    """The W3C trace context that an X-Ray header tells of; None when it has no trace and parent."""
    fields = dict(part.strip().partition("=")[::2] for part in header.split(";"))
    root, parent = _XRAY.fullmatch(fields.get("Root", "")), fields.get("Parent", "")
    if root is None or not _SPAN.fullmatch(parent):
        return None
    return trace_context(f"00-{root[1]}{root[2]}-{parent}-{'01' if fields.get('Sampled') == '1' else '00'}")


def xray_of(headers: Mapping[str, str]) -> str | None:
    """The X-Ray header of a message: its own, or the one that its W3C trace context says."""
    own = headers.get(TRACE_HEADER)
    if own is not None:
        return own
    context = trace_context(headers.get(TRACEPARENT))
    if context is None:
        return None
    _, trace, parent, flags = context.traceparent.split("-")[:4]
    return f"Root=1-{trace[:8]}-{trace[8:]};Parent={parent};Sampled={int(flags, 16) & 1}"
