"""Refuse requests that a foreign web page makes with its visitor's browser (cross-site requests).

A server on loopback trusts every program of the machine, also a browser, whatever page it shows. Without this check any web page could
push, pop or clear. Only browsers say which page a request is from. The API is for programs and for pages of this
server; only its pages may be reached by a link from elsewhere.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

from skep.errors import Code, SkepError

BROWSER = "skep.browser"
"""The key in a request's scope that marks a request as a browser's."""
TOLD_BY_BROWSERS = frozenset({b"origin", b"sec-fetch-site", b"referer"})
_SAFE = ("GET", "HEAD")
_FRAMES = (b"iframe", b"frame", b"embed", b"object", b"fencedframe")
_USUAL_AGENT = b"mozilla/"
"""Every browser's `User-Agent` begins so, and hardly any program's."""


def check_page(scope: MutableMapping[str, Any], *, by_link: bool) -> None:
    """Refuse a request from a page that this server did not serve itself.

    ``by_link`` says that it is a page, to which a link may lead from anywhere, though not into a frame.
    """
    told = dict(scope["headers"])
    host, origin, site = told.get(b"host"), told.get(b"origin"), told.get(b"sec-fetch-site")
    if origin is not None and not _is_of(origin, host):
        raise _foreign()
    may_follow = by_link and scope["method"] in _SAFE
    if site is not None:
        if site == b"same-origin" or (may_follow and _is_followed(site, told)):
            return
        raise _foreign()
    if origin is None and not may_follow and not _is_of(told.get(b"referer", b""), host):
        raise _foreign()


def _is_of(url: bytes, host: bytes | None) -> bool:
    return url.partition(b"://")[2].partition(b"/")[0] == host


def _is_followed(site: bytes, told: dict[bytes, bytes]) -> bool:
    """Whether someone followed a link, or typed an address."""
    if told.get(b"sec-fetch-dest") in _FRAMES:
        return False
    return site == b"none" or told.get(b"sec-fetch-mode") == b"navigate"


def check_popper(scope: MutableMapping[str, Any]) -> None:
    """Refuse a pop by GET from a browser that does not say which page it is from.

    To a server off loopback without TLS browsers do not send `Sec-Fetch-Site`, with GET they send no `Origin`, and a page can
    keep back the `Referer`. A POST always has its origin.
    """
    if BROWSER not in scope and _is_browser(scope["headers"]):
        raise SkepError(
            Code.FORBIDDEN, "a browser that does not say which page it shows cannot pop by GET: use POST, or a program"
        )


def _is_browser(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    return any(name == b"user-agent" and value[: len(_USUAL_AGENT)].lower() == _USUAL_AGENT for name, value in headers)


def _foreign() -> SkepError:
    return SkepError(
        Code.FORBIDDEN,
        "a web page of another origin may not use this server, nor does the API answer to links and typed addresses: use a "
        "program, or a page of this server",
    )
