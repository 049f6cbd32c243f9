"""W3C trace context: the headers `traceparent` and `tracestate`, which tie a message to the trace it was pushed in."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from skep.ids import Id

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
STATE_CHARACTERS_MAX = 512
"""The most characters of a `tracestate`, as in the standard. A longer one loses its oldest members, at its end."""

# Version 00 has just these fields. A later version may have more after a dash; ff is no version.
_TRACEPARENT = re.compile(
    r"(?:00-{ids}|(?!00|ff)[0-9a-f]{{2}}-{ids}(?:-.*)?)".format(
        ids="(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    )
)
_headers = msgspec.json.Decoder(dict[str, str])


class TraceContext(Struct, frozen=True):
    """A valid `traceparent`, and its `tracestate`."""

    traceparent: str
    tracestate: str | None = None

    @property
    def trace_id(self) -> Id:
        """The id of the trace."""
        return Id(bytes.fromhex(self.traceparent[3:35]))

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a message with this context."""
        state = {} if self.tracestate is None else {TRACESTATE: self.tracestate}
        return {TRACEPARENT: self.traceparent, **state}


def trace_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """The context in these headers; None when there is none. A malformed one is ignored, as the standard says."""
    if traceparent is None or not _TRACEPARENT.fullmatch(traceparent):
        return None
    return TraceContext(traceparent, None if tracestate is None else _state(tracestate))


def context_of(headers: Iterable[tuple[bytes, bytes]]) -> TraceContext | None:
    """The context of a request; the names of headers are in lower case.

    Two `traceparent` headers count as none; several `tracestate` headers are parts of one list. Bytes beyond ASCII are replaced.
    """
    parents, states = [], []
    for name, value in headers:
        if name == b"traceparent":
            parents.append(value)
        elif name == b"tracestate":
            states.append(value)
    if len(parents) != 1:
        return None
    state = b",".join(states).decode("ascii", "replace") if states else None
    return trace_context(parents[0].decode("ascii", "replace"), state)


def context_in(headers: bytes | None) -> TraceContext | None:
    """The context in a message's headers, which are a JSON object."""
    if headers is None or b"traceparent" not in headers:
        return None
    found = _decoded(headers)
    return None if found is None else trace_context(found.get(TRACEPARENT), found.get(TRACESTATE))


def with_context(headers: bytes | None, context: TraceContext | None) -> bytes | None:
    """A message's headers with a context, unless they have their own. A `tracestate` without a valid `traceparent` is left out."""
    if headers is None:
        return None if context is None else msgspec.json.encode(context.headers)
    has_own, has_state = b"traceparent" in headers, b"tracestate" in headers
    if (context is None or has_own) and not has_state:
        return headers
    found = _decoded(headers)
    if found is None:
        return headers
    if TRACESTATE in found and trace_context(found.get(TRACEPARENT)) is None:
        del found[TRACESTATE]
    elif context is None or has_own:
        return headers
    ours = {} if context is None or TRACEPARENT in found else context.headers
    return msgspec.json.encode({**found, **ours})


def _state(text: str) -> str | None:
    """The members of a `tracestate`, up to `STATE_CHARACTERS_MAX`; None when there are none."""
    if len(text) <= STATE_CHARACTERS_MAX and ",," not in text and text.strip(", \t") == text:
        return text or None
    kept: list[str] = []
    characters = 0
    for member in text.split(","):
        if entry := member.strip(" \t"):
            characters += len(entry) + bool(kept)
            if characters > STATE_CHARACTERS_MAX:
                break
            kept.append(entry)
    return ",".join(kept) or None


def _decoded(headers: bytes) -> dict[str, str] | None:
    try:
        return _headers.decode(headers)
    except msgspec.DecodeError:  # the check of the message reports this
        return None
