"""The frame around a handler: errors become answers, answers are sent, and each is counted."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from time import perf_counter

import structlog
from msgspec import Struct

from skep.config import HttpLimits
from skep.errors import Code, SkepError
from skep.http.pieces import Piece, Pieces
from skep.http.request.bodies import Bodies
from skep.http.request.call import NOSNIFF, Answer, Call, ClientGone, Receive, Scope, Send
from skep.http.request.guard import Guard
from skep.http.request.origin import BROWSER, check_page
from skep.http.request.parameters import check_known
from skep.http.request.scope import CYCLE, NO_BODY
from skep.http.request.statuses import error_answer
from skep.observe.metrics import RouteMeter

Handler = Callable[[Call], Awaitable[Answer]]
Teller = Callable[[SkepError, Call], Answer]
"""Makes the answer of an error: JSON for programs, a page for people."""
Note = Callable[[SkepError, Call], None]
"""A listener for errors."""

log = structlog.get_logger("skep.http")


def tell_json(error: SkepError, call: Call) -> Answer:  # noqa: ARG001 - it is the same for every call
    """The answer of an error as JSON, in the one shape that programs get."""
    return error_answer(error)


class Endpoint(Struct, frozen=True):
    """One route as an ASGI application.

    Without a ``guard`` anyone may call the route. ``by_link`` allows links from any site to it. Without ``known`` parameters the
    handler checks the query itself.
    """

    handler: Handler
    limits: HttpLimits
    bodies: Bodies
    known: frozenset[str] | None
    meter: RouteMeter
    repeatable: frozenset[str] = frozenset()
    tell: Teller = tell_json
    guard: Guard | None = None
    tenant_in: str | None = None
    by_link: bool = False
    note: Note | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        call = Call(scope, receive, self.limits, self.bodies, self.repeatable, self.tenant_in)
        try:
            if BROWSER in scope:
                check_page(scope, by_link=self.by_link)
            if self.guard is not None:
                await self.guard.admit(call)
            if scope["query_string"] and self.known is not None:
                check_known(call.query, self.known)
            answer = await self.handler(call)
            if self.guard is not None:
                self.guard.release(call)
        except SkepError as error:
            answer = self._failed(error, call)
        except ClientGone:
            call.answered()
            return
        except Exception as error:
            # As text: a renderer that shows locals would put payloads into the log.
            path = scope["raw_path"].decode("ascii")  # quoted, so that nobody writes control characters into a terminal
            log.error("a request failed unexpectedly", path=path, traceback=traceback.format_exc(limit=-8))
            answer = self._failed(SkepError(Code.INTERNAL, f"the request failed: {type(error).__name__}"), call)
        except BaseException:
            call.answered()
            raise
        finally:
            self.bodies.give_back(call.body_bytes)
        self.meter.answered(answer.status, perf_counter() - started, call.waits)
        try:
            if isinstance(answer.body, bytes):
                # Checked after the write, so no client can leave between check and write. A write to a client that has left is dropped.
                await send_answer(scope, send, answer)
                if answer.undelivered is not None and call.is_gone:
                    answer.undelivered()
            else:
                await _send_pieces(call, send, answer, answer.body)
        finally:
            if call.room is not None:
                call.answered()

    def _failed(self, error: SkepError, call: Call) -> Answer:
        call.answered()
        if self.note is not None:
            self.note(error, call)
        return self.tell(error, call)


async def send_answer(scope: Scope, send: Send, answer: Answer) -> None:
    """Send an answer that has its body whole."""
    body = answer.body
    assert isinstance(body, bytes)
    usual = (
        (answer.caching,)
        if answer.status in NO_BODY
        else ((b"content-type", answer.media_type), NOSNIFF, answer.caching)
    )
    if (cycle := scope.get(CYCLE)) is not None:
        if cycle.is_held_up:
            await cycle.drain()
        cycle.answer(answer.status, usual, answer.headers, body)
        return
    length = [] if answer.status in NO_BODY else [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": [*usual, *length, *answer.headers]})
    await send({"type": "http.response.body", "body": body})


async def _send_pieces(call: Call, send: Send, answer: Answer, pieces: Pieces) -> None:
    """Send an answer piece by piece, until the client goes: pieces for a client that has gone are silently dropped."""
    headers = [(b"content-type", answer.media_type), NOSNIFF, answer.caching, *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    gone = asyncio.ensure_future(call.disconnected())
    try:
        if call.scope["method"] != "HEAD":
            async for piece in pieces:
                await _send_piece(call, send, piece)
                if gone.done() or (call.principal is not None and call.principal.is_over):
                    return  # without an end, so that the client does not take the answer for whole
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        await pieces.aclose()


async def _send_piece(call: Call, send: Send, piece: Piece) -> None:
    if (cycle := call.scope.get(CYCLE)) is None:
        await send({"type": "http.response.body", "body": b"".join(piece), "more_body": True})
        return
    if cycle.is_held_up:
        await cycle.drain()
    cycle.add(piece)
