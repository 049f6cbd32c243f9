"""A key in a cookie: how people are known to the dashboard, and to nothing else.

A browser sends cookies along by itself, also with requests that another site made it send. So no route of the API looks at them, the
cookie is SameSite=Strict, and a change made with one must come from a page of this very server, as browsers say.
"""

from __future__ import annotations

import re

from skep.errors import Code, SkepError
from skep.http.exchange import Call

NAME = "skep_key"
_CREDENTIAL = re.compile(rb"[A-Za-z0-9._~+/=-]{1,4096}")
_SAFE = ("GET", "HEAD")


def credential_of(call: Call) -> bytes | None:
    """The key or token in a request's cookie. Said twice, it counts as none."""
    found = [
        value
        for name, header in call.scope["headers"]
        if name == b"cookie"
        for part in bytes(header).split(b";")
        for key, _, value in [part.strip().partition(b"=")]
        if key == NAME.encode()
    ]
    return found[0] if len(found) == 1 and _CREDENTIAL.fullmatch(found[0]) else None


def check_same_origin(call: Call) -> None:
    """Refuse a change with a cookie that is not known to come from a page of this server."""
    if call.scope["method"] in _SAFE:
        return
    site, origin = call.header(b"sec-fetch-site"), call.header(b"origin")
    if site not in (None, b"same-origin") or (
        origin is not None and origin.partition(b"://")[2] != call.header(b"host")
    ):
        raise _foreign()
    if site is None and origin is None:
        raise _foreign()


def _foreign() -> SkepError:
    return SkepError(Code.FORBIDDEN, "a change with a cookie comes from a page of this server, and says so")


def set_cookie(call: Call, credential: bytes, path: str) -> tuple[bytes, bytes]:
    """The header that lets a browser keep a key until it is closed; INVALID_REQUEST for what cannot be one."""
    if not _CREDENTIAL.fullmatch(credential):
        raise SkepError(Code.INVALID_REQUEST, "this is no key and no token")
    return b"set-cookie", b"%s=%s; %s" % (NAME.encode(), credential, _attributes(call, path))


def forget_cookie(call: Call, path: str) -> tuple[bytes, bytes]:
    """The header that lets a browser forget it."""
    return b"set-cookie", b"%s=; Max-Age=0; %s" % (NAME.encode(), _attributes(call, path))


def _attributes(call: Call, path: str) -> bytes:
    is_https = call.scope.get("scheme") == "https" or call.header(b"x-forwarded-proto") == b"https"
    return f"Path={path}; HttpOnly; SameSite=Strict{'; Secure' if is_https else ''}".encode()
