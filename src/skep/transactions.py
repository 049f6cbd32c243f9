"""What happens together or not at all, as data: settlements, pushes, effects on entities, and receipts (I15)."""

from __future__ import annotations

from msgspec import Struct, field

from skep.errors import Code
from skep.model import PushBatch, PushOutcome, Settlement, SettleResult
from skep.records import Effect, Receipt


class Transaction(Struct, frozen=True):
    """Settlements, pushes, effects and receipts that happen together or not at all (I15).

    Several effects on one entity follow one another: each is computed from the version that the one before it makes.
    """

    settlements: list[Settlement]
    push: PushBatch
    effects: list[Effect] = field(default_factory=list)
    receipts: list[Receipt] = field(default_factory=list)


class TransactionOutcome(Struct, frozen=True):
    """Whether it was committed; when not, the results or the conflict say what stood in the way.

    ``conflict`` is RECEIPT_EXISTS or ENTITY_CHANGED, and ``conflict_at`` the index of the first receipt or effect it means.
    """

    committed: bool
    settled: list[SettleResult]
    pushed: PushOutcome
    conflict: Code | None = None
    conflict_at: int | None = None
