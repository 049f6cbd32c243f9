"""What tests of operations do all the time, on any store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from skep.ids import Id
from skep.model import NewMessage, PushBatch, Settlement, Token
from skep.model.operation import (
    Claimed,
    ClaimedOperations,
    ClaimLimits,
    Enqueued,
    GivenBack,
    NewOperations,
    Operation,
    OperationKind,
    OperationStatus,
    Performed,
    push_groups,
    settle_groups,
)
from tests.contract.driver import Driver


class Ops:
    """Short verbs for operations."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    async def enqueue(self, *messages: NewMessage, **fields: Any) -> list[Enqueued]:
        return await self.enqueue_batch(self.driver.batch(*messages), **fields)

    async def enqueue_batch(self, batch: PushBatch, **fields: Any) -> list[Enqueued]:
        ids = self.driver.mint.mint_many(push_groups(batch))
        request = NewOperations(OperationKind.PUSH, ids, push=batch, **fields)
        (kept,) = await self.driver.store.enqueue([request], self.driver.now)
        return kept

    async def push(self, *texts: str, **fields: Any) -> Enqueued:
        (kept,) = await self.enqueue(*(self.driver.message(text, **fields) for text in texts))
        return kept

    async def settle(self, *settlements: Settlement, kind: OperationKind = OperationKind.ACK_BATCH) -> list[Enqueued]:
        ids = self.driver.mint.mint_many(settle_groups(settlements))
        request = NewOperations(kind, ids, settlements=list(settlements))
        (kept,) = await self.driver.store.enqueue([request], self.driver.now)
        return kept

    async def claim(self, **limits: Any) -> tuple[Token, list[Claimed]]:
        """Claim until something is found, or there is nothing anywhere."""
        while True:
            token, claim = await self.claim_once(**limits)
            if not claim.more:
                return token, claim.operations

    async def claim_once(self, **limits: Any) -> tuple[Token, ClaimedOperations]:
        token = self.driver.token()
        return token, await self.driver.store.claim_operations(
            "server-1", token, ClaimLimits(**limits), self.driver.now
        )

    async def perform(self, token: Token, claimed: Sequence[Claimed], **fields: Any) -> Performed:
        performed = await self.driver.store.perform(token, claimed, self.driver.now, **fields)
        await self.driver.check_accounts()
        return performed

    async def drain(self) -> int:
        """Perform all there is; in how many claims."""
        for claims in range(1000):
            token, claimed = await self.claim()
            if not claimed:
                return claims
            performed = await self.perform(token, claimed)
            assert not performed.lost
            assert not performed.refused
        raise AssertionError("there is no end to it")

    async def shown(self, kept: Enqueued | Id) -> Operation:
        id_ = kept.id if isinstance(kept, Enqueued) else kept
        found = await self.driver.store.operation(self.driver.tenant, id_)
        assert found is not None
        return found

    async def status(self, kept: Enqueued) -> OperationStatus:
        return (await self.shown(kept)).status

    async def back(self, token: Token, one: Claimed, retry_in: float | None, **fields: Any) -> list[int]:
        retry_at = None if retry_in is None else self.driver.later(retry_in)
        return await self.driver.store.give_back(token, [GivenBack(one.position, retry_at, **fields)], self.driver.now)


def texts(claimed: Sequence[Claimed]) -> list[str]:
    return [m.payload.decode().strip('"') for one in claimed for m in one.batch.messages]
