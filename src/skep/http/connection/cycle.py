"""One request and its answer on a connection: ASGI's receive and send, and calls that ASGI lacks.

A whole answer is written in one piece, which costs a fifth of ASGI's two events. A handler can be told when its client disconnects,
without a task that waits for it. Objects that a request may not need are made late: most bodies come in one piece with their head,
and then nothing waits.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol

import structlog

from skep.engine.answers import Room
from skep.errors import Code
from skep.http.connection.refusal import Refused, TellRefusal
from skep.http.pieces import Data, Piece
from skep.http.request.scope import CYCLE, NO_BODY

JOINED_BYTES = 64 * 1024
"""Up to this size, head and body are copied into one piece, which is fastest to write."""
UNREAD_BYTES = 64 * 1024
"""When this much of a body waits for the application, the server reads no more from the client until the application has taken it."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Header = tuple[bytes, bytes]
Event = MutableMapping[str, Any]
App = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]
Write = Callable[[Data], None]
WriteLines = Callable[[Iterable[Data]], None]

_IN_NO_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_IN_NO_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")

log = structlog.get_logger("skep.http")


class CycleConnection(Protocol):
    """The calls that a cycle makes to its connection."""

    write: Write
    writelines: WriteLines
    is_ending: bool
    """Whether the server is stopping: every answer is then the last of its connection."""
    is_write_paused: bool
    """Whether the client has not read much of the written data yet."""
    tell_refusal: TellRefusal
    """Makes the answer of a refusal."""

    @property
    def default_headers(self) -> Sequence[Header]:
        """The headers that every answer has."""

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closing, so that nothing more is written."""

    @property
    def is_gone(self) -> bool:
        """Whether the client did not get the answer that was just written."""

    def pause_reading(self) -> None:
        """Stop reading: the client's bytes stay in the kernel."""

    def resume_reading(self) -> None:
        """Read again."""

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written, or has gone."""

    def hold_until_taken(self, room: Room) -> bool:
        """Keep the reserved memory of an answer until the client has read it; False when it has read nearly all, or has gone."""

    def answered(self) -> None:
        """The answer is written."""

    def close(self) -> None:
        """End in order."""

    def abort(self) -> None:
        """End at once."""


class Cycle:
    """One request."""

    # Values that most requests keep are the class's, so that making one costs little.
    status: int | None = None
    """The status of an answer that was sent whole."""
    disconnected = False
    """Whether the client has gone, or its connection is used no longer."""
    keep_alive = False
    """Whether the connection stays open. It is closed when the answer came before the whole request."""
    more_body = True
    """Whether the request is not complete yet."""
    response_started = False
    response_complete = False
    _unread_bytes = 0
    _has_news = False
    _news: asyncio.Future[None] | None = None
    _on_gone: Callable[[], object] | None = None
    _length_left: int | None = None
    _is_chunked = False

    def __init__(
        self, connection: CycleConnection, scope: MutableMapping[str, Any], *, persists: bool, awaits_continue: bool
    ) -> None:
        """``persists`` says that the client wants to go on afterwards; ``awaits_continue`` that it sends its body when told to."""
        self.connection = connection
        self.scope = scope
        self._persists = persists
        self._awaits_continue = awaits_continue
        self._pieces: list[bytes] = []
        scope[CYCLE] = self

    async def run(self, app: App, tasks: set[asyncio.Task[None]]) -> None:
        """Let the application answer, as one of the ``tasks``."""
        try:
            await app(self.scope, self.receive, self.send)
            if not self.response_complete:
                self._miss_answer()
        except Exception:
            # As text: a renderer that shows locals would put payloads into the log.
            log.error("a request failed unexpectedly", traceback=traceback.format_exc(limit=-8))
            self._break_off()
        except BaseException:
            self.connection.abort()
            raise
        finally:
            tasks.discard(asyncio.current_task())
            del self.scope[CYCLE]  # without a circle, both are freed at once and not by the garbage collector

    def _miss_answer(self) -> None:
        """The application ended without a whole answer: the client has gone, or has to see that the rest does not come."""
        if not self.response_started and not self.disconnected:
            raise RuntimeError("the application gave no answer")
        self._break_off()

    def _break_off(self) -> None:
        """End an answer that will never be whole so that nobody takes it for whole."""
        if self.disconnected or self.response_complete:
            return
        if not self.response_started:
            self.response_started = self.response_complete = True
            self.connection.write(
                Refused(500, Code.INTERNAL, "the request failed").response(self.connection.tell_refusal)
            )
            self.connection.close()
        elif self._is_chunked:
            self.connection.close()
        else:
            self.connection.abort()

    # the request

    def take(self, piece: bytes) -> None:
        """A piece of the body is here."""
        self._pieces.append(piece)
        self._unread_bytes += len(piece)
        if self._unread_bytes > UNREAD_BYTES:
            self.connection.pause_reading()
        self._has_news = True
        if self._news is not None:
            self._tell_news()

    def end_body(self) -> None:
        """The whole request is here."""
        self.more_body = False
        if not self.response_started and not self.connection.is_ending:
            self.keep_alive = self._persists
        self._has_news = True
        if self._news is not None:
            self._tell_news()

    async def receive(self) -> Event:
        """ASGI's: what has come of the body, or that the client is no more."""
        if self._awaits_continue:
            self._awaits_continue = False
            if not self.response_started and not self.connection.is_closing:
                self.connection.write(CONTINUE)
        if not self.disconnected and not self.response_complete:
            self.connection.resume_reading()
            if not self._has_news:
                await self._wait_for_news()
            self._has_news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        pieces = self._pieces
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._pieces = []
        self._unread_bytes = 0
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _wait_for_news(self) -> None:
        assert self._news is None, "one at a time receives"
        self._news = asyncio.get_running_loop().create_future()
        try:
            await self._news
        finally:
            self._news = None

    def _tell_news(self) -> None:
        self._has_news = True
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    # the answer

    def answer(self, status: int, headers: tuple[Header, ...], more: list[Header], body: bytes) -> None:
        """Send an answer that is whole. ``headers`` are those that many answers have, ``more`` those of this one.

        The sender first waits while `is_held_up`.
        """
        if self.disconnected:
            return
        assert not self.response_started
        head = [_start(status, headers, tuple(self.connection.default_headers))]
        if more:
            head += _checked_lines(more)
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n" if status in NO_BODY else b"content-length: %d\r\n\r\n" % len(body))
        if self.scope["method"] != "HEAD":
            head.append(body)
        self.status = status
        self.response_started = True
        if len(body) > JOINED_BYTES:
            self._write_all(head)
        else:
            self.connection.write(b"".join(head))
        self._complete()

    @property
    def is_held_up(self) -> bool:
        """Whether to wait until the client has read the written data before more is sent."""
        return self.connection.is_write_paused and not self.disconnected

    async def drain(self) -> None:
        """Wait until the client has read most of it, or has gone."""
        await self.connection.drain()

    async def send(self, message: Event) -> None:
        """ASGI's: the head of an answer, or a piece of it."""
        if self.is_held_up:
            await self.connection.drain()
        if self.disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            self._begin(message["status"], list(message.get("headers", ())))
        elif kind == "http.response.body" and self.response_started and not self.response_complete:
            self._add([message.get("body", b"")], message.get("more_body", False))
        else:
            raise RuntimeError(f"{kind} came out of turn")

    def _begin(self, status: int, headers: list[Header]) -> None:
        head = [_start(status, (), tuple(self.connection.default_headers)), *_checked_lines(headers)]
        self.response_started = True
        length = next((value for name, value in headers if name == b"content-length"), None)
        if length is not None:
            self._length_left = int(length)
        # HTTP/1.0 knows no chunks: there, the end of the connection is that of the answer.
        elif self.scope["method"] != "HEAD" and status not in NO_BODY and self.scope["http_version"] != "1.0":
            self._is_chunked = True
            head.append(b"transfer-encoding: chunked\r\n")
        head.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        self.connection.write(b"".join(head))

    def add(self, piece: Piece) -> None:
        """Write a piece of an answer that has begun; more come."""
        if not self.disconnected:
            self._add(piece, True)

    def _add(self, piece: Piece, more: bool) -> None:
        if self.scope["method"] != "HEAD":
            size = sum(map(len, piece))
            written = [b"%x\r\n" % size, *piece, b"\r\n"] if size and self._is_chunked else list(piece)
            if self._is_chunked and not more:
                written.append(b"0\r\n\r\n")
            if self._length_left is not None:
                self._length_left -= size
                if self._length_left < 0 or (self._length_left and not more):
                    raise RuntimeError("the answer has not the length that its head says")
            if size > JOINED_BYTES:
                self._write_all(written)
            elif joined := b"".join(written):
                self.connection.write(joined)
        if not more:
            self._complete()

    def _write_all(self, buffers: Piece) -> None:
        """Write buffers without joining them. The last one is written by itself: `writelines` of some versions of asyncio never tells
        that the client is slow (CVE-2024-12254), `write` does.
        """
        self.connection.writelines(buffers[:-1])
        self.connection.write(buffers[-1])

    def _complete(self) -> None:
        self.response_complete = True
        if self._news is not None:
            self._tell_news()
        if not self.keep_alive:
            self.connection.close()
        self.connection.answered()

    # the client

    def tell_when_gone(self, on_gone: Callable[[], object] | None) -> None:
        """Set the callback for a client that goes before it is answered; None removes it. It cannot come while reading is paused."""
        self._on_gone = on_gone
        if on_gone is not None and not self.connection.is_closing:
            self.connection.resume_reading()

    def lose_client(self) -> None:
        """The client goes, or its connection is to be used no longer."""
        self.disconnected = True
        self._tell_news()
        if self._on_gone is not None:
            self._on_gone()

    @property
    def is_watched(self) -> bool:
        """Whether a call wants to know when the client disconnects."""
        return self._on_gone is not None

    @property
    def is_gone(self) -> bool:
        """Whether the client did not get the answer that was just written."""
        return self.connection.is_gone

    def hold_until_taken(self, room: Room) -> bool:
        """Hold the room of what was written until the client has taken it; False when it has."""
        return self.connection.hold_until_taken(room)


@lru_cache(256)
def _start(status: int, headers: tuple[Header, ...], defaults: tuple[Header, ...]) -> bytes:
    lines = [b"%s: %s\r\n" % header for header in headers + defaults]
    return b"".join([b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode()), *lines])


def _checked_lines(headers: Sequence[Header]) -> list[bytes]:
    for name, value in headers:
        if not name or _IN_NO_NAME.search(name) or _IN_NO_VALUE.search(value):
            raise RuntimeError("a header would break the answer")
    return [b"%s: %s\r\n" % header for header in headers]
