"""What a store keeps of requests that webhooks refused. Reached as ``store.refusals``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.refusal import Refusal

REFUSALS_KEPT = 100
"""So many refusals of one webhook are kept, the newest."""


class RefusalStore(Protocol):
    """Refusals; each verb is one transaction."""

    async def note(self, refusals: Sequence[Refusal]) -> None:
        """Keep these, in their order, and of every webhook among them no more than `REFUSALS_KEPT`."""

    async def list(self, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> list[Refusal]:
        """The refusals of a webhook, or of all, newest first; at most ``limit`` of each webhook."""
