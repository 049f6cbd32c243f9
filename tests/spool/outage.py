"""A store that can be cut off: before a call, after it, or for good, as PostgreSQL can be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from skep.errors import Code, SkepError
from skep.store.protocol import Store


class CutOff:
    """All verbs go to the store inside, while there is a way to it."""

    def __init__(self, inner: Store, session: str = "skep one") -> None:
        self.inner = inner
        self.session = session
        self.down = False
        self.suspended = False
        self.resumes = 0
        self.fenced: list[str] = []
        self.pushes: list[list[str]] = []
        self.lose: list[str] = []
        """For the next pushes: "before" loses the call, "after" its answer, "" neither."""
        self.spoil: set[bytes] = set()
        """A push with one of these payloads fails, of itself."""
        self.spoiled_by = Code.INTERNAL
        self.on_spoiled: Callable[[], object] = lambda: None
        """Called before such a push fails."""
        self.no_key: SkepError | None = None
        """Why no key can be made for a queue that is encrypted."""
        self.held: asyncio.Event | None = None
        """While it is there and not set, pushes wait, done, for their answer."""
        self.waited = 0.0

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    def _check(self) -> None:
        if self.down or self.suspended:
            raise SkepError(Code.STORE_UNAVAILABLE, "cut off")

    async def probe(self) -> None:
        self._check()

    def waited_seconds(self) -> float:
        return self.waited

    def suspend(self) -> None:
        self.suspended = True

    async def resume(self) -> None:
        if self.down:
            raise SkepError(Code.STORE_UNAVAILABLE, "cut off")
        self.suspended = False
        self.resumes += 1

    async def fence(self, sessions: list[str]) -> None:
        self._check()
        self.fenced += sessions

    async def push(self, batches: Any, *args: Any) -> Any:
        self._check()
        lost = self.lose.pop(0) if self.lose else ""
        if lost == "before":
            raise SkepError(Code.STORE_UNAVAILABLE, "lost on the way")
        if any(message.payload in self.spoil for batch in batches for message in batch.messages):
            self.on_spoiled()
            raise SkepError(self.spoiled_by, "a poison")
        self.pushes.append(
            [message.payload.decode(errors="replace") for batch in batches for message in batch.messages]
        )
        outcomes = await self.inner.push(batches, *args)
        if self.held is not None:
            await self.held.wait()
        if lost == "after":
            raise SkepError(Code.STORE_UNAVAILABLE, "lost on the way back")
        return outcomes

    async def put_data_key(self, key: Any) -> None:
        self._check()
        if self.no_key is not None:
            raise self.no_key
        await self.inner.put_data_key(key)

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(target):
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self._check()
            return await target(*args, **kwargs)

        return call
