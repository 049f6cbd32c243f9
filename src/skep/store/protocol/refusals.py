"""Requests that webhooks refused, as a store keeps them. Reached as ``store.refusals``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.refusal import Refusal

REFUSALS_KEPT = 100
"""How many refusals of one webhook are kept: the newest."""


class RefusalStore(Protocol):
    """Refusals; each verb is one transaction."""

    async def note(self, refusals: Sequence[Refusal]) -> None:
        """Store refusals in their order, and keep at most `REFUSALS_KEPT` of each of their webhooks."""

    async def list(self, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> list[Refusal]:
        """The refusals of a webhook, or of all, newest first; at most ``limit`` of each webhook."""
