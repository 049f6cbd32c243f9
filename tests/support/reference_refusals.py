"""Refused requests to webhooks in a plain list, to compare real stores with."""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Sequence

from skep.model.refusal import Refusal
from skep.store.protocol.refusals import REFUSALS_KEPT


class ReferenceRefusals:
    """What the real ones are compared with."""

    def __init__(self) -> None:
        self.noted: builtins.list[Refusal] = []

    async def note(self, refusals: Sequence[Refusal]) -> None:
        for one in refusals:
            self.noted.append(one)
            same = [known for known in self.noted if known.webhook == one.webhook]
            if len(same) > REFUSALS_KEPT:
                self.noted.remove(same[0])

    async def list(self, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> builtins.list[Refusal]:
        found, listed = builtins.list[Refusal](), Counter[str]()
        for one in reversed(self.noted):
            listed[one.webhook] += 1
            if webhook in (None, one.webhook) and listed[one.webhook] <= limit:
                found.append(one)
        return found
