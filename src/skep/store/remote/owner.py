"""The one process that opens an SQLite file, for the workers that share it: it performs their calls, and announces changes to them.

It takes all waiting calls of all workers, and its store commits them together. Each call is answered after its commit (I1). When one
worker's call makes messages ready, other workers that wait for them are told in the same pass.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import msgspec
import structlog

from skep.clock import Clock, Instant
from skep.errors import Code, SkepError
from skep.model import QueueKey
from skep.model.chores import Chore
from skep.store.protocol import Store
from skep.store.remote.events import Events
from skep.store.remote.frames import ANNOUNCE, FAILED, HELLO, NEWS, OPERATIONS, RESULT, BadFrameError, Frames
from skep.store.remote.news import CHANGED, READY
from skep.store.remote.verbs import VERBS, VERSION, RemoteVerb, encode, failure_of
from skep.store.remote.watched import Watched

LED: dict[str, Chore | None] = {"put_right": Chore(), "sample": None, "sweep": Chore(), "maintain": None}
"""Chores of the whole store. They are done for the first worker; the others get the answer that there was nothing to do."""

log = structlog.get_logger("skep.store.owner")


class WorkerConnection:
    """A worker's connection: the queues it watches, and the news for it."""

    def __init__(self, owner: Owner) -> None:
        self.frames = Frames(self._received, lambda: owner.left(self))
        self.watched = Watched()
        self._owner = owner
        self._is_known = False
        self._news: set[QueueKey] = set()

    def tell(self, key: QueueKey) -> None:
        """Tell the worker, once in this pass, that a queue has ready messages."""
        if not self._news:
            asyncio.get_running_loop().call_soon(self._tell_all)
        self._news.add(key)

    def _tell_all(self) -> None:
        news, self._news = self._news, set()
        self.frames.send(0, NEWS, encode(list(news)))

    def _received(self, number: int, kind: int, payload: memoryview) -> None:
        if not self._is_known:
            self._greeted(number, kind, payload)
        elif kind == ANNOUNCE:
            self._owner.announce_operations(self)
        elif kind < len(VERBS):
            self._owner.take(self, number, VERBS[kind], payload)
        else:
            log.warning("a worker asked for something unknown, and its connection is closed", kind=kind)
            raise BadFrameError

    def _greeted(self, number: int, kind: int, payload: memoryview) -> None:
        if kind != HELLO:
            raise BadFrameError
        if payload != VERSION:
            message = "this worker is of another version than the process that has the store: start the server anew"
            self.frames.send(number, FAILED, failure_of(SkepError(Code.STORE_UNAVAILABLE, message)))
            return
        self._is_known = True
        self._owner.joined(self)
        self.frames.send(number, RESULT, b"")


class Owner:
    """Serves an open store to the workers that connect."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._events = Events(store)
        self._workers: dict[WorkerConnection, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._left = asyncio.Event()

    async def listen(self, listening: socket.socket) -> None:
        """Accept connections on this socket."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(lambda: WorkerConnection(self).frames, sock=listening)

    async def idle(self) -> None:
        """Return once no worker is connected and all their calls are done."""
        while self._workers:
            self._left.clear()
            await self._left.wait()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Accept no more connections, end the present ones, and finish the calls under way."""
        if self._server is not None:
            self._server.close()
        for worker in list(self._workers):
            worker.frames.close()
        await self.idle()

    def joined(self, worker: WorkerConnection) -> None:
        """Note that a worker has connected."""
        self._workers[worker] = None

    def left(self, worker: WorkerConnection) -> None:
        """Note that a worker has gone. Its calls are still performed, and its leases run out like any others."""
        self._workers.pop(worker, None)
        self._left.set()

    def take(self, worker: WorkerConnection, number: int, verb: RemoteVerb, payload: memoryview) -> None:
        """Begin to perform a worker's call."""
        try:
            arguments = verb.decode_arguments(payload)
        except msgspec.DecodeError as error:
            refusal = SkepError(Code.INTERNAL, f"the store was asked for {verb} with what it does not take: {error}")
            worker.frames.send(number, FAILED, failure_of(refusal))
            return
        task = asyncio.get_running_loop().create_task(self._do(worker, number, verb, arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _do(self, worker: WorkerConnection, number: int, verb: RemoteVerb, arguments: Any) -> None:
        try:
            result = await self._done(worker, verb, arguments)
            kind, answer = RESULT, encode(result)
        except SkepError as error:
            kind, answer = FAILED, failure_of(error)
        except Exception as error:
            log.exception("a call of a worker failed", verb=str(verb))
            kind, answer = FAILED, failure_of(SkepError(Code.INTERNAL, f"{type(error).__name__}: {error}"))
        worker.frames.send(number, kind, answer)

    async def _done(self, worker: WorkerConnection, verb: RemoteVerb, arguments: Any) -> Any:
        name = str(verb)
        if name == "watch":
            keys, until = arguments
            return worker.watched.add(keys, until, self._clock.now())
        if name == "system_events":
            return await self._events.after(*arguments)
        if name in LED and worker is not next(iter(self._workers), worker):
            return LED[name]
        result = await verb.called(self._store, arguments)
        if name in READY and len(self._workers) > 1:
            self._tell(worker, set(READY[name](arguments, result)), self._clock.now())
        if name in CHANGED and (noted := CHANGED[name](arguments, result)) is not None:
            self._events.note(*noted)
        return result

    def _tell(self, worker: WorkerConnection, keys: set[QueueKey], now: Instant) -> None:
        for other in self._workers:
            if other is not worker:
                for key in keys:
                    if other.watched.has(key, now):
                        other.tell(key)

    def announce_operations(self, worker: WorkerConnection) -> None:
        """Tell the other workers that operations wait."""
        for other in self._workers:
            if other is not worker:
                other.frames.send(0, OPERATIONS, b"")
