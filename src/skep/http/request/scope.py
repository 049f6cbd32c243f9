"""Names in a request's ASGI scope that are ours, and its headers by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, MutableMapping, Sequence
from http import HTTPStatus
from typing import Any

CYCLE = "skep.cycle"
"""Where a request's scope has its cycle, on a server of ours."""
HEADERS = "skep.headers"
"""Where it has the first value of each header, by the name in small letters."""
REPEATED = "skep.repeated"
"""Where it has the names of headers that came more than once."""
NO_BODY = frozenset({HTTPStatus.NO_CONTENT})


def name_headers(scope: MutableMapping[str, Any], headers: Sequence[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Leave the headers of a request in its scope by their names. ASGI's own list stays, for those who need every value."""
    first = dict(reversed(headers))
    scope[HEADERS] = first
    scope[REPEATED] = () if len(first) == len(headers) else _repeated(headers)
    return first


def _repeated(headers: Sequence[tuple[bytes, bytes]]) -> Collection[bytes]:
    return frozenset(name for name, times in Counter(name for name, _ in headers).items() if times > 1)
