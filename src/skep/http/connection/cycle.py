"""A request and its answer on a connection, with what ASGI has no word for.

An answer that is whole is written in one piece, which costs a fifth of ASGI's two events. Whoever works for a client can be told when
the client goes, without a task that waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE, RequestResponseCycle

from skep.engine.answers import Room
from skep.http.connection.transport import ClosingInOrder
from skep.http.request.scope import NO_BODY

JOINED_BYTES = 64 * 1024
"""Up to this, head and body are copied into one piece, which is the fastest thing to write."""
Header = tuple[bytes, bytes]


class Cycle(RequestResponseCycle):
    """uvicorn's, with answers in one piece."""

    transport: ClosingInOrder  # type: ignore[assignment]  # it has all that is used
    status: int | None = None
    """That of an answer that was sent whole."""
    _on_gone: Callable[[], object] | None = None

    async def answer(self, status: int, headers: tuple[Header, ...], more: list[Header], body: bytes) -> None:
        """Send an answer that is whole. ``headers`` are those that many answers have, ``more`` those of this one."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        assert not self.response_started
        head = [_start(status, headers)]
        for name, value in self.default_headers:
            head += (name, b": ", value, b"\r\n")
        for name, value in more:
            if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise RuntimeError("a header would break the answer")
            head += (name, b": ", value, b"\r\n")
        if not self.keep_alive:
            head.append(b"connection: close\r\n")
        head.append(b"\r\n" if status in NO_BODY else b"content-length: %d\r\n\r\n" % len(body))
        if self.scope["method"] != "HEAD":
            head.append(body)
        self.status = status
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        if len(body) > JOINED_BYTES:
            self.transport.writelines(head)
        else:
            self.transport.write(b"".join(head))
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def tell_when_gone(self, on_gone: Callable[[], object] | None) -> None:
        """Call this when the client goes before it is answered; None takes that back. Who does not read does not see it go."""
        self._on_gone = on_gone
        if on_gone is not None and not self.transport.is_closing():
            self.flow.resume_reading()

    def lose_client(self) -> None:
        """The client goes, or its connection is to be used no longer."""
        self.disconnected = True
        self.message_event.set()
        if self._on_gone is not None:
            self._on_gone()

    @property
    def is_watched(self) -> bool:
        """Whether somebody is to be told when the client goes."""
        return self._on_gone is not None

    @property
    def is_gone(self) -> bool:
        """Whether an answer that was just written reached nobody."""
        return self.transport.is_gone

    def hold_until_taken(self, room: Room) -> bool:
        """Hold the room of what was written until the client has taken it; False when it has."""
        return self.transport.hold_until_taken(room)


@lru_cache(256)
def _start(status: int, headers: tuple[Header, ...]) -> bytes:
    return STATUS_LINE[status] + b"".join([b"%s: %s\r\n" % header for header in headers])
