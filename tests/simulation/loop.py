"""A deterministic event loop: many processes in one thread, on a simulated clock, interleaved by a seed.

A process has a queue of callbacks, which run in order, as asyncio promises to each of its programs. Which process runs next is drawn. Time
stands still while anybody has something to do; then it jumps to the next timer. So a seed decides everything, and waiting costs nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import warnings
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random
from typing import Any, TypeVar, TypeVarTuple, cast

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 500_000
"""More callbacks than any run needs: a run with more goes round in circles."""
TRACE_MASK = (1 << 64) - 1

Connected = Callable[[Callable[[], asyncio.BaseProtocol], str], Awaitable[tuple[asyncio.Transport, Any]]]
Listening = Callable[[Callable[[], asyncio.BaseProtocol]], Any]


class StuckError(Exception):
    """Nobody can go on, or everybody goes on for ever."""


class Turn(asyncio.Handle):
    """A callback that waits for its turn, made with as little work as possible: a run has thousands."""

    __slots__ = ("_when",)

    _callback: Any
    _args: Any
    _context: contextvars.Context

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context, when: float = 0.0
    ) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._cancelled = False
        self._when = when

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None

    def when(self) -> float:
        """The time of a timer."""
        return self._when


class Process:
    """A program with its callbacks. It dies between two of them, and can be stopped for a while, as by SIGSTOP."""

    def __init__(self, number: int, name: str, busy: list[Process]) -> None:
        self.name = name
        self.number = number
        self.ready: deque[Turn] = deque()
        self.dead = False
        self.runs = True
        """Whether it is neither dead nor stopped."""
        self._busy = busy
        self.callbacks_left: int | None = None
        """After so many callbacks it dies; None when nobody wants its life."""
        self.on_death: Callable[[], None] = lambda: None
        self._context = contextvars.copy_context()
        self._context.run(_PROCESS.set, self)

    def context(self) -> contextvars.Context:
        """A context for something new in this process."""
        return self._context.copy()

    def add(self, turn: Turn) -> None:
        """Let a callback wait for its turn."""
        if not self.ready and self.runs:
            self._busy.append(self)
        self.ready.append(turn)

    def stop(self) -> None:
        """Do nothing until it goes on."""
        self.runs = False
        if self in self._busy:
            self._busy.remove(self)

    def go_on(self) -> None:
        """Go on after a stop."""
        if not self.runs and not self.dead:
            self.runs = True
            if self.ready:
                self._busy.append(self)

    def kill(self) -> None:
        """End it at once. What it had in memory is gone, and what it had begun is never finished."""
        if not self.dead:
            self.stop()
            self.dead = True
            self.on_death()


_PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of all processes. There are no threads, no sockets and no real time."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self.random = random
        self.connect: Connected | None = None
        self.listen: Listening | None = None
        self.steps = 0
        self.trace = 0
        """A number that follows from every step so far: runs with the same trace were the same."""
        self.failures: list[str] = []
        self.processes: list[Process] = []
        self._busy: list[Process] = []
        """The processes that have a callback to run."""
        self._now = 0.0
        self._nanoseconds = 0
        self._timers: list[tuple[float, int, Turn, Process]] = []
        self._order = count()
        self._outside = self.process("outside")

    def process(self, name: str) -> Process:
        """A new process."""
        process = Process(len(self.processes), name, self._busy)
        self.processes.append(process)
        return process

    @property
    def current(self) -> Process:
        """The process that runs now."""
        return _PROCESS.get(self._outside)

    def nanoseconds(self) -> int:
        """The simulated time, as the system's clocks tell it."""
        return self._nanoseconds

    async def passed(self, seconds: float) -> None:
        """Return when so much simulated time has passed."""
        over: asyncio.Future[None] = self.create_future()
        self.call_later(seconds, _end, over)
        await over

    # what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None, **_: Any) -> asyncio.Task[Any]:
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        if context is None:
            context = contextvars.copy_context()
        turn = Turn(callback, args, context)
        context.get(_PROCESS, self._outside).add(turn)
        return turn

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        if context is None:
            context = contextvars.copy_context()
        turn = Turn(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._order), turn, context.get(_PROCESS, self._outside)))
        return cast(asyncio.TimerHandle, turn)  # which has all that anybody asks of one

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        """Run it here: there are no threads."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    async def create_unix_connection(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: str | None = None, **_: Any
    ) -> tuple[asyncio.Transport, Any]:
        assert self.connect is not None
        return await self.connect(protocol_factory, path or "")

    async def create_unix_server(  # type: ignore[override] # nobody uses more of what it gives back
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], path: str | None = None, **_: Any
    ) -> Any:
        assert self.listen is not None
        return self.listen(protocol_factory)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    # running

    def play(self, future: Awaitable[T]) -> T:
        """Run everybody until the future is done."""
        asyncio._set_running_loop(self)
        try:
            task = asyncio.ensure_future(future, loop=self)
            while not task.done():
                self._step()
            return task.result()
        finally:
            asyncio._set_running_loop(None)

    def _step(self) -> None:
        """Run one callback of one process that has any; or let time pass until somebody has."""
        busy = self._busy
        if not busy:
            self._pass_time()
            return
        process = busy[int(self.random.random() * len(busy))] if len(busy) > 1 else busy[0]
        ready = process.ready
        turn = ready.popleft()
        if not ready:
            busy.remove(process)
        if turn._cancelled:
            return
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise StuckError(f"more than {STEPS_MAX} callbacks")
        self.trace = (self.trace * 1_000_003 + process.number + self._nanoseconds) & TRACE_MASK
        try:
            turn._context.run(turn._callback, *turn._args)
        except Exception as error:
            self.call_exception_handler({"message": f"{turn._callback!r} failed", "exception": error})
        if process.callbacks_left is not None:
            process.callbacks_left -= 1
            if process.callbacks_left < 0:
                process.callbacks_left = None
                process.kill()

    def _pass_time(self) -> None:
        """Let it be the time of the next timer."""
        timers = self._timers
        if not timers:
            raise StuckError("everybody waits, and nothing can happen any more")
        self._now = now = max(self._now, timers[0][0])
        self._nanoseconds = round(now * 1_000_000_000)
        while timers and timers[0][0] <= now:
            _, _, turn, process = heapq.heappop(timers)
            if not turn._cancelled:
                process.add(turn)

    def bury(self) -> None:
        """End what is left of all processes, the dead ones too, so that nothing is left to complain later."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # some had not even begun
            self._end_all()

    def _end_all(self) -> None:
        failures = len(self.failures)
        asyncio._set_running_loop(self)
        try:
            for process in self.processes:
                process.dead = False
                process.go_on()
                process.callbacks_left = None
            while left := asyncio.all_tasks(self):
                for task in left:
                    task.cancel()
                while self._busy:
                    self._step()
        finally:
            asyncio._set_running_loop(None)
            del self.failures[failures:]
            self.close()
