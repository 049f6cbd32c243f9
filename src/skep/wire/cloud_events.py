"""CloudEvents 1.0 as messages: each attribute is a header `ce-NAME`, and the data is the payload.

The server reads events by these rules, and workers write them when they deliver. `traceparent` and `tracestate` are headers of these very
names, as on every message with a trace context.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote, unquote_to_bytes

from msgspec import Meta, Struct

from skep.wire.traceparent import TRACEPARENT, TRACESTATE

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
ANY_FORMAT = "application/cloudevents"
SPEC_VERSION = "1.0"
PREFIX = "ce-"
REQUIRED = ("specversion", "id", "source", "type")
TRACING = (TRACEPARENT, TRACESTATE)
DATA, DATA_BASE64, CONTENT_TYPE, PARTITION_KEY = "data", "data_base64", "datacontenttype", "partitionkey"
OCTETS = "application/octet-stream"
"""The type of data that has none and is not JSON."""
NO_DATA = PREFIX + DATA
"""The header, with the value `none`, of an event without data. No attribute may have the name `data`."""
TRANSACTION_ID_CHARACTERS = 255
HASHED = "ce-sha256-"
"""The beginning of a transaction id that is a hash. It has no space, and all others have one."""

_NAME = re.compile(r"[a-z0-9]+")
_PLANES = "".join(f"{chr(plane * 0x10000 + 0xFFFE)}{chr(plane * 0x10000 + 0xFFFF)}" for plane in range(17))
_UNFIT = re.compile(f"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef{_PLANES}]")
_SPACE = re.compile(r"\s")
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):(\d\d)(\.\d+)?(?:[Zz]|[+-](\d\d:\d\d))", re.ASCII)
_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*(?:;.*)?")
_UNENCODED = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')
_ESCAPE = re.compile(r"\\(.)")


class CloudEvent(Struct, omit_defaults=True):
    """An event in the JSON format of CloudEvents 1.0. Further members are extension attributes: texts, whole numbers or true and false.

    ``data`` is any JSON, or a text where ``datacontenttype`` is not JSON. Other data is ``data_base64``.
    """

    specversion: Literal["1.0"]
    id: Annotated[str, Meta(min_length=1)]
    source: Annotated[str, Meta(pattern=r"^\S+$")]
    type: Annotated[str, Meta(min_length=1)]
    subject: str | None = None
    time: str | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    partitionkey: str | None = None
    traceparent: str | None = None
    tracestate: str | None = None
    data: Any = None
    data_base64: str | None = None


def is_attribute_name(name: str) -> bool:
    """Whether an attribute may have this name: letters and digits, and not what the data is called."""
    return _NAME.fullmatch(name) is not None and name != DATA


def is_attribute_text(text: str) -> bool:
    """Whether an attribute may have this value: no control characters, no halves of characters, and no code points that are none."""
    return text.isprintable() or _UNFIT.search(text) is None


def fault_of(attributes: Mapping[str, str]) -> str | None:
    """What is wrong with the attributes of an event, and how to mend it; None when they are sound."""
    version = attributes.get("specversion")
    if version is not None and version != SPEC_VERSION:
        return f"specversion is {version[:20]!r}: only {SPEC_VERSION} is taken"
    missing = [name for name in REQUIRED if not attributes.get(name)]
    if missing:
        return f"{missing[0]} is missing or empty: an event has {', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}"
    for name, value in attributes.items():
        if not is_attribute_name(name):
            return f"{name[:40]!r} is no name of an attribute: it has small letters and digits only"
        if not value and name in ("subject", "dataschema", CONTENT_TYPE, PARTITION_KEY):
            return f"{name} is empty: leave it out, or give it a value"
        if not is_attribute_text(value):
            return f"{name} has a control character, or one that is none: leave it out"
    if _SPACE.search(attributes["source"]):
        return "source is no URI: write %20 for a space in it"
    if (time := attributes.get("time")) is not None and not is_time(time):
        return "time is no RFC 3339 time: write it as 2026-01-31T12:00:00Z"
    if (kind := attributes.get(CONTENT_TYPE)) is not None and not is_media_type(kind):
        return "datacontenttype is no media type: write it as application/json"
    return None


def is_media_type(text: str) -> bool:
    """Whether a text is a media type, with parameters or without."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def is_time(text: str) -> bool:
    """Whether a text is a time of RFC 3339."""
    found = _TIME.fullmatch(text)
    if found is None:
        return False
    day, minute, second, _, offset = found.groups()
    try:
        # A minute may have a 61st second, which Python does not know.
        datetime.fromisoformat(f"{day}T{minute}:{'59' if second == '60' else second}+{offset or '00:00'}")
    except ValueError:
        return False
    return True


def is_json_type(content_type: str | None) -> bool:
    """Whether data of this type is JSON; data without a type is."""
    if content_type is None:
        return True
    subtype = content_type.partition(";")[0].strip().lower().partition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def transaction_id_of(source: str, id_: str) -> str:
    """The transaction id of an event. A source has no space in it, so no two events have the same by chance."""
    plain = f"{source} {id_}"
    return plain if len(plain) <= TRANSACTION_ID_CHARACTERS else HASHED + hashlib.sha256(plain.encode()).hexdigest()


def headers_of(attributes: Mapping[str, str], *, has_data: bool) -> dict[str, str]:
    """The headers of a message that is this event."""
    headers = {name if name in TRACING else PREFIX + name: value for name, value in attributes.items()}
    if not has_data:
        headers[NO_DATA] = "none"
    return headers


def attributes_in(headers: Mapping[str, str]) -> dict[str, str]:
    """The attributes in a message's headers; what cannot be an attribute is left out."""
    found = {name.removeprefix(PREFIX): value for name, value in headers.items() if name.startswith(PREFIX)}
    found |= {name: headers[name] for name in TRACING if name in headers}
    return {name: value for name, value in found.items() if is_attribute_name(name) and is_attribute_text(value)}


def decode_value(header: bytes) -> str:
    """The value of an attribute in an HTTP header: unquoted and percent-decoded. ValueError when it is not UTF-8."""
    text = header.decode()
    if len(text) >= 2 and text[0] == text[-1] == '"':
        text = _ESCAPE.sub(r"\1", text[1:-1])
    return unquote_to_bytes(text).decode()


def encode_value(value: str) -> str:
    """The value of an attribute as an HTTP header has it: printable ASCII, and everything else percent-encoded."""
    return quote(value, safe=_UNENCODED)
