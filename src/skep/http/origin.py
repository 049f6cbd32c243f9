"""Requests that a web page makes with its visitor's browser.

A server on loopback trusts whoever is on the machine, and a browser is, whatever page it shows: without this any web page could
push, pop or clear. Browsers say which page a request is from, and no other client does.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.errors import Code
from skep.http.refusal import Refused

TOLD_BY_BROWSERS = frozenset({b"origin", b"sec-fetch-site"})


def check_origin(headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse a request from a page that this server did not serve itself. Following a link to here is no such request."""
    told = dict(headers)
    origin = told.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != told.get(b"host"):
        raise _foreign()
    if told.get(b"sec-fetch-site") == b"cross-site" and told.get(b"sec-fetch-mode") != b"navigate":
        raise _foreign()


def _foreign() -> Refused:
    return Refused(403, Code.FORBIDDEN, "a web page of another origin may not use this server")
