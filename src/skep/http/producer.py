"""The producer's identity, stamped on every message that someone known pushes.

Only the server writes these headers. What a client says under their names, in whatever case, is left out, so that a consumer may
believe them where access is on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.access.principal import Principal
from skep.model import NewMessage

PRODUCER = "skep-producer"
FIRST_PRODUCER = "skep-first-producer"
"""Who pushed a message before someone edited it."""
_OWN = {PRODUCER, FIRST_PRODUCER}

_headers = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def stamp(principal: Principal | None) -> bytes | None:
    """The headers of a message that has none of its own."""
    return None if principal is None else _encode({PRODUCER: principal.name})


def stamped(headers: bytes | None, principal: Principal) -> bytes:
    """Headers with the producer's identity; what is not headers at all stays as it is, to be refused."""
    if headers is None:
        return _encode({PRODUCER: principal.name})
    try:
        given = _headers(headers)
    except msgspec.DecodeError:
        return headers
    kept = {name: value for name, value in given.items() if name.strip().lower() not in _OWN}
    return _encode({**kept, PRODUCER: principal.name})


def edited(headers: bytes | None, principal: Principal | None) -> bytes | None:
    """The headers of a message that someone changed: it is theirs from now on, and who pushed it first stays known."""
    if principal is None:
        return headers
    given = {} if headers is None else _headers(headers)
    first = given.get(FIRST_PRODUCER) or given.get(PRODUCER)
    return _encode({**given, PRODUCER: principal.name, **({} if first is None else {FIRST_PRODUCER: first})})


def stamped_messages(messages: Sequence[NewMessage], principal: Principal | None) -> list[NewMessage]:
    """The same messages, each with the producer's identity."""
    if principal is None:
        return list(messages)
    return [msgspec.structs.replace(one, headers=stamped(one.headers, principal)) for one in messages]
