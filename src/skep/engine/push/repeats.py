"""Calls with a receipt that come again while the first one waits as an operation, so that no receipt is stored yet.

Whatever they are answered, the call takes effect once: the receipt decides when the operation is performed. This is for the answer to
be the first one's. It holds for repeats that come to the same server; another one learns of the first call when it is performed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Clock
from skep.ids import Id
from skep.model.operation import LIVE, Enqueued, NewOperations, OperationStatus
from skep.model.record import Receipt, ReceiptKey
from skep.store.protocol.operations import OperationVerbs
from skep.store.protocol.records import HasRecords

REMEMBERED = 10_000
COUNTING = (*LIVE, OperationStatus.COMPLETED)
"""An operation that failed or was cancelled recorded nothing: its call may be made again."""


class OperationsAndRecords(OperationVerbs, HasRecords, Protocol):
    """What tells whether a call was made before."""


class Repeats:
    """The answers of calls with a receipt that were queued here and may not be performed yet."""

    def __init__(self, store: OperationsAndRecords, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queued: dict[ReceiptKey, tuple[Id, bytes]] = {}

    async def answers(self, requests: Sequence[NewOperations]) -> dict[int, bytes]:
        """The answers to those of some requests that were made before, by their place. One look for all of them."""
        receipts = {place: receipt for place, one in enumerate(requests) if (receipt := _receipt(one)) is not None}
        if not receipts:
            return {}
        stored = await self._store.records.receipts([receipt.key for receipt in receipts.values()], self._clock.now())
        found: dict[int, bytes] = {}
        first: dict[ReceiptKey, bytes] = {}
        for (place, receipt), there in zip(receipts.items(), stored, strict=True):
            answer = first.get(receipt.key) if there is None else there.answer
            if answer is None:
                answer = await self._queued_answer(receipt.key)
            if answer is None:
                first[receipt.key] = receipt.answer
            else:
                found[place] = answer
        return found

    async def _queued_answer(self, key: ReceiptKey) -> bytes | None:
        if key not in self._queued:
            return None
        operation, answer = self._queued[key]
        shown = await self._store.operation(key.tenant, operation)
        return answer if shown is not None and shown.status in COUNTING else None

    def note(self, requests: Sequence[NewOperations], kept: Sequence[Sequence[Enqueued]]) -> None:
        """These are queued now."""
        for request, operations in zip(requests, kept, strict=True):
            if (receipt := _receipt(request)) is not None:
                self._queued[receipt.key] = operations[0].id, receipt.answer
        while len(self._queued) > REMEMBERED:
            del self._queued[next(iter(self._queued))]

    def forget(self) -> None:
        """Nothing waits any more: what was recorded is in the store."""
        self._queued.clear()


def _receipt(request: NewOperations) -> Receipt | None:
    return None if request.push is None else request.push.receipt
