"""Session cookies: they identify people to the dashboard, and to nothing else.

A browser sends cookies along by itself, also with requests that another site made it send. So no route of the API looks at them, the
cookie is SameSite=Strict, and a change made with one must come from a page of this very server, as browsers say. Over TLS its name has a
prefix that browsers guard: nobody who came without TLS can set it, and `__Host-` no neighbour under the same domain. So each place has one
name, and a cookie of another name counts for nothing there.
"""

from __future__ import annotations

from skep.access.sessions import is_session_text
from skep.errors import Code, SkepError
from skep.http.request.call import Call

NAME = "skep_session"
HOST_NAME = "__Host-" + NAME
SECURE_NAME = "__Secure-" + NAME
"""Under a path of its own: `__Host-` cookies go to every path of a host, and others may be served there."""
_SAFE = ("GET", "HEAD")


def session_of(call: Call, path: str) -> bytes | None:
    """The session in a request's cookie, if it has the name that a login sets under ``path``. A cookie given twice does not count."""
    shown = _shown(call, path)
    name = _name(call, path)
    if name == NAME and any(given != NAME for given, _ in shown):
        # A proxy may say nothing of TLS; but without TLS, no browser would show this.
        name = _guarded(path)
    found = [value for given, value in shown if given == name]
    return found[0] if len(found) == 1 and is_session_text(found[0]) else None


def _name(call: Call, path: str) -> str:
    """The name of the cookie for this path and scheme."""
    # Origin is checked before anything is changed, so what it says of TLS is true, whatever a proxy leaves out.
    is_https = call.is_https or (call.header(b"origin") or b"").startswith(b"https://")
    return _guarded(path) if is_https else NAME


def _guarded(path: str) -> str:
    return HOST_NAME if path == "/" else SECURE_NAME


def _shown(call: Call, path: str) -> list[tuple[str, bytes]]:
    names = (NAME, _guarded(path))
    return [
        (name, value)
        for header, content in call.scope["headers"]
        if header == b"cookie"
        for part in bytes(content).split(b";")
        for key, _, value in [part.strip().partition(b"=")]
        if (name := key.decode("latin-1")) in names
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
    name = _name(call, path)
    return b"set-cookie", f"{name}={token}; {_attributes(name, path)}".encode()


def forget_cookies(call: Call, path: str) -> list[tuple[bytes, bytes]]:
    """The headers that let a browser forget the session cookies that it sent."""
    names = dict.fromkeys(name for name, _ in _shown(call, path)) or (NAME,)
    return [(b"set-cookie", f"{name}=; Max-Age=0; {_attributes(name, path)}".encode()) for name in names]


def _attributes(name: str, path: str) -> str:
    return f"Path={path}; HttpOnly; SameSite=Strict{'' if name == NAME else '; Secure'}"
