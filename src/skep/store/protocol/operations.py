"""Operations: calls that wait for their turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import Token
from skep.model.operation import (
    Claim,
    Claimed,
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

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class OperationVerbs(Protocol):
    """Pushes and acks that were accepted while the store was too busy."""

    async def enqueue(self, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
        """Keep each call, whole, as one operation per partition; their positions rise in the order of the calls.

        OPERATIONS_AHEAD for a push with a receipt that has several partitions.
        """

    async def claim_operations(self, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> Claim:
        """Take the next operations, all pushes or all acks, by priority, then age; each counts this as a try.

        One is taken only when every older live one of its partition is taken with it, and one that was tried before comes
        alone. What nobody performed before its timeout may be claimed again, which makes the first claim worthless. One claim looks at a
        bounded number of operations: when it has found nothing by then, it says that there is ``more``.
        """

    async def perform(
        self, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
    ) -> Performed:
        """Do what claimed operations ask for and end them, in one transaction.

        Those that were claimed by someone else meanwhile, or stand behind such a one, are left alone. When one is refused,
        nothing of the call happens.
        """

    async def give_back(self, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
        """Let go of operations that were not performed, those that are still ours; their positions.

        The messages of one that failed for good go among the dead letters of their queue in the same transaction. When they
        cannot, they stay with the failed operation. NOT_ENCRYPTED when the queue is encrypted and they are not: then nothing is
        let go.
        """

    async def cancel_operation(self, tenant: str, id_: Id, now: Instant) -> bool:
        """End an operation that is pending; False when there is none of that id that is."""

    async def operation(self, tenant: str, id_: Id) -> Operation | None:
        """An operation, or None."""

    async def list_operations(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        """Operations, newest first, those before position ``after``."""

    async def waiting_operations(self, now: Instant, limit: int) -> WaitingOperations:
        """What is live over all tenants, counted up to ``limit``."""

    async def operation_figures(self, tenant: str, limit: int) -> list[OperationFigures]:
        """Figures by kind and status: of up to ``limit`` that are live, and the latest ``limit`` of all."""

    async def sweep_operations(self, completed_before: Instant, ended_before: Instant, limit: int) -> int:
        """Forget up to ``limit`` operations that completed, or ended otherwise, long ago; how many."""
