"""Connections to one server over plain ``http://``, kept open from one request to the next. One class for threads, one for asyncio.

A connection has one request at a time. A connection is used again only after a whole answer. After a failure, a timeout or a cancelled call
more bytes of the old answer may come, so it is closed.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import cast
from weakref import WeakKeyDictionary, finalize

from skep.client.exchange import ApiResponse
from skep.client.http1 import AnswerReader, BrokenAnswerError

IDLE_SECONDS = 60.0
"""A connection that was idle for longer is not used again: a proxy or firewall may have dropped it."""
MAX_IDLE = 256
"""The largest number of idle connections that are kept. Any number may be in use."""
RECEIVE_BYTES = 64 * 1024
JOINED_BYTES = 64 * 1024
"""A body up to this size is sent in one piece with its head."""


class NoAnswerError(Exception):
    """No answer came. ``sent`` is false when there was no connection, and so nothing was sent."""

    def __init__(self, why: str, *, sent: bool) -> None:
        super().__init__(why)
        self.sent = sent


class SyncConnections:
    """Connections for threads. Any number of threads may share them."""

    def __init__(self, host: str, port: int, connect_seconds: float) -> None:
        self._address = (host, port)
        self._connect_seconds = connect_seconds
        self._idle: list[tuple[socket.socket, float]] = []
        self._busy: set[socket.socket] = set()
        self._process = os.getpid()
        finalize(self, _close_idle, self._idle)  # should nobody close the client

    def ask(self, method: str, head: bytes, body: bytes | None, seconds: float) -> ApiResponse:
        """Send a request and wait for its answer; NoAnswerError when none comes within the time."""
        deadline = time.monotonic() + seconds
        connection = self._taken() or self._connected(seconds)
        self._busy.add(connection)
        reader = AnswerReader(method)
        try:
            answer = _exchange(connection, reader, head, body, deadline)
        except (OSError, BrokenAnswerError) as error:
            _close(connection)
            raise NoAnswerError(_reason(error), sent=True) from error
        except BaseException:
            _close(connection)
            raise
        finally:
            self._busy.discard(connection)
        if reader.reusable and len(self._idle) < MAX_IDLE:
            self._idle.append((connection, time.monotonic()))
        else:
            _close(connection)
        return answer

    def close(self) -> None:
        """Close all connections; running requests get no answer."""
        _close_idle(self._idle)
        for connection in list(self._busy):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _taken(self) -> socket.socket | None:
        """An open, idle connection, if there is one."""
        if self._process != os.getpid():  # a forked process must not talk over its parent's
            self._process = os.getpid()
            self._busy.clear()
            _close_idle(self._idle)
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                return None
            if time.monotonic() - since < IDLE_SECONDS and not _has_something(connection):
                return connection
            connection.close()
        return None

    def _connected(self, seconds: float) -> socket.socket:
        try:
            connection = socket.create_connection(self._address, min(self._connect_seconds, seconds))
        except OSError as error:
            raise NoAnswerError(_reason(error), sent=False) from error
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _close_idle(idle: list[tuple[socket.socket, float]]) -> None:
    while idle:
        with suppress(IndexError):  # another thread took it
            idle.pop()[0].close()


def _exchange(
    connection: socket.socket, reader: AnswerReader, head: bytes, body: bytes | None, deadline: float
) -> ApiResponse:
    unsent = _send(connection, head, body, deadline)
    while True:
        connection.settimeout(_left(deadline))
        try:
            data = connection.recv(RECEIVE_BYTES)
        except OSError as error:
            raise (error if unsent is None else unsent) from None
        if not data:
            if unsent is not None:
                raise unsent
            return reader.ended()
        if (answer := reader.feed(data)) is not None:
            reader.reusable = reader.reusable and unsent is None
            return answer


def _send(connection: socket.socket, head: bytes, body: bytes | None, deadline: float) -> OSError | None:
    """Send the request; return the error when that failed. The server may have answered before it had the whole request, and closed."""
    try:
        connection.settimeout(_left(deadline))
        if body is None or len(body) <= JOINED_BYTES:
            connection.sendall(head + body if body else head)
        else:
            connection.sendall(head)
            connection.settimeout(_left(deadline))
            connection.sendall(body)
    except TimeoutError:
        raise
    except OSError as error:
        return error
    return None


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _has_something(connection: socket.socket) -> bool:
    """Whether there is something to read from a connection that was not asked anything: nearly always its end."""
    try:
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([connection], [], [], 0)[0])
    except (OSError, ValueError):
        return True


def _close(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.close()


class AsyncConnections:
    """Connections for asyncio. Each event loop has connections of its own."""

    def __init__(self, host: str, port: int, connect_seconds: float) -> None:
        self._address = (host, port)
        self._connect_seconds = connect_seconds
        self._pools: WeakKeyDictionary[asyncio.AbstractEventLoop, _Pool] = WeakKeyDictionary()

    async def ask(self, method: str, head: bytes, body: bytes | None, seconds: float) -> ApiResponse:
        """Send a request and wait for its answer; NoAnswerError when none comes within the time."""
        loop = asyncio.get_running_loop()
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = _Pool()
            await pool.end_with_loop()
        began = loop.time()
        connection = pool.taken(began)
        if connection is None:
            connection = await self._connected(loop, pool, seconds)
            seconds -= loop.time() - began
        try:
            return await connection.ask(loop, method, head, body, seconds)
        except (OSError, BrokenAnswerError) as error:
            raise NoAnswerError(_reason(error), sent=True) from error

    async def close(self) -> None:
        """Close all connections; running requests get no answer."""
        here = asyncio.get_running_loop()
        for loop, pool in list(self._pools.items()):
            if loop is here:
                await pool.end()
            else:
                with suppress(RuntimeError):  # that loop is closed, and so are its connections
                    loop.call_soon_threadsafe(pool.abort)

    async def _connected(self, loop: asyncio.AbstractEventLoop, pool: _Pool, seconds: float) -> _Connection:
        try:
            async with asyncio.timeout(min(self._connect_seconds, seconds)):
                _, connection = await loop.create_connection(lambda: _Connection(pool), *self._address)
        except OSError as error:
            raise NoAnswerError(_reason(error), sent=False) from error
        return connection


class _Pool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.open: set[_Connection] = set()
        self.idle: list[_Connection] = []
        self._guard: AsyncIterator[None] | None = None

    async def end_with_loop(self) -> None:
        """Close all connections before the loop ends: a loop closes its asynchronous generators then."""
        self._guard = self._until_shutdown()
        await anext(self._guard)

    async def _until_shutdown(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.end()

    async def end(self) -> None:
        """Close all connections."""
        self.abort()
        await asyncio.sleep(0)  # the loop closes sockets in its next round, which may be its last

    def abort(self) -> None:
        """Let the loop close all connections."""
        for connection in list(self.open):
            connection.abort()

    def taken(self, now: float) -> _Connection | None:
        """An open, idle connection, if there is one."""
        while self.idle:
            connection = self.idle.pop()
            if now - connection.idle_since < IDLE_SECONDS and not connection.is_closing:
                return connection
            connection.abort()
        return None


class _Connection(asyncio.Protocol):
    """One connection, which is idle or waits for the answer to one request."""

    def __init__(self, pool: _Pool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[ApiResponse] | None = None
        self._reader: AnswerReader | None = None
        self.idle_since = 0.0

    async def ask(
        self, loop: asyncio.AbstractEventLoop, method: str, head: bytes, body: bytes | None, seconds: float
    ) -> ApiResponse:
        """Send a request and wait for its answer. The connection is closed unless the answer came whole."""
        transport = cast("asyncio.Transport", self._transport)
        waiting: asyncio.Future[ApiResponse] = loop.create_future()
        self._answer = waiting
        self._reader = AnswerReader(method)
        if body is None or len(body) <= JOINED_BYTES:
            transport.write(head + body if body else head)
        else:
            transport.writelines([head, body])
        timer = loop.call_later(seconds, _late, waiting)
        try:
            answer = await waiting
        except BaseException:
            self.abort()
            raise
        finally:
            timer.cancel()
            self._answer = None
        if self._reader.reusable and not self.is_closing and not transport.get_write_buffer_size():
            self.idle_since = loop.time()
            self._pool.idle.append(self)
        else:
            self.abort()
        return answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._pool.open.add(self)

    def data_received(self, data: bytes) -> None:
        """Bytes came: a part of an answer, or unasked."""
        waiting, reader = self._answer, self._reader
        if waiting is None or reader is None or waiting.done():
            self.abort()
            return
        try:
            answer = reader.feed(data)
        except BrokenAnswerError as error:
            waiting.set_exception(error)
            return
        if answer is not None:
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._pool.open.discard(self)
        with suppress(ValueError):
            self._pool.idle.remove(self)
        waiting, reader = self._answer, self._reader
        if waiting is None or reader is None or waiting.done():
            return
        try:
            if exc is not None:
                raise BrokenAnswerError(_reason(exc)) from exc
            waiting.set_result(reader.ended())
        except BrokenAnswerError as error:
            waiting.set_exception(error)

    @property
    def is_closing(self) -> bool:
        """Whether it is closed, or about to be."""
        return self._transport is None or self._transport.is_closing()

    def abort(self) -> None:
        """Close it without ado."""
        if self._transport is not None:
            self._transport.abort()


def _late(waiting: asyncio.Future[ApiResponse]) -> None:
    if not waiting.done():
        waiting.set_exception(TimeoutError())


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "operation timed out"
    return str(error) or type(error).__name__
