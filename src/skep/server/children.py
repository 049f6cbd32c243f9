"""Child processes: started with an order on stdin, replaced when they end, and stopped together.

A child stops in order when its stdin ends: its parent told it to stop, or has gone (`skep.runtime.child`).
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

STEADY_SECONDS = 10.0
"""A child that lived this long did not die of its start; its successor is started at once."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0


class Child(NamedTuple):
    """A process; its name is never another's."""

    name: str
    process: Process

    async def is_ready(self) -> bool:
        """Wait until the child says that it is ready; False when it ended before."""
        return self.process.stdout is None or bool(await self.process.stdout.readline())

    def stop(self) -> None:
        """Tell it to stop in order: it finishes its running work."""
        # Not by a signal: a service manager that stops all processes has sent one already, and a second one means "now".
        assert self.process.stdin is not None
        self.process.stdin.close()

    def kill(self) -> None:
        """End it now."""
        # Through the process, which knows when it was waited for; its number may then be another's.
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()


class Children:
    """Processes with the same order, kept running until they are told to stop."""

    def __init__(self, log: Any, replaced: str) -> None:
        """``replaced`` is the log line for a child that ended and is replaced."""
        self.stopping = asyncio.Event()
        self._log = log
        self._replaced = replaced
        self._running: set[Child] = set()

    async def start(
        self, name: str, module: str, order: msgspec.Struct, sockets: Sequence[int] = (), *, says_ready: bool = True
    ) -> Child:
        """Start a module with an order; it inherits these sockets."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stdin=PIPE, stdout=PIPE if says_ready else None, pass_fds=sockets,
            # In a group of its own: Ctrl-C on a terminal reaches this process only, which passes it on once.
            process_group=0,
        )  # fmt: skip
        child = Child(name, process)
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        self._running.add(child)
        if self.stopping.is_set():
            child.stop()
        return child

    async def keep(
        self, child: Child, start: Callable[[], Awaitable[Child]], ended: Callable[[Child], None] | None = None
    ) -> None:
        """Replace a child whenever it ends, after a pause that grows while its successors end soon as well."""
        pause = 0.0
        while True:
            started = time.monotonic()
            status = await child.process.wait()
            self._running.discard(child)
            if ended is not None:
                ended(child)
            if self.stopping.is_set():
                return
            is_steady = time.monotonic() - started >= STEADY_SECONDS
            pause = 0.0 if is_steady else _longer(pause)
            self._log.warning(self._replaced, pid=child.process.pid, status=status)
            while not await self._stops_within(pause):
                try:
                    child = await start()
                except OSError as error:  # the system has no memory or no number for another process just now
                    pause = _longer(pause)
                    self._log.warning("a process could not be started", error=str(error), again_in_seconds=pause)
                else:
                    break
            else:
                return
            await child.is_ready()

    async def _stops_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), seconds)
        return self.stopping.is_set()

    def stop(self) -> None:
        """Tell all to stop in order, and replace none."""
        self.stopping.set()
        for child in self._running:
            child.stop()

    def kill(self) -> None:
        """End all now, and replace none."""
        self.stopping.set()
        for child in self._running:
            child.kill()


def _longer(pause: float) -> float:
    return min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
