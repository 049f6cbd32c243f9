"""Operations: calls that wait for their turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import Token
from skep.model.operation import (
    Claimed,
    ClaimedOperations,
    ClaimLimits,
    Enqueued,
    GivenBack,
    NewOperations,
    Operation,
    OperationFigures,
    OperationFilter,
    OperationPage,
    Performed,
    WaitingOperations,
)


class OperationVerbs(Protocol):
    """Pushes and acks that were accepted while the store was too busy."""

    async def enqueue(self, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
        """Keep each call, whole, as one operation per partition; their positions rise in the order of the calls.

        OPERATIONS_AHEAD for a push with a receipt that has several partitions.
        """

    async def claim_operations(self, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> ClaimedOperations:
        """Claim the next operations, all pushes or all acks, by priority, then age. The claim counts as a try of each.

        An operation is claimed only together with every older live one of its partition. An operation that was tried before comes
        alone. After its timeout an operation may be claimed again, which makes the first claim void. One claim looks at a bounded
        number of operations; if it found none of them ready, it returns ``more``.
        """

    async def perform(
        self, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
    ) -> Performed:
        """Perform claimed operations and end them, in one transaction.

        Operations that another server claimed meanwhile, and those behind them, are left alone. When one operation is refused,
        nothing of the call happens.
        """

    async def give_back(self, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
        """Give back operations that were not performed, if the claim still holds; returns their positions.

        The messages of a failed operation go to the dead letters of their queue in the same transaction. If that is not possible,
        they stay with the failed operation. NOT_ENCRYPTED when the queue is encrypted and they are not: then nothing is given back.
        """

    async def cancel_operation(self, tenant: str, id_: Id, now: Instant) -> bool:
        """Cancel a pending operation; False when there is no pending one with this id."""

    async def operation(self, tenant: str, id_: Id) -> Operation | None:
        """An operation, or None."""

    async def list_operations(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        """Operations before position ``after``, newest first."""

    async def waiting_operations(self, now: Instant, limit: int) -> WaitingOperations:
        """The live operations of all tenants, counted up to ``limit``."""

    async def operation_figures(self, tenant: str, limit: int) -> list[OperationFigures]:
        """Figures by kind and status: of up to ``limit`` live operations, and of the latest ``limit`` of all."""

    async def sweep_operations(self, completed_before: Instant, ended_before: Instant, limit: int) -> int:
        """Delete up to ``limit`` operations that completed, or ended otherwise, long ago; returns how many."""
