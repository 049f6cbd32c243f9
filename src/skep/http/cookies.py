"""A session in a cookie: how people are known to the dashboard, and to nothing else.

A browser sends cookies along by itself, also with requests that another site made it send. So no route of the API looks at them, the
cookie is SameSite=Strict, and a change made with one must come from a page of this very server, as browsers say. Over TLS its name has a
prefix that browsers guard: nobody who came without TLS, and no neighbour under the same domain, can set it.
"""

from __future__ import annotations

import re

from skep.errors import Code, SkepError
from skep.http.exchange import Call

NAME = "skep_session"
HOST_NAME = "__Host-" + NAME
SECURE_NAME = "__Secure-" + NAME
"""Under a path of its own: `__Host-` cookies go to every path of a host, and others may be served there."""
_GUARDED = (HOST_NAME, SECURE_NAME)
_TOKEN = re.compile(rb"[A-Za-z0-9._~+/=-]{1,4096}")
_SAFE = ("GET", "HEAD")


def session_of(call: Call) -> bytes | None:
    """What a request's cookie shows. Said twice, it counts as none; over TLS only the guarded names count."""
    shown = _shown(call)
    guarded = [value for name, value in shown if name in _GUARDED]
    found = guarded if guarded or call.is_https else [value for _, value in shown]
    return found[0] if len(found) == 1 and _TOKEN.fullmatch(found[0]) else None


def _shown(call: Call) -> list[tuple[str, bytes]]:
    return [
        (name, value)
        for header, content in call.scope["headers"]
        if header == b"cookie"
        for part in bytes(content).split(b";")
        for key, _, value in [part.strip().partition(b"=")]
        if (name := key.decode("latin-1")) in (NAME, *_GUARDED)
    ]


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


def set_cookie(call: Call, token: str, path: str) -> tuple[bytes, bytes]:
    """The header that lets a browser keep a session until it is closed."""
    name = NAME
    # The origin of a form is checked, so what it says of TLS is true, whatever a proxy leaves out.
    if call.is_https or (call.header(b"origin") or b"").startswith(b"https://"):
        name = HOST_NAME if path == "/" else SECURE_NAME
    return b"set-cookie", f"{name}={token}; {_attributes(name, path)}".encode()


def forget_cookies(call: Call, path: str) -> list[tuple[bytes, bytes]]:
    """The headers that let a browser forget what it showed."""
    names = dict.fromkeys(name for name, _ in _shown(call)) or (NAME,)
    return [(b"set-cookie", f"{name}=; Max-Age=0; {_attributes(name, path)}".encode()) for name in names]


def _attributes(name: str, path: str) -> str:
    return f"Path={path}; HttpOnly; SameSite=Strict{'' if name == NAME else '; Secure'}"
