"""W3C trace context: the headers `traceparent` and `tracestate`, which tie a message to the trace it was pushed in."""

from __future__ import annotations

import re

import msgspec
from msgspec import Struct

from skep.ids import Id

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
STATE_CHARACTERS_MAX = 512
"""What a `tracestate` may have before it is left out; the standard asks for no more to be carried."""

# A version that is not known yet may say more after what version 00 says.
_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")
_headers = msgspec.json.Decoder(dict[str, str])


class TraceContext(Struct, frozen=True):
    """A `traceparent` that is sound, and its `tracestate`."""

    traceparent: str
    tracestate: str | None = None

    @property
    def trace_id(self) -> Id:
        """Which trace it is of."""
        return Id(bytes.fromhex(self.traceparent[3:35]))

    @property
    def headers(self) -> dict[str, str]:
        """What a message carries of it."""
        state = {} if self.tracestate is None else {TRACESTATE: self.tracestate}
        return {TRACEPARENT: self.traceparent, **state}


def trace_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """The context that these headers write; None when they write none. What is malformed counts for nothing, as the
    standard has it: whoever traces must not stand in the way of the message.
    """
    if traceparent is None or not _TRACEPARENT.fullmatch(traceparent):
        return None
    if tracestate is not None and not 0 < len(tracestate) <= STATE_CHARACTERS_MAX:
        tracestate = None
    return TraceContext(traceparent, tracestate)


def context_in(headers: bytes | None) -> TraceContext | None:
    """The context in a message's headers, which are a JSON object."""
    if headers is None or b"traceparent" not in headers:
        return None
    try:
        found = _headers.decode(headers)
    except msgspec.DecodeError:  # whoever checks the message says what is wrong with them
        return None
    return trace_context(found.get(TRACEPARENT), found.get(TRACESTATE))


def with_context(headers: bytes | None, context: TraceContext) -> bytes:
    """A message's headers with a context, unless they have one of their own."""
    if headers is None:
        return msgspec.json.encode(context.headers)
    if b"traceparent" in headers:
        return headers
    try:
        found = _headers.decode(headers)
    except msgspec.DecodeError:
        return headers
    return msgspec.json.encode({**found, **context.headers})
