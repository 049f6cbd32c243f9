"""Names in a request's ASGI scope that are ours, and its headers by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

CYCLE = "skep.cycle"
"""The key of a request's cycle in its scope; our own server sets it."""
HEADERS = "skep.headers"
"""The key of the headers by lower-case name: the first value of each."""
REPEATED = "skep.repeated"
"""The key of the names of headers that were given more than once."""
NO_BODY = frozenset({HTTPStatus.NO_CONTENT})


def name_headers(scope: MutableMapping[str, Any], headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Put the headers of a request into its scope by name. ASGI's own list stays, for code that needs every value."""
    first = dict(reversed(headers))
    scope[HEADERS] = first
    scope[REPEATED] = () if len(first) == len(headers) else _repeated(headers)
    return first


def _repeated(headers: Sequence[tuple[bytes, bytes]]) -> Collection[bytes]:
    return frozenset(name for name, times in Counter(name for name, _ in headers).items() if times > 1)
