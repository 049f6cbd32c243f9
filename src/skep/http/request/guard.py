"""The guard of a route: it checks the caller's identity, rate limit and verbs.

The handler checks permissions for queues that the request names, through its call. An answer that was made without any check
is not sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from skep.access.gate import Gate
from skep.access.principal import Principal
from skep.errors import Code, SkepError
from skep.http.request.call import Call
from skep.http.request.cookies import check_same_origin, session_of
from skep.http.request.permission import Permission, Reach

AUTHORIZATION = b"authorization"
BEARER = b"bearer "


class Guard:
    """The guard of one route."""

    __slots__ = ("_cookie_path", "_gate", "_need")

    def __init__(self, gate: Gate, need: Permission, cookie_path: Callable[[Call], str] | None = None) -> None:
        """With a ``cookie_path``, a session may come in the cookie of that path. Only pages have one."""
        self._cookie_path = cookie_path
        self._gate = gate
        self._need = need

    async def admit(self, call: Call) -> None:
        """Let a call in, or raise: UNAUTHENTICATED, TOO_MANY_REQUESTS or FORBIDDEN."""
        need = self._need
        if need.reach is Reach.OPEN:
            call.is_guarded = True
            return
        if need.reach is Reach.SIGNED:  # the handler reads the signature before the body, and checks it after
            return
        gate = self._gate
        if (session := self._session(call)) is not None:
            principal = gate.sessions.remembered(session) or await gate.sessions.admit(session)
        else:
            shown = bearer(call)
            principal = gate.remembered(shown) or await self._admitted(call, shown)
        if wait := gate.missing_seconds(principal):
            raise SkepError(
                Code.TOO_MANY_REQUESTS, "this key or subject makes more requests than it may",
                retry_after_seconds=math.ceil(wait),
            )  # fmt: skip
        call.enter(principal, need.verbs[0] if need.verbs else None)
        if not self._fits(principal, call):
            raise SkepError(Code.FORBIDDEN, f"this needs {need}")
        call.checked = need.reach not in (Reach.QUEUES, Reach.LIST)

    def _session(self, call: Call) -> bytes | None:
        """The session in the cookie of a page, unless a key or token is shown."""
        path_of = self._cookie_path
        if path_of is None or call.header(AUTHORIZATION) is not None:
            return None
        session = session_of(call, path_of(call))
        if session is not None:
            check_same_origin(call)
        return session

    async def _admitted(self, call: Call, shown: bytes) -> Principal:
        try:
            return await self._gate.admit(shown)
        except SkepError as error:
            if error.code is Code.UNAUTHENTICATED:
                self._gate.refused(call.peer, error)
            raise

    def _fits(self, principal: Principal, call: Call) -> bool:
        """Whether the caller's grants can allow the request at all. A refusal here comes before the body is read."""
        verbs = self._need.verbs
        match self._need.reach:
            case Reach.OPEN | Reach.KNOWN | Reach.SIGNED:
                return True
            case Reach.QUEUES | Reach.LIST:
                enough = all if self._need.both else any
                return enough(principal.may_anywhere(verb, call.tenant) for verb in verbs)
            case Reach.TENANT:
                return all(principal.may_all(verb, call.tenant) for verb in verbs)
            case Reach.ADMINS:
                return all(principal.may_somewhere(verb) for verb in verbs)
            case Reach.SERVER:
                return all(principal.may_everywhere(verb) for verb in verbs)

    def release(self, call: Call) -> None:
        """Hold back an answer that was made without a check."""
        unsigned = self._need.reach is Reach.SIGNED and call.principal is None
        if unsigned or (call.principal is not None and not call.checked):
            raise SkepError(Code.INTERNAL, "the answer was made without a check of who may see it")


def bearer(call: Call) -> bytes:
    """The key or token of a request."""
    shown = call.single_header(AUTHORIZATION, Code.UNAUTHENTICATED)
    if shown is None or shown[: len(BEARER)].lower() != BEARER:
        raise SkepError(Code.UNAUTHENTICATED, "this needs a key or a token: Authorization: Bearer …")
    return shown[len(BEARER) :].strip()
