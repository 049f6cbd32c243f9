"""A store that notes the calls it gets, and can hold or spoil them: what shows how the engine uses the real one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from skep.store.protocol import Store

MERGING = ("push", "pop", "settle", "renew", "transact", "watch")


class RecordingStore:
    """All verbs go to the store inside; those of the hot path, and whatever else a test names, pass the gate first."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.calls: dict[str, list[Sequence[Any]]] = defaultdict(list)
        self.errors: dict[str, list[Exception | None]] = defaultdict(list)
        self._gates: dict[str, asyncio.Event] = {}
        self._arrivals: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._late: set[str] = set()

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    def hold(self, verb: str) -> None:
        """Let calls of a verb wait before they reach the store."""
        self._gates[verb] = asyncio.Event()
        self._arrivals[verb].clear()

    def hold_answers(self, verb: str) -> None:
        """Let the store do calls of a verb, and its answers wait."""
        self.hold(verb)
        self._late.add(verb)

    def let_go(self, verb: str) -> None:
        self._late.discard(verb)
        self._gates.pop(verb).set()

    def let_all_go(self) -> None:
        """Hold nothing any more: a test that failed in between leaves an engine that can be stopped."""
        for verb in list(self._gates):
            self.let_go(verb)

    async def held(self, verb: str) -> None:
        """Return once a call of the verb waits at its gate."""
        async with asyncio.timeout(10):
            await self._arrivals[verb].wait()

    def fail_next(self, verb: str, *errors: Exception | None) -> None:
        """Answer the next calls with these errors; None lets one pass."""
        self.errors[verb] += errors

    def __getattr__(self, name: str) -> Any:
        target = getattr(self.inner, name)
        if not asyncio.iscoroutinefunction(target):
            return target
        return self._recorded(name, target)

    def _recorded(self, verb: str, target: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[verb].append(args[0] if args else ())
            gate = self._gates.get(verb)
            answer = await target(*args, **kwargs) if gate and verb in self._late else None
            if gate:
                self._arrivals[verb].set()
                await gate.wait()
            if answer is not None:
                return answer
            if self.errors[verb] and (error := self.errors[verb].pop(0)):
                raise error
            return await target(*args, **kwargs)

        return call
