"""Calls that wait for a connection, and the reader: a thread with a connection of its own, which takes calls one by one.

So a long read does not delay the writer.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import apsw
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.store.sqlite.connection import store_error
from skep.store.sqlite.session import Session

T = TypeVar("T")
Piece = Callable[[Session, int], T]
"""A piece of a chore; its second argument is how many messages it may touch."""


class StoreCall(Struct, frozen=True):
    """Work for a session, and the future of its caller. ``bare`` work runs outside a transaction, ``long`` work in the thread."""

    work: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]
    bare: bool = False
    long: bool = False


class CallOutcome(Struct, frozen=True):
    """The result or the error of a call, and the future of its caller."""

    future: asyncio.Future[Any]
    value: Any
    error: Exception | None


def deliver(answers: list[CallOutcome]) -> None:
    """Answer callers; runs on the event loop's thread."""
    for answer in answers:
        future = answer.future
        if future.done():
            continue  # the caller was cancelled and no longer waits
        if answer.error is None:
            future.set_result(answer.value)
        else:
            future.set_exception(answer.error)


def translated(error: Exception, path: str) -> Exception:
    """The error for the caller: an SQLite error becomes a `SkepError`."""
    return store_error(error, path) if isinstance(error, apsw.Error) else error


class Reader:
    """A thread with a connection that reads committed snapshots, one call at a time."""

    def __init__(self, name: str, path: str, connect: Callable[[], Session]) -> None:
        self._path = path
        self._connect = connect
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[StoreCall | None] = queue.SimpleQueue()
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def start(self) -> None:
        """Connect in the thread; raises what connecting raised."""
        self._thread.start()
        await self._opened

    async def stop(self) -> None:
        """Finish waiting calls, then close the connection."""
        if not self._stopping:
            self._stopping = True
            self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def call(self, work: Callable[..., T], arguments: tuple[Any, ...] = ()) -> asyncio.Future[T]:
        """Run ``work`` in the thread, with a session and these arguments, on one snapshot."""
        if self._stopping:
            raise SkepError(Code.STOPPING, f"{self._path} is being closed")
        future: asyncio.Future[T] = self._loop.create_future()
        self._calls.put(StoreCall(work, arguments, future))
        return future

    # in the thread

    def _run(self) -> None:
        try:
            session = self._connect()
        except Exception as error:
            self._tell(CallOutcome(self._opened, None, translated(error, self._path)))
            return
        self._tell(CallOutcome(self._opened, None, None))
        try:
            while (call := self._calls.get()) is not None:
                self._tell(self._snapshot(session, call))
        finally:
            session.db.close()

    def _snapshot(self, session: Session, call: StoreCall) -> CallOutcome:
        session.forget()
        try:
            session.db.execute("BEGIN")
            try:
                return CallOutcome(call.future, call.work(session, *call.arguments), None)
            finally:
                session.db.execute("ROLLBACK")
        except Exception as error:
            return CallOutcome(call.future, None, translated(error, self._path))

    def _tell(self, answer: CallOutcome) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(deliver, [answer])
