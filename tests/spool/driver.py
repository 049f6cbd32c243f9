"""Short words for what tests of the spool do all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from skep.clock import ManualClock
from skep.config import EngineSettings, SpoolSettings
from skep.crypto.master import MasterKeys
from skep.engine import Engine
from skep.engine.push.spool.spool import SpoolFigures, SpoolState
from skep.ids import IdMint
from skep.model import MessageFilter, NewMessage, PushOutcome, PushResult, QueueKey
from tests.spool.outage import CutOff
from tests.support.waiting import until_so

PATIENCE_SECONDS = 30


class SpoolDriver:
    """An engine with a spool, its clock, and its store."""

    def __init__(self, store: CutOff, clock: ManualClock, folder: Path, **spool: Any) -> None:
        self.store = store
        self.clock = clock
        self.folder = folder
        self.settings = EngineSettings(spool=SpoolSettings(**{"free_bytes": 0, **spool}))
        self.engine: Engine
        self.running = False
        self.masters: MasterKeys | None = None

    async def start(self) -> None:
        self.engine = Engine(
            self.store.as_store,
            self.clock,
            IdMint(self.clock),
            Random(7),
            self.settings,
            self.folder,
            masters=self.masters,
        )
        await self.engine.start()
        self.running = True

    async def stop(self) -> None:
        if self.running:
            self.running = False
            await self.engine.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    @property
    def figures(self) -> SpoolFigures:
        assert self.engine.spool is not None
        return self.engine.spool.figures()

    @property
    def diverted(self) -> bool:
        """Whether a push of any partition would be spooled, were the store there."""
        assert self.engine.spool is not None
        return bool(self.engine.spool._arriving.groups or self.engine.spool._spooled.groups)

    @property
    def ready(self) -> bool:
        """Whether the spool has a file to write to, or can make one."""
        assert self.engine.spool is not None
        return self.engine.spool._own is not None

    def message(self, payload: str, queue: str = "q", partition: str = "p", **fields: Any) -> NewMessage:
        return NewMessage(QueueKey(queue), payload.encode(), partition, **fields)

    async def push(self, *payloads: str, **fields: Any) -> list[PushResult]:
        return list((await self.push_outcome(*payloads, **fields)).results)

    async def push_outcome(self, *payloads: str, **fields: Any) -> PushOutcome:
        return await self.engine.push([self.message(payload, **fields) for payload in payloads], json_checked=True)

    async def log(self, queue: str = "q", partition: str | None = None) -> list[str]:
        wanted = MessageFilter(queue=QueueKey(queue), partition=partition, limit=10_000)
        return [m.payload.decode() for m in (await self.store.inner.messages(wanted, self.clock.now())).messages]

    async def cut(self) -> None:
        """Cut the store off, and let the server notice."""
        self.store.down = True
        assert self.engine.spool is not None
        self.engine.spool._link.doubt()
        await self.until(lambda: self.figures.state is SpoolState.AWAY)

    async def mend(self) -> None:
        """Give the store back, and wait until all is in it."""
        self.store.down = False
        await self.drained()

    async def drained(self) -> None:
        """Wait until all is stored, and the files are gone."""
        await self.until(lambda: self.figures.state is SpoolState.UP and not self.figures.size_bytes, passing=0.5)

    async def until(self, condition: Callable[[], bool], passing: float = 0.0) -> None:
        """Let the loop turn, and time pass, until something is so."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            if passing:
                await until_so(condition, lambda: self.clock.advance(passing))
            while not condition():  # noqa: ASYNC110 - nothing to wait for but a turn of the loop
                await asyncio.sleep(0)
