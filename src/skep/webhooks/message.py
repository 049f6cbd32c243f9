"""Make the message of a verified request. The engine checks whether it fits its queue, as with every push."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from skep.entities import encoded
from skep.entities.refusal import without_value
from skep.errors import Code, SkepError
from skep.spec import ExpressionError, apply_mapping
from skep.spec.variables import ENVELOPE
from skep.webhooks.compiled import WebhookTarget
from skep.webhooks.request import Values

UNFIT = frozenset({
    Code.MESSAGE_INVALID, Code.MAPPING_FAILED, Code.INVALID_PARTITION, Code.INVALID_TRANSACTION_ID,
})  # fmt: skip
"""Codes of a message that does not fit its queue. The queue may have a quarantine for such messages."""

_STARTS = {name: b'"%s":' % name.encode() for name in ENVELOPE}
_encode = msgspec.json.Encoder().encode


class Made(Struct, frozen=True, gc=False):
    """A message for a queue; ``headers`` say where it came from when its payload may not."""

    payload: bytes
    headers: bytes | None = None


def make(target: WebhookTarget, values: Values, body: bytes) -> Made:
    """The message: the envelope, or what the spec makes of it. MAPPING_FAILED when an expression has no value."""
    if target.mapping is None:
        return Made(envelope(target.envelope, values, body))
    try:
        fields = apply_mapping(target.mapping, values)
    except ExpressionError as error:
        raise without_value(error, f"the message for {target.queue.name}") from None
    return Made(encoded(fields), _origin(values))


def unmade(target: WebhookTarget, values: Values, body: bytes) -> Made:
    """The message for the quarantine: the one for the queue, or the whole request if there is none."""
    try:
        return make(target, values, body)
    except SkepError:
        return Made(envelope(ENVELOPE, values, body), _origin(values))


def envelope(names: tuple[str, ...], values: Values, body: bytes) -> bytes:
    """The JSON of an envelope. The payload is the body's own bytes; it is not encoded again."""
    parts = [_STARTS[name] + (body if name == "payload" else _encode(values[name])) for name in names]
    return b"{" + b",".join(parts) + b"}"


def _origin(values: Values) -> bytes:
    kept = values["headers"]
    assert isinstance(kept, dict)
    return _encode({**kept, "source-ip": values["source_ip"], "received-at": values["received_at"]})
