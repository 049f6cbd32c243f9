"""One connection, with a bound on everything its client can make the server wait for or hold.

uvicorn's protocol parses requests and runs them. This one adds what it leaves open: deadlines for headers and bodies, sizes
of URL and headers, the number of connections and of requests sent ahead, clients that do not take their answers, and
errors in our shape. No timer is set for a request that arrives in one piece, so the usual one costs nothing more.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import unquote

import httptools
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from skep.config import HttpLimits
from skep.engine.answers import Room
from skep.errors import Code
from skep.http.connection.cycle import Cycle
from skep.http.connection.hosts import Hosts, check_target
from skep.http.connection.refusal import Refused
from skep.http.connection.transport import ClosingInOrder
from skep.http.connection.unsent import UnsentAnswers
from skep.http.request.origin import BROWSER, TOLD_BY_BROWSERS
from skep.http.request.peers import Connections
from skep.http.request.scope import CYCLE, REPEATED, name_headers

LINGER_SECONDS = 2.0
"""How long a refused client may go on sending before it is cut off; cut at once, it would often not see why."""
LINGER_BYTES = 64 * 1024 * 1024
"""The same in bytes."""
READER_BYTES = 64 * 1024
"""A client takes at least this much of its answer in every `reader_seconds`."""
FRAMING_BYTES = 64 * 1024
FRAMING_PER_BYTE = 8
"""Chunk sizes, extensions and trailers may be so much, and so much more for each byte of the body."""

HOST = b"host"
_VERSIONS = ("1.1", "1.0")

log = structlog.get_logger("skep.http")


class LimitedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, with limits."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: HttpLimits,
        hosts: Hosts,
        crowd: Connections,
        unsent: UnsentAnswers,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = limits
        self._hosts = hosts
        self._crowd = crowd
        self._unsent = unsent
        self._peer: str | None = None
        self._is_turned_away = False
        self.cycle: Cycle = None  # type: ignore[assignment]  # as in uvicorn, until the first request
        self._running: Cycle | None = None
        self._timer: TimerHandle | None = None
        self._reader_timer: TimerHandle | None = None
        self._unread_bytes = 0
        self._room: Room | None = None
        self._in_head = True
        self._head_bytes = 0
        self._wire_bytes = 0
        self._body_bytes = 0
        self._keep_alive = True
        self._ending = False
        self._rests_since: float | None = None
        self._is_upgrade = False
        self.lingering = False
        self.is_lost = False

    # the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take the connection, if there is room for it."""
        super().connection_made(ClosingInOrder(transport, self))  # type: ignore[arg-type]  # it has all that is used
        self._peer = self._crowd.enter(self.client)
        if len(self.connections) - self._crowd.turned_away > self._limits.max_connections:
            self._turn_away(503, "the server has as many connections as it may have")
        elif self._crowd.are_too_many(self._peer):
            self._turn_away(429, "this address has as many connections as one may have")
        else:
            self._start_timer(self._limits.headers_seconds, self._head_is_late)

    def _turn_away(self, status: int, reason: str) -> None:
        """Refuse a connection that is one too many. It counts no longer, so it takes the place of no other."""
        is_told = self._crowd.turn_away(self._peer)
        self._peer = None
        self._is_turned_away = True
        if is_told:
            self._refuse(Refused(status, Code.TOO_MANY_REQUESTS, reason))
        else:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell everyone who works for this client."""
        self.is_lost = True
        if self._is_turned_away:
            self._crowd.turned_away -= 1
        else:
            self._crowd.leave(self._peer)
        self._unsent.let_go(self)
        self._let_room_go()
        self._stop_timer()
        self._stop_reader_timer()
        if self._running is not None and not self._running.response_complete:
            self._running.lose_client()
        self.pipeline.clear()
        super().connection_lost(exc)
        # uvicorn leaves this timer running when the connection ended in an error.
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Parse what came, and see that it is not too much."""
        self._wire_bytes += len(data)
        if self.lingering:
            if self._wire_bytes > LINGER_BYTES:
                self.transport.abort()
            return
        self._rests_since = None
        self._head_bytes += len(data)
        try:
            self._feed(data)
            self._check_progress()
        except Refused as refused:
            self._refuse(refused)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._feed_without_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if isinstance(error.__context__, Refused):
                raise error.__context__ from None
            raise Refused(400, Code.MALFORMED, "the request is not HTTP: its URL is none") from None
        except httptools.HttpParserError as error:
            text = str(error)
            raise Refused(400, Code.MALFORMED, f"the request is not HTTP: {text[:1].lower()}{text[1:]}") from None

    def _feed_without_upgrade(self, rest: bytes) -> None:
        """Go on in this protocol when asked for one that is not spoken here, as Java's client asks for HTTP/2.

        The parser stops at such a request and takes its body for the other protocol, so it is given the head once more.
        """
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        lines += [b"%s: %s" % header for header in self.headers if header[0] not in (b"upgrade", b"connection")]
        if b"close" in _connection_options(self.headers):
            lines.append(b"connection: close")
        self.parser = httptools.HttpRequestParser(self)
        self._is_upgrade = False
        self._feed(b"\r\n".join([*lines, b"\r\n"]) + rest)

    def _check_progress(self) -> None:
        """A head or body that is not complete after a piece gets a deadline, and is held to its size."""
        if self._in_head:
            if self._head_bytes > self._limits.url_bytes + self._limits.headers_bytes:
                raise self._head_too_large()
            if self._head_bytes and self._timer is None:
                self._start_timer(self._limits.headers_seconds, self._head_is_late)
            return
        if self._wire_bytes - self._body_bytes > FRAMING_BYTES + FRAMING_PER_BYTE * self._body_bytes:
            raise Refused(413, Code.PAYLOAD_TOO_LARGE, "the body is mostly chunk extensions or trailers")
        self._expect_body()

    def _expect_body(self) -> None:
        # A request that waits for its turn is not read from, so its time does not run yet.
        if self._timer is None and self.cycle is self._running and self.cycle.more_body:
            self._start_timer(self._limits.body_seconds, self._body_is_late)

    # what the parser finds

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        super().on_url(url)
        if len(self.url) > self._limits.url_bytes:
            raise Refused(414, Code.INVALID_REQUEST, f"a URL has at most {self._limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; what follows a chunked body is of no use to us, and dropped."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Run the request, unless its head is too large or too many wait before it."""
        headers = self.headers
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise Refused(505, Code.MALFORMED, "this server speaks HTTP/1.1, and HTTP/1.0")
        size = sum([len(name) + len(value) for name, value in headers])
        if size > self._limits.headers_bytes or len(headers) > self._limits.headers_count:
            raise self._head_too_large()
        named = name_headers(self.scope, headers)  # type: ignore[arg-type]  # ours has more than ASGI's
        if not TOLD_BY_BROWSERS.isdisjoint(named):
            self.scope[BROWSER] = True  # type: ignore[literal-required]  # for `check_page`
        if HOST in self.scope[REPEATED]:  # type: ignore[literal-required]  # as above
            raise Refused(400, Code.MALFORMED, "the header Host is given twice")
        self._check_host(named.get(HOST), version)
        if len(self.pipeline) >= self._limits.pipelined_requests:
            raise Refused(429, Code.TOO_MANY_REQUESTS, "too many requests were sent ahead of their answers")
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                raise Refused(400, Code.MALFORMED, "this is no proxy")
            self._is_upgrade = True
            return
        self._stop_timer()
        self._run(version)
        self._in_head = False
        self._wire_bytes = self._body_bytes = 0

    def _run(self, version: str) -> None:
        """Give the request to the application, now or after those before it."""
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]  # ours has more than ASGI's
        url = httptools.parse_url(self.url)
        scope["method"] = self.parser.get_method().decode("ascii")
        scope["http_version"] = version
        scope["raw_path"] = url.path
        scope["path"] = path = url.path.decode("ascii")
        if "%" in path:
            scope["path"] = unquote(path)
        scope["query_string"] = url.query or b""
        before: Cycle | None = self.cycle
        # An answer that comes before the whole request has ends the connection: nobody wants the rest.
        self._keep_alive = version != "1.0" and self.parser.should_keep_alive()
        self.cycle = scope[CYCLE] = Cycle(
            scope=self.scope, transport=self.transport, flow=self.flow, logger=self.logger, access_logger=self.access_logger,
            access_log=False, default_headers=self.server_state.default_headers, message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue, keep_alive=False, on_response=self.on_response_complete,
        )  # fmt: skip
        self.cycle.body = b""  # type: ignore[assignment]  # so that a body that comes in one piece is not copied
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:
            if self._running is None or not self._running.is_watched:
                self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _check_host(self, host: bytes | None, version: str) -> None:
        """The one place that knows which names are answered."""
        if host is None:
            # Probes that speak HTTP/1.0 have no need of it, and browsers speak 1.1.
            if version == "1.0" and self.url[:1] == b"/":
                return
            raise Refused(400, Code.MALFORMED, "the header Host is missing")
        if host not in self._hosts.answered:
            self._hosts.examine(host)
        if self.url[:1] != b"/" and self.parser.get_method() != b"CONNECT":
            check_target(self.url, host)

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The whole request is here."""
        if self._is_upgrade:
            return
        self._stop_timer()
        self._in_head = True
        self._head_bytes = 0
        if not self._ending and not self.cycle.response_started:
            self.cycle.keep_alive = self._keep_alive
        super().on_message_complete()

    def _start_asgi_task(self, cycle: Cycle, app: Any) -> None:  # type: ignore[override]  # all are made by `_run`
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Run the next request, if one was sent ahead."""
        self.server_state.total_requests += 1
        if not self.transport.is_closing():
            self.flow.resume_reading()
            if self.pipeline:
                self._start_asgi_task(*self.pipeline.pop())  # type: ignore[arg-type]  # as above
            else:
                self._rest()
        if not self._in_head and not self.lingering:
            self._expect_body()

    def _rest(self) -> None:
        """Nothing is asked: that may last for some time. One timer looks after many rests, since most are short."""
        self._rests_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection if nothing was asked for long enough; if not yet, look again when that will be so."""
        self.timeout_keep_alive_task = None
        if self._rests_since is None:
            return
        left = self._rests_since + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self.timeout_keep_alive_task = self.loop.call_later(left, self.timeout_keep_alive_handler)
        else:
            super().timeout_keep_alive_handler()

    def _should_upgrade(self) -> bool:
        return False

    # answers that are not taken

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it is made: watch it."""
        super().pause_writing()
        if self._reader_timer is None:
            self._watch_reader()
        self._unsent.hold(self)

    def resume_writing(self) -> None:
        """The client has caught up."""
        super().resume_writing()
        self._stop_reader_timer()
        self._unsent.let_go(self)
        self._let_room_go()

    def hold_until_taken(self, room: Room) -> bool:
        """Hold the room of an answer while the client takes it; False when all but a little is taken, or it has gone."""
        if self.is_lost or not self.flow.write_paused:
            return False
        self._room = room
        room.read_by(self)
        return True

    def _let_room_go(self) -> None:
        if self._room is not None:
            room, self._room = self._room, None
            room.let_go()

    def _watch_reader(self) -> None:
        self._unread_bytes = self.unsent_bytes
        self._reader_timer = self.loop.call_later(self._limits.reader_seconds, self._look_at_reader)

    def _look_at_reader(self) -> None:
        left = self.unsent_bytes
        # More than before means that another piece was added, which happens only after some was taken.
        if left > self._unread_bytes or left <= self._unread_bytes - READER_BYTES:
            self._watch_reader()
        else:
            self.cut_off()

    @property
    def unsent_bytes(self) -> int:
        """What the client has not taken of its answer."""
        return self.transport.get_write_buffer_size()

    def cut_off(self) -> None:
        """The client did not take its answer in time, or others need the room."""
        log.info("a client that did not take its answer was cut off", unread_bytes=self.unsent_bytes)
        self.transport.abort()

    def closing(self) -> None:
        """The connection closes once the last of its answer is taken, which the client must do in time as well."""
        if self._reader_timer is None and self.unsent_bytes:
            self._watch_reader()

    # refusals

    def _head_too_large(self) -> Refused:
        most = f"{self._limits.headers_bytes} bytes in {self._limits.headers_count} headers"
        return Refused(431, Code.INVALID_REQUEST, f"a request has at most {most}")

    def _head_is_late(self) -> None:
        if not self._head_bytes:
            self.transport.close()
            return
        within = f"{self._limits.headers_seconds:g} seconds"
        self._refuse(Refused(408, Code.REQUEST_TIMEOUT, f"the headers did not arrive within {within}"))

    def _body_is_late(self) -> None:
        within = f"{self._limits.body_seconds:g} seconds"
        self._refuse(Refused(408, Code.REQUEST_TIMEOUT, f"the body did not arrive within {within}"))

    def _refuse(self, refused: Refused) -> None:
        """Answer in place of the application, and take nothing more from this connection.

        While an earlier request is still owed its answer, or this one's has begun, there is no place for another.
        """
        log.debug("a connection was refused", status=int(refused.status), reason=str(refused))
        running = self._running
        owed = running is not None and not running.response_complete
        is_running = running is self.cycle and not self._in_head
        may_answer = not owed or (is_running and running is not None and not running.response_started)
        if owed and running is not None:
            running.lose_client()
        if may_answer:
            self.transport.write(refused.response())
        self.linger()

    def linger(self) -> None:
        """Send what is to be sent, say that nothing more comes, and let the client read that before the end."""
        self.lingering = True
        self._wire_bytes = 0
        self.pipeline.clear()
        self.flow.resume_reading()
        self.transport.finish()  # type: ignore[attr-defined]  # it is a ClosingInOrder
        self._start_timer(LINGER_SECONDS, self._end)

    def _end(self) -> None:
        # As long as a large answer is being taken, that is watched instead.
        if self._reader_timer is not None:
            self._start_timer(LINGER_SECONDS, self._end)
        else:
            self.transport.abort()

    @property
    def is_unread(self) -> bool:
        """Whether the client is still sending the request that is being answered."""
        cycle: Cycle | None = self.cycle
        return cycle is not None and cycle.more_body

    def shutdown(self) -> None:
        """Stop in order: what is being answered ends the connection, and what waits for its client ends now."""
        self._ending = True
        if self.lingering:
            self.transport.abort()
        else:
            super().shutdown()

    # timers

    def _start_timer(self, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self.loop.call_later(seconds, then)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _stop_reader_timer(self) -> None:
        if self._reader_timer is not None:
            self._reader_timer.cancel()
            self._reader_timer = None


def _connection_options(headers: Sequence[tuple[bytes, bytes]]) -> set[bytes]:
    """What the client wants of the connection."""
    said = b",".join(value for name, value in headers if name == b"connection")
    return {option.strip().lower() for option in said.split(b",")}
