"""The simulated network: streams between servers and the owner of the store, and calls of clients to servers.

Whatever is sent takes a while, which is drawn. A stream keeps its bytes in order until it is cut. A call's request or answer may be lost,
and a client that has waited long enough hangs up, which the server notices, or not.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from skep.errors import SkepError
from tests.simulation.loop import Process, SimulatedLoop

T = TypeVar("T")


class NoAnswerError(Exception):
    """The client has waited long enough, or there is no server. Nobody knows whether the call took effect."""


@dataclass
class Weather:
    """How bad the network is: shares of calls, and seconds."""

    lost_requests: float = 0.0
    lost_answers: float = 0.0
    slow: float = 0.0
    """The share of what is sent that takes long."""
    slow_seconds: float = 1.0
    unnoticed: float = 0.5
    """The share of clients that hang up, which their server does not notice."""
    store_is_away: bool = False
    """Whether no server reaches the owner of the store."""
    cut_pairs: set[tuple[Process, Process]] = field(default_factory=set)
    """Who cannot reach whom at present."""

    def clear_up(self) -> None:
        """From now on nothing is lost or slow."""
        self.lost_requests = self.lost_answers = self.slow = 0.0
        self.store_is_away = False
        self.cut_pairs.clear()


class Network:
    """All streams and calls."""

    def __init__(self, loop: SimulatedLoop, weather: Weather) -> None:
        self.loop = loop
        self.weather = weather
        self.streams: list[Stream] = []
        self._listener: tuple[Process, Callable[[], asyncio.BaseProtocol]] | None = None
        self.listening_as: Process | None = None
        self.arrivals_left = 0
        self.at_last_arrival: Callable[[Stream], None] | None = None
        """Happens instead of the arrival of bytes after so many more: what is under way then gets no answer."""
        loop.connect = self._connect
        loop.listen = self._listen

    def delay(self) -> float:
        """How long something takes from one process to another."""
        random = self.loop.random
        if self.weather.slow and random.random() < self.weather.slow:
            return random.random() * self.weather.slow_seconds
        return 0.0001 + random.random() * 0.002

    def _listen(self, factory: Callable[[], asyncio.BaseProtocol]) -> Listener:
        assert self.listening_as is not None
        self._listener = (self.listening_as, factory)
        return Listener()

    async def _connect(
        self, factory: Callable[[], asyncio.BaseProtocol], _path: str
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        here = self.loop.current
        await self.loop.passed(self.delay())
        if self._listener is None or self._listener[0].dead or self.weather.store_is_away:
            raise ConnectionRefusedError("the owner does not listen")
        there, accept = self._listener
        stream = Stream(self, here, there)
        self.streams.append(stream)
        self.loop.call_soon(stream.there.accept, accept, context=there.context())
        stream.here.protocol = factory()
        stream.here.protocol.connection_made(stream.here)
        return stream.here, stream.here.protocol

    def strikes(self, stream: Stream) -> bool:
        """Whether a fault comes instead of an arrival."""
        if self.at_last_arrival is None:
            return False
        self.arrivals_left -= 1
        if self.arrivals_left > 0:
            return False
        strike, self.at_last_arrival = self.at_last_arrival, None
        strike(stream)
        return True

    def lose_store(self) -> None:
        """Cut all streams, and let no server connect until further notice."""
        self.weather.store_is_away = True
        for stream in list(self.streams):
            stream.cut()

    def lost(self, process: Process) -> None:
        """Cut the streams of a process that died."""
        for stream in list(self.streams):
            if process in (stream.here.process, stream.there.process):
                stream.cut()


class Listener:
    """What listening gives back."""

    def close(self) -> None:
        """Nothing to close."""


class Stream:
    """Two ends of a connection. Bytes arrive in order, some time after they were written, unless it was cut meanwhile."""

    def __init__(self, network: Network, here: Process, there: Process) -> None:
        self.network = network
        self.here, self.there = End(self, here), End(self, there)
        self.here.peer, self.there.peer = self.there, self.here

    def cut(self) -> None:
        """End it for both, with what is on its way."""
        if self in self.network.streams:
            self.network.streams.remove(self)
            for end in (self.here, self.there):
                end.is_cut = True
                self.network.loop.call_later(self.network.delay(), end.tell_lost, context=end.process.context())


class End(asyncio.Transport):
    """One end of a stream."""

    peer: End

    def __init__(self, stream: Stream, process: Process) -> None:
        super().__init__()
        self.process = process
        self.protocol: Any = None
        self.is_cut = False
        self._stream = stream
        self._closing = False
        self._told = False
        self._last_arrival = 0.0

    def accept(self, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        """Begin, on the side that listens."""
        self.protocol = factory()
        self.protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self.is_cut:
            return
        network = self._stream.network
        self._last_arrival = max(self._last_arrival, network.loop.time() + network.delay())
        network.loop.call_at(self._last_arrival, self.peer.arrived, bytes(data), context=self.peer.process.context())

    def arrived(self, data: bytes) -> None:
        """Hand bytes on, in this end's process; now and then in two parts."""
        if self.is_cut or self._closing or self._stream.network.strikes(self._stream):
            return
        random = self._stream.network.loop.random
        parts = random.randrange(len(data)) if random.random() < 0.1 else 0
        for part in (data[:parts], data[parts:]):
            if part and not self._closing:
                self.protocol.data_received(part)

    def is_closing(self) -> bool:
        return self._closing or self._told

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            network = self._stream.network
            if self._stream in network.streams:
                network.streams.remove(self._stream)
            network.loop.call_soon(self.tell_lost)
            at = max(self._last_arrival, network.loop.time())
            network.loop.call_at(at, self.peer.tell_lost, context=self.peer.process.context())

    abort = close

    def tell_lost(self) -> None:
        """Tell the protocol, once, that the connection is over."""
        if not self._told:
            self._told = True
            self.is_cut = True
            if self.protocol is not None:
                self.protocol.connection_lost(None)


@dataclass(eq=False)
class ClientCall(Generic[T]):
    """One call of a client on its way to a server and back. ``undo`` is for an answer that can reach nobody."""

    network: Network
    client: Process
    server: Process
    work: Callable[[], Awaitable[T]]
    undo: Callable[[T], None]
    context: contextvars.Context
    _answer: asyncio.Future[T | SkepError] = field(init=False)
    _task: asyncio.Task[None] | None = None
    _hung_up: bool = False

    async def answer(self, patience_seconds: float) -> T:
        """Send it, and wait for the answer; NoAnswerError when none comes in time."""
        loop, weather = self.network.loop, self.network.weather
        self._answer = loop.create_future()
        if not self._is_lost(weather.lost_requests):
            loop.call_later(self.network.delay(), self._arrived, context=self.context)
        try:
            async with asyncio.timeout(patience_seconds):
                answer = await self._answer
        except TimeoutError:
            if loop.random.random() >= weather.unnoticed:
                loop.call_later(self.network.delay(), self._hang_up, context=self.server.context())
            raise NoAnswerError from None
        if isinstance(answer, SkepError):
            raise answer
        return answer

    def _is_lost(self, share: float) -> bool:
        weather = self.network.weather
        cut = (self.client, self.server) in weather.cut_pairs
        return cut or (bool(share) and self.network.loop.random.random() < share)

    # in the server

    def _arrived(self) -> None:
        self._task = self.network.loop.create_task(self._work())

    async def _work(self) -> None:
        answer: T | SkepError
        try:
            answer = await self.work()
        except SkepError as error:
            answer = error
        if self._hung_up:
            if not isinstance(answer, SkepError):
                self.undo(answer)
        elif not self._is_lost(self.network.weather.lost_answers):
            self.network.loop.call_later(self.network.delay(), self._came, answer, context=self.client.context())

    def _hang_up(self) -> None:
        self._hung_up = True
        if self._task is not None:
            self._task.cancel()

    # in the client

    def _came(self, answer: T | SkepError) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)
