"""A client of the load as a process of its own, which may be killed or stopped in the midst of a call.

It gets its steps on stdin, and tells on stdout of each call before it is made, and of its answer. So a call that the process did not
survive is in the history: without an answer. Frames are a length of four bytes, and that many bytes of pickle.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any

from msgspec import Struct

from torture.history import Call
from torture.process import plain_environment

LENGTH_BYTES = 4
ROOT = Path(__file__).resolve().parents[1]


class ClientOrder(Struct, frozen=True):
    """What a process needs to know to be a client."""

    urls: list[str]
    name: str
    round: int
    seed: str
    bulk: int = 1
    may_lose: bool = False
    has_spark: bool = False


class Told(Struct):
    """One frame of a process: calls that have ended, those that are under way, and the step that was done, if one was."""

    ended: list[Call]
    begun: list[Call]
    step: str | None = None


class ClientProcess:
    """The process, as seen by the round. ``calls`` has what it told; one that was killed is followed by another."""

    def __init__(self, order: ClientOrder, log: Path) -> None:
        self._order = order
        self._log = log
        self._process: Process | None = None
        self._begun: list[Call] = []
        self.calls: list[Call] = []
        self.deaths = 0

    async def step(self, number: int) -> str:
        """Have it do one step of the plan; its name, or that the process did not survive it."""
        return await self._ask(("step", number))

    async def push_meanwhile(self, number: int, turn: int) -> None:
        await self._ask(("meanwhile", number, turn))

    async def _ask(self, what: tuple[object, ...]) -> str:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(frame(what))
            await process.stdin.drain()
            while True:
                size = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
                told: Told = pickle.loads(await process.stdout.readexactly(size))  # noqa: S301 - of a process that we started
                self.calls += told.ended
                self._begun = told.begun
                if told.step is not None:
                    return told.step
        except (asyncio.IncompleteReadError, OSError):
            await self._bury(process)
            return "killed"

    async def _start(self) -> Process:
        path = os.pathsep.join([str(ROOT), *sys.path])
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "torture.client_main"),
                env={**plain_environment(), "PYTHONPATH": path},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdin is not None
        self._process.stdin.write(frame(self._order))
        return self._process

    async def _bury(self, process: Process) -> None:
        """The process is dead: nobody knows what became of its calls."""
        code = await process.wait()
        if code != -signal.SIGKILL:
            raise RuntimeError(f"a client ended by itself: {self._log.read_text(errors='replace')[-2000:]}")
        self.calls += self._begun
        self._begun = []
        self._process = None
        self.deaths += 1

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def close(self) -> None:
        if self._process is not None:
            self.send(signal.SIGKILL)
            await self._process.wait()
            self._process = None


def frame(value: Any) -> bytes:
    data = pickle.dumps(value)
    return len(data).to_bytes(LENGTH_BYTES) + data
