"""Claims: the entities that this process works on, so that its own batches do not conflict.

Between processes the store decides: it refuses the slower one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

Key = tuple[str, str, str]
"""Tenant, type and id."""


class Claims:
    """The claimed entities of this process."""

    def __init__(self) -> None:
        self._held: set[Key] = set()
        self._given_back = asyncio.Event()

    @asynccontextmanager
    async def all_of(self, keys: Collection[Key]) -> AsyncIterator[None]:
        """Claim all of these entities for the ``with``. All are claimed at once, so that no two tasks can wait for each other."""
        while not self._held.isdisjoint(keys):
            self._given_back.clear()
            await self._given_back.wait()
        self._held.update(keys)
        try:
            yield
        finally:
            self._held.difference_update(keys)
            self._given_back.set()
