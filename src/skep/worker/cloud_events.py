"""Write a message as a CloudEvent for a delivery.

A message that came in as an event goes out with the same attributes. Any other message gets attributes of its own, unless its headers
have sound ones: `ce-type`, for example.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from skep.client.message_data import payload_bytes
from skep.client.tracing import headers_of
from skep.model import DEFAULT_PARTITION, DEFAULT_TENANT
from skep.spec.ir import EventMode
from skep.wire.cloud_events import (
    CONTENT_TYPE,
    DATA,
    DATA_BASE64,
    NO_DATA,
    OCTETS,
    PARTITION_KEY,
    PREFIX,
    SPEC_VERSION,
    STRUCTURED,
    attributes_in,
    encode_value,
    fault_of,
    is_attribute_text,
    is_json_type,
    is_media_type,
)
from skep.wire.messages import PoppedMessage

TYPE = "skep.message"
"""The type of a message that names none."""
JSON_TYPE = "application/json"
_SOUND = {"specversion": SPEC_VERSION, "id": "1", "source": "/", "type": TYPE}
_encode = msgspec.json.Encoder().encode


class EventPost(Struct, frozen=True):
    """The headers and the body of a delivery that is an event."""

    headers: dict[str, str]
    body: bytes


def event_post(mode: EventMode, message: PoppedMessage, tenant: str) -> EventPost:
    """A message as an event."""
    headers = headers_of(message)
    payload = payload_bytes(message.payload, message.content_type)
    is_empty = headers.get(NO_DATA) == "none" and message.content_type is None and payload == b"null"
    attributes = attributes_of(message, headers, tenant)
    if mode is EventMode.BINARY:
        named = {f"{PREFIX}{name}": encode_value(value) for name, value in attributes.items() if name != CONTENT_TYPE}
        kind = attributes.get(CONTENT_TYPE) or (None if is_empty else _type_of(message))
        return EventPost(named if kind is None else {"content-type": kind, **named}, b"" if is_empty else payload)
    members: dict[str, object] = dict(attributes)
    if message.content_type is not None:
        members[DATA_BASE64] = base64.b64encode(payload).decode()
    elif not is_empty:
        members[DATA] = Raw(payload)
    return EventPost({"content-type": f"{STRUCTURED}; charset=utf-8"}, _encode(members))


def attributes_of(message: PoppedMessage, headers: Mapping[str, str], tenant: str) -> dict[str, str]:
    """The attributes of a message: those that it came with, or its own."""
    found = attributes_in(headers)
    if fault_of(found) is not None:
        sound = {name: value for name, value in found.items() if fault_of({**_SOUND, name: value}) is None}
        found = {**_own(message, tenant), **sound}
    elif CONTENT_TYPE not in found:
        return found
    # The type of the payload counts: somebody may have changed it since.
    if message.content_type is not None or not is_json_type(found.get(CONTENT_TYPE)):
        found[CONTENT_TYPE] = _type_of(message)
    return found


def _type_of(message: PoppedMessage) -> str:
    """The media type of a payload. A native message may name anything as its content type."""
    if message.content_type is None:
        return JSON_TYPE
    return message.content_type if is_media_type(message.content_type) else OCTETS


def _own(message: PoppedMessage, tenant: str) -> dict[str, str]:
    queue = f"/queues/{quote(message.queue, safe='')}"
    own = {
        "specversion": SPEC_VERSION,
        "id": message.id,
        "source": queue if tenant == DEFAULT_TENANT else f"/tenants/{quote(tenant, safe='')}{queue}",
        "type": TYPE,
        "time": message.created_at.isoformat().replace("+00:00", "Z"),
        CONTENT_TYPE: JSON_TYPE,
    }
    if message.partition != DEFAULT_PARTITION and is_attribute_text(message.partition):
        own |= {"subject": message.partition, PARTITION_KEY: message.partition}
    return own
