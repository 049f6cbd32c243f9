"""The path under which a proxy serves this server. The proxy removes it from requests, so URLs in answers must begin with it."""

from __future__ import annotations

import re

from skep.http.request.call import Call

PREFIX_HEADER = b"x-forwarded-prefix"
_PREFIX = re.compile(r"(/[A-Za-z0-9._~-]{1,64}){0,8}")


def prefix_of(call: Call, prefix: str) -> str:
    """The path prefix of a request: the proxy's in front of the server if it names one, else the settings' ``prefix``."""
    given = call.header(PREFIX_HEADER)
    if given is None:
        return prefix
    named = given.decode("ascii", "replace").rstrip("/")
    return named if _PREFIX.fullmatch(named) else ""
