"""The producer's identity, as headers on every message that an authenticated caller pushes.

Only the server writes these headers. Headers of these names from a client are dropped, in whatever case, so that a consumer may
believe them where access is on.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.access.principal import Principal
from skep.model import NewMessage

PRODUCER = "skep-producer"
FIRST_PRODUCER = "skep-first-producer"
"""The first producer of a message that somebody edited."""
_OWN = {PRODUCER, FIRST_PRODUCER}

_headers = msgspec.json.Decoder(dict[str, str]).decode
_encode = msgspec.json.Encoder().encode


def stamp(principal: Principal | None) -> bytes | None:
    """The headers of a message that has none of its own."""
    return None if principal is None else _encode({PRODUCER: principal.name})


def stamped(headers: bytes | None, principal: Principal) -> bytes:
    """Headers with the producer's identity. A value that is no header map stays as it is, and is refused later."""
    if headers is None:
        return _encode({PRODUCER: principal.name})
    try:
        given = _headers(headers)
    except msgspec.DecodeError:
        return headers
    kept = {name: value for name, value in given.items() if name.strip().lower() not in _OWN}
    return _encode({**kept, PRODUCER: principal.name})


def edited(headers: bytes | None, principal: Principal | None) -> bytes | None:
    """The headers of an edited message: the editor becomes its producer, and the first producer stays known."""
    if principal is None:
        return headers
    given = {} if headers is None else _headers(headers)
    first = given.get(FIRST_PRODUCER) or given.get(PRODUCER)
    return _encode({**given, PRODUCER: principal.name, **({} if first is None else {FIRST_PRODUCER: first})})


def stamped_messages(messages: Sequence[NewMessage], principal: Principal | None) -> list[NewMessage]:
    """The messages, each with the producer's identity."""
    if principal is None:
        return list(messages)
    return [msgspec.structs.replace(one, headers=stamped(one.headers, principal)) for one in messages]
