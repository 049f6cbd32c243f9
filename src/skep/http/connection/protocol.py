"""One connection, with a bound on everything its client can make the server wait for or hold.

`uvicorn.Server` makes one for each connection; all of HTTP is ours. `reading` parses requests, `cycle` answers them, and this class runs
them one after another, however many are sent ahead, and ends the connection in order. Errors of the connection have the shape of their port.

When a server closes a socket while the client still sends, the kernel resets the connection, and the answer is often lost. So such a
connection lingers: the answer goes out, then the end of the stream, and bytes that still come are dropped for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, cast

import structlog
from uvicorn import Config
from uvicorn.server import ServerState

from skep.config import HttpLimits
from skep.engine.answers import Room
from skep.errors import Code
from skep.http.connection.cycle import App, Cycle, Header, Write, WriteLines
from skep.http.connection.hosts import Hosts
from skep.http.connection.reading import Place, RequestReader
from skep.http.connection.refusal import Refused, TellRefusal
from skep.http.connection.slow_client import SlowClient
from skep.http.connection.timers import Deadline, Rest
from skep.http.connection.unsent import UnsentAnswers
from skep.http.pieces import Data
from skep.http.request.peers import PeerConnections
from skep.http.request.statuses import error_answer

LINGER_SECONDS = 2.0
"""How long a refused client may go on sending before it is cut off. If it were cut off at once, it would often miss the reason."""
LINGER_BYTES = 64 * 1024 * 1024
"""How many bytes a refused client may go on sending."""

log = structlog.get_logger("skep.http")


class LimitedProtocol(asyncio.Protocol):
    """HTTP/1.1 and 1.0, with limits."""

    transport: asyncio.Transport
    write: Write
    writelines: WriteLines
    _reader: RequestReader
    _client: SlowClient

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],  # noqa: ARG002 - uvicorn gives what a lifespan left, and we have none
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limits: HttpLimits,
        hosts: Hosts,
        crowd: PeerConnections,
        unsent: UnsentAnswers,
        tell_refusal: TellRefusal = error_answer,
    ) -> None:
        self._app = cast("App", config.loaded_app)
        self._state = server_state
        self._connections = cast("set[LimitedProtocol]", server_state.connections)
        self._loop = _loop or asyncio.get_running_loop()
        self._limits = limits
        self._hosts = hosts
        self._crowd = crowd
        self._unsent = unsent
        self.tell_refusal = tell_refusal
        self._deadline = Deadline(self._loop)
        self.rest = Rest(self._loop, limits.keep_alive_seconds, self.close)
        self._ahead: deque[Cycle] = deque()
        self._running: Cycle | None = None
        self._peer: str | None = None
        self._is_turned_away = False
        self._is_read_paused = False
        self._is_lingering = False
        self._is_lost = False
        self._is_closed = False
        self._dropped_bytes = 0
        self.is_write_paused = False
        self.is_ending = False

    # the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, if there is room for it."""
        self.transport = transport = cast("asyncio.Transport", transport)
        # Bound once: these are called for every request.
        self.write, self.writelines, self.abort = transport.write, transport.writelines, transport.abort
        client = _place(transport.get_extra_info("peername"))
        server = _place(transport.get_extra_info("sockname"))
        self._client = SlowClient(transport, self._loop, self._limits.reader_seconds, self._unsent)
        self._reader = RequestReader(self, self._limits, self._hosts, self._deadline, client, server)
        self._connections.add(self)
        self._peer = self._crowd.enter(client)
        if len(self._connections) - self._crowd.turned_away > self._limits.max_connections:
            self._turn_away(503, "the server has as many connections as it may have")
        elif self._crowd.are_too_many(self._peer):
            self._turn_away(429, "this address has as many connections as one may have")
        else:
            self._reader.expect_head()

    def _turn_away(self, status: int, reason: str) -> None:
        """Refuse an excess connection. It no longer counts, so it takes no other connection's place."""
        is_told = self._crowd.turn_away(self._peer)
        self._peer = None
        self._is_turned_away = True
        if is_told:
            self.refuse(Refused(status, Code.TOO_MANY_REQUESTS, reason))
        else:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - it is over, whatever ended it
        """Tell all requests of this client that it has gone."""
        self._is_lost = True
        self._connections.discard(self)
        if self._is_turned_away:
            self._crowd.turned_away -= 1
        else:
            self._crowd.leave(self._peer)
        self._deadline.stop()
        self.rest.stop()
        if self._running is not None and not self._running.response_complete:
            self._running.lose_client()
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Read the bytes that came."""
        if self._is_lingering:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > LINGER_BYTES:
                self.abort()
            return
        self.rest.since = None
        try:
            self._reader.feed(data)
        except Refused as refused:
            self.refuse(refused)

    def pause_reading(self) -> None:
        """Stop reading: the client's bytes stay in the kernel."""
        if not self._is_read_paused:
            self._is_read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read again."""
        if self._is_read_paused:
            self._is_read_paused = False
            self.transport.resume_reading()

    # requests, one after another

    def begin(self, cycle: Cycle) -> None:
        """Run a request now, or after the earlier requests of the connection."""
        running = self._running
        if running is None or running.response_complete:
            self._run(cycle)
            return
        if len(self._ahead) >= self._limits.pipelined_requests:
            raise Refused(429, Code.TOO_MANY_REQUESTS, "too many requests were sent ahead of their answers")
        if not running.is_watched:
            self.pause_reading()
        self._ahead.append(cycle)

    def _run(self, cycle: Cycle) -> None:
        self._running = cycle
        tasks = self._state.tasks
        tasks.add(self._loop.create_task(cycle.run(self._app, tasks)))

    def is_running(self, cycle: Cycle) -> bool:
        """Whether this is the request that is being answered."""
        return cycle is self._running

    def answered(self) -> None:
        """Run the next request, if one was sent ahead."""
        self._state.total_requests += 1
        if self.is_closing:
            return
        if self._is_read_paused:
            self.resume_reading()
        if self._ahead:
            self._run(self._ahead.popleft())
            self._reader.expect_body()
        else:
            self.rest.begin()

    @property
    def default_headers(self) -> Sequence[Header]:
        """The headers of every answer: the date, which uvicorn updates every second."""
        return self._state.default_headers

    # answers that are not taken

    def pause_writing(self) -> None:
        """The client reads its answer more slowly than it is made."""
        self.is_write_paused = True
        self._client.fall_behind()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.is_write_paused = False
        self._client.catch_up()

    async def drain(self) -> None:
        """Wait until the client has read most of the written bytes, or has gone."""
        await self._client.wait()

    def hold_until_taken(self, room: Room) -> bool:
        """Keep the reserved memory of an answer until the client has read it; False when it has read nearly all, or has gone."""
        if self._is_lost or not self.is_write_paused:
            return False
        self._client.hold_until_taken(room)
        return True

    # the end

    @property
    def is_closing(self) -> bool:
        """Whether the connection is closing, so that nothing more is written."""
        return self._is_lingering or self.transport.is_closing()

    @property
    def is_gone(self) -> bool:
        """Whether the client did not get the answer: it had closed the connection, or had been refused already."""
        return self._is_lost or (self.is_closing and not self._is_closed)

    def close(self) -> None:
        """End when all is written; linger when the client still sends the request that was answered."""
        if self.is_closing:
            return
        self._is_closed = True
        last = self._reader.cycle
        if last is not None and last.more_body:
            self._linger()
        else:
            self.transport.close()
            self._client.watch_end()

    def refuse(self, refused: Refused) -> None:
        """Answer in place of the application, and read nothing more from this connection.

        No such answer is sent while an earlier request still waits for its answer, or after this one's answer has begun.
        """
        log.debug("a connection was refused", status=int(refused.status), reason=str(refused))
        running = self._running
        if running is None or running.response_complete:
            self.write(refused.response(self.tell_refusal))
        else:
            is_refused = running is self._reader.cycle and not self._reader.is_in_head
            may_answer = is_refused and not running.response_started
            running.lose_client()
            if may_answer:
                self.write(refused.response(self.tell_refusal))
        self._linger()

    def _linger(self) -> None:
        """Send the rest, end the stream, and let the client read both before the connection is closed."""
        self._is_lingering = True
        self.resume_reading()
        self.write = self.writelines = _drop
        if not self.transport.is_closing():
            with contextlib.suppress(OSError):  # the client has gone in the same moment
                self.transport.write_eof()
        self._deadline.set(LINGER_SECONDS, self._end)

    def _end(self) -> None:
        # As long as a large answer is being taken, that is watched instead.
        if self._client.is_watched:
            self._deadline.set(LINGER_SECONDS, self._end)
        else:
            self.abort()

    def shutdown(self) -> None:
        """Stop in order: a running request ends the connection with its answer; an idle connection ends now."""
        self.is_ending = True
        last = self._reader.cycle
        if self._is_lingering:
            self.abort()
        elif last is None or last.response_complete:
            self.close()
        else:
            last.keep_alive = False


def _place(address: object) -> Place | None:
    return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None


def _drop(data: Data | Iterable[Data]) -> None:
    """Drop bytes that are written after the end."""
