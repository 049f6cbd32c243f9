"""The store as a worker sees it: every verb of the protocol is a call (RPC) to the owner, the process that opens the file.

When the owner goes away, the calls under way fail with STORE_UNAVAILABLE, and it is unknown whether they took effect, as with any
store that is lost during a commit. The next call connects again. This module does not know the meaning of any verb.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import msgspec

from skep.errors import Code, SkepError
from skep.model import QueueKey
from skep.model.chores import Connections
from skep.store.protocol import Store
from skep.store.remote.frames import ANNOUNCE, FAILED, HELLO, NEWS, OPERATIONS, RESULT, BadFrameError, Frames
from skep.store.remote.verbs import VERBS, VERSION, RemoteVerb, decoder, error_of

PATIENCE_SECONDS = 10.0
"""How long the owner may take to answer a new connection: it may be restarting."""
NUMBER_MAX = 2**32 - 1
CALLS_MAX = 1_024
"""How many calls of one worker may be under way; further calls wait here."""
AWAY = (
    "the process that has the SQLite file does not answer: it is being started again; if this stays so, the server's log says "
    "why it cannot be"
)
CUT = (
    "the socket {} has been deleted, by which workers reach the process that has the SQLite file: start the server anew, and have "
    "whatever deletes old files spare its folder"
)

Read: TypeAlias = Callable[[memoryview], Any]

_decode_keys = decoder(list[QueueKey])


class OwnerConnection:
    """One connection to the owner, and the calls that wait for its answers."""

    def __init__(self, on_news: Callable[[QueueKey], None], on_operations: Callable[[], None]) -> None:
        self.frames = Frames(self._received, self._lost)
        self._on_news = on_news
        self._on_operations = on_operations
        self._numbers = itertools.count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Read]] = {}

    def ask(self, kind: int, payload: bytes, read: Read) -> asyncio.Future[Any]:
        """Make a call; ``read`` decodes its answer."""
        future = asyncio.get_running_loop().create_future()
        if self.frames.closed:
            future.set_exception(SkepError(Code.STORE_UNAVAILABLE, AWAY))
            return future
        number = next(self._numbers) & NUMBER_MAX
        self._waiting[number] = future, read
        self.frames.send(number, kind, payload)
        return future

    def _received(self, number: int, kind: int, payload: memoryview) -> None:
        if kind == NEWS:
            for key in _decode_keys(payload):
                self._on_news(key)
        elif kind == OPERATIONS:
            self._on_operations()
        elif kind in (RESULT, FAILED) and number in self._waiting:
            self._answered(*self._waiting.pop(number), kind, payload)
        else:
            raise BadFrameError

    def _answered(self, future: asyncio.Future[Any], read: Read, kind: int, payload: memoryview) -> None:
        if future.done():  # its caller was cancelled
            return
        try:
            if kind == FAILED:
                future.set_exception(error_of(payload))
            else:
                future.set_result(read(payload))
        except msgspec.DecodeError as error:
            future.set_exception(SkepError(Code.INTERNAL, f"the store's answer cannot be read: {error}"))

    def _lost(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future, _ in waiting.values():
            if not future.done():
                future.set_exception(SkepError(Code.STORE_UNAVAILABLE, AWAY))


class RemoteStore:
    """Calls to the owner of a store. `remote_store` makes one, typed as `Store`."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._line: OwnerConnection | None = None
        self._connecting = asyncio.Lock()
        self._room = asyncio.Semaphore(CALLS_MAX)
        self._on_news: Callable[[QueueKey], None] = lambda _: None
        self._missed: Callable[[], None] = lambda: None
        self._on_operations: Callable[[], None] = lambda: None
        self._closed = False
        vars(self).update(self._calls(""))
        self.access = SimpleNamespace(**self._calls("access"))
        self.refusals = SimpleNamespace(**self._calls("refusals"))
        self.records = SimpleNamespace(**self._calls("records"))
        self.scheduled = SimpleNamespace(**self._calls("scheduled"))

    async def open(self) -> None:
        """Connect; STORE_UNAVAILABLE when the owner does not answer."""
        self._closed = False
        await self._connected()

    async def close(self) -> None:
        """Close the connection."""
        self._closed = True
        if self._line is not None:
            self._line.frames.close()

    def _calls(self, part: str) -> dict[str, Callable[..., Awaitable[Any]]]:
        """The verbs of a part of the store by name, each as a call to the owner."""
        return {verb.name: self._calling(verb) for verb in VERBS if verb.part == part}

    def _calling(self, verb: RemoteVerb) -> Callable[..., Awaitable[Any]]:
        async def call(*given: object, **named: object) -> Any:
            payload = verb.arguments(given, named)
            async with self._room:
                line = self._line
                if line is None or line.frames.closed:
                    line = await self._connected()
                return await line.ask(verb.number, payload, verb.decode_result)

        return call

    async def _connected(self) -> OwnerConnection:
        async with self._connecting:
            if self._closed:
                raise SkepError(Code.STOPPING, "the store is being closed")
            if self._line is not None and not self._line.frames.closed:
                return self._line
            was_connected = self._line is not None
            line = self._line = await self._connect()
        if was_connected:  # nobody was told of pushes meanwhile, and the owner does not know any more who watches
            self._missed()
        return line

    async def _connect(self) -> OwnerConnection:
        line = OwnerConnection(lambda key: self._on_news(key), lambda: self._on_operations())
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                loop = asyncio.get_running_loop()
                await loop.create_unix_connection(lambda: line.frames, str(self._socket))
                await line.ask(HELLO, VERSION, bytes)
        except BaseException as error:
            line.frames.close()
            if isinstance(error, FileNotFoundError):
                raise SkepError(Code.STORE_UNAVAILABLE, CUT.format(self._socket)) from None
            if isinstance(error, OSError | TimeoutError):
                raise SkepError(Code.STORE_UNAVAILABLE, AWAY) from None
            raise
        return line

    # verbs that are no calls

    @property
    def session(self) -> str:
        """Empty: a file has no sessions, as only the owner writes."""
        return ""

    def connections(self) -> Connections:
        """All zero: there is no pool, only one connection to the owner."""
        return Connections()

    def waited_seconds(self) -> float:
        """Always 0: a file does not keep calls waiting."""
        return 0.0

    def suspend(self) -> None:
        """Do nothing: there are no sessions."""

    async def resume(self) -> None:
        """Do nothing: there are no sessions to open."""

    async def fence(self, sessions: Sequence[str]) -> None:
        """Do nothing: calls that the owner has not done when it ends are never done."""

    # other workers

    def on_news(self, callback: Callable[[QueueKey], None], missed: Callable[[], None]) -> None:
        """Call ``callback`` when another worker made messages ready in a watched queue, and ``missed`` when the owner was away."""
        self._on_news, self._missed = callback, missed

    def announce_operations(self) -> None:
        """Tell the other workers that operations wait."""
        if self._line is not None:
            self._line.frames.send(0, ANNOUNCE, b"")

    def on_operations(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when another worker announced operations."""
        self._on_operations = callback


def remote_store(socket: Path) -> Store:
    """A store over a socket, not opened yet."""
    # Its verbs are made from the protocol, which the type checker does not see.
    return cast(Store, RemoteStore(socket))
