"""Claims: which entities this process is working on, so that its own batches do not get into each other's way.

Other processes are kept apart by the store, which refuses whoever was slower.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

Key = tuple[str, str, str]
"""Tenant, type and id."""


class Claims:
    """Entities that somebody here has."""

    def __init__(self) -> None:
        self._held: set[Key] = set()
        self._given_back = asyncio.Event()

    @asynccontextmanager
    async def all_of(self, keys: Collection[Key]) -> AsyncIterator[None]:
        """Have all of these, and nobody else any: all at once, so that no two can wait for each other."""
        while not self._held.isdisjoint(keys):
            self._given_back.clear()
            await self._given_back.wait()
        self._held.update(keys)
        try:
            yield
        finally:
            self._held.difference_update(keys)
            self._given_back.set()
