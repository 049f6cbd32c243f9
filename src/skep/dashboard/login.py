"""Logging in: a key or token becomes a session, which the browser keeps in a cookie that no script can read.

Only where access is guarded. The key itself is kept nowhere.
"""

from __future__ import annotations

from http import HTTPStatus

from skep.access.gate import Gate
from skep.dashboard.site import TAG, Fields, Site, form_fields
from skep.errors import Code, SkepError
from skep.http.request.call import Answer, Call
from skep.http.request.cookies import check_same_origin, forget_cookies, session_of, set_cookie
from skep.http.request.permission import OPEN
from skep.http.request.route import Route

LOGIN = "/login"
_BODY_BYTES = 16 * 1024
_FIELDS = 10


def login_page(site: Site, call: Call, error: SkepError) -> Answer:
    """The login page, with the error of the last try, if there was one."""
    by_cookie = session_of(call, site.root(call)) is not None
    shown = by_cookie or call.header(b"authorization") is not None or _is_login(call)
    links = site.links(call)
    page = site.page(
        call, "login.html", HTTPStatus.UNAUTHORIZED, screen=None, problem=error.sentence if shown else None,
        next=links.here() if call.scope["method"] == "GET" else links.url(),
    )  # fmt: skip
    if by_cookie:
        page.headers.extend(forget_cookies(call, site.root(call)))
    return page


def _is_login(call: Call) -> bool:
    return (call.scope["method"], call.scope["path"]) == ("POST", LOGIN)


def login_routes(site: Site, gate: Gate | None) -> list[Route]:
    """Logging in and out; without a ``gate`` there is nothing to do but to go on."""

    async def login(call: Call) -> Answer:
        fields = await _fields(call)
        goal = _next(site, call, fields.get("next"))
        if gate is None:
            return site.see(goal)
        try:
            principal = await gate.admit(fields.get("key").strip().encode("ascii", "replace"))
        except SkepError as error:
            if error.code is Code.UNAUTHENTICATED:
                gate.refused(call.peer, error)
            raise
        await end_shown(call)
        return site.see(goal, set_cookie(call, await gate.sessions.open(principal), site.root(call)))

    async def logout(call: Call) -> Answer:
        await _fields(call)
        await end_shown(call)
        return site.see(site.links(call).url(), *forget_cookies(call, site.root(call)))

    async def end_shown(call: Call) -> None:
        shown = session_of(call, site.root(call))
        if gate is not None and shown is not None:
            await gate.sessions.end(shown)

    return [
        Route(
            method="POST", path=path, handler=handler, summary="A form", tag=TAG, answers={303: None}, access=OPEN,
        )
        for path, handler in ((LOGIN, login), ("/logout", logout))
    ]  # fmt: skip


async def _fields(call: Call) -> Fields:
    check_same_origin(call)
    return await form_fields(call, _BODY_BYTES, _FIELDS)


def _next(site: Site, call: Call, wanted: str) -> str:
    """Where to go: the page that was asked for, if it is one of ours."""
    own = site.root(call)
    is_ours = (
        wanted.startswith(own) and not wanted.startswith(("//", "/\\")) and wanted.isascii() and wanted.isprintable()
    )
    return wanted if is_ours else site.links(call).url()
