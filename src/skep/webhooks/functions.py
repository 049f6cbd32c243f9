"""Commands of webhooks that Python functions carry out, in the process of the server.

A function works outside of the store, so its receipt is written after it has returned: it runs at least once. Requests with the same
key that come to this process meanwhile wait for the one run. The function runs again when the process dies, or the store is away,
before the receipt is written, and when a repeat comes to another server meanwhile. Then the first receipt is the answer for all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model.record import Receipt, ReceiptKey
from skep.webhooks.calling import Ran

Function = Callable[[dict[str, object]], Awaitable[bytes]]
"""Carries out a command, given its input; its answer is JSON. The sender gets a SkepError as the answer."""
FunctionsByName = Mapping[tuple[str, str], Function]
"""Functions by app and command."""

RUNS_MAX = 1_000
"""The most calls that run, or wait for a thread, at once. The sender of a further request has to repeat it."""


class Functions:
    """The functions of this process, and which of them are running."""

    def __init__(self, engine: Engine, functions: FunctionsByName | None = None) -> None:
        self._engine = engine
        self._functions = functions or {}
        self._running: set[asyncio.Task[Ran]] = set()
        self._by_key: dict[ReceiptKey, asyncio.Task[Ran]] = {}

    def find(self, app: str, command: str) -> Function | None:
        """The function for a command of an app; None when this process has none."""
        return self._functions.get((app, command))

    async def run(self, function: Function, input_: dict[str, object], receipt: Receipt | None) -> Ran:
        """Run once for a receipt, which comes without its answer; a request that goes away does not end it."""
        if receipt is None:
            return await asyncio.shield(self._begin(_plainly(function, input_)))
        known = self._by_key.get(receipt.key)
        if known is not None:
            return Ran((await asyncio.shield(known)).answer, True)
        task = self._begin(self._once(function, input_, receipt))
        self._by_key[receipt.key] = task
        task.add_done_callback(lambda _: self._by_key.pop(receipt.key))
        return await asyncio.shield(task)

    def _begin(self, work: Coroutine[Any, Any, Ran]) -> asyncio.Task[Ran]:
        if len(self._running) >= RUNS_MAX:
            work.close()
            raise SkepError(Code.SERVER_BUSY, f"{RUNS_MAX} commands of webhooks are running")
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Ran]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # nobody may be left who asks

    async def _once(self, function: Function, input_: dict[str, object], receipt: Receipt) -> Ran:
        # Within the run: otherwise a repeat could find no receipt, and begin after this run has ended.
        recorded = await self._recorded(receipt.key)
        if recorded is not None:
            return Ran(recorded, True)
        answer = await function(input_)
        written = Receipt(receipt.key, answer, receipt.expires_at)
        if not (await self._engine.transact([], [], receipts=[written])).committed:
            recorded = await self._recorded(receipt.key)
        return Ran(answer, False) if recorded is None else Ran(recorded, True)

    async def _recorded(self, key: ReceiptKey) -> bytes | None:
        _, [known] = await self._engine.records.read([], [key])
        return None if known is None else known.answer


async def _plainly(function: Function, input_: dict[str, object]) -> Ran:
    return Ran(await function(input_), False)
