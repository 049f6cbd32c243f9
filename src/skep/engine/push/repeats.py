"""Repeated calls with a receipt (idempotency key) whose first try still waits as an operation, so that no receipt is stored yet.

The call takes effect once in any case: the receipt is checked when the operation is performed. This module gives a repeat the answer
of the first call. It works on the server that queued the first call; other servers know the receipt once the operation is performed.
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
"""The states whose answer counts. A failed or cancelled operation recorded nothing, so its call may be made again."""


class OperationsAndRecords(OperationVerbs, HasRecords, Protocol):
    """The store's verbs for operations and receipts."""


class Repeats:
    """The answers of calls with a receipt that were queued here and may not be performed yet."""

    def __init__(self, store: OperationsAndRecords, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._queued: dict[ReceiptKey, tuple[Id, bytes]] = {}

    async def answers(self, requests: Sequence[NewOperations]) -> dict[int, bytes]:
        """The answers of repeated requests, by their index. Receipts are read in one call."""
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
        """Remember the receipts of requests that are queued now."""
        for request, operations in zip(requests, kept, strict=True):
            if (receipt := _receipt(request)) is not None:
                self._queued[receipt.key] = operations[0].id, receipt.answer
        while len(self._queued) > REMEMBERED:
            del self._queued[next(iter(self._queued))]

    def forget(self) -> None:
        """Forget all receipts: no operation waits any more, so they are in the store."""
        self._queued.clear()


def _receipt(request: NewOperations) -> Receipt | None:
    return None if request.push is None else request.push.receipt
