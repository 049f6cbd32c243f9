"""Renew the leases of messages in work: all leases of a function in one request, well before one ends."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from skep.client import calls
from skep.client.async_client import AsyncClient
from skep.errors import SkepError

RENEWALS_PER_LEASE = 3
"""A lease is renewed when a third of it has passed, so that two renewals may fail before it is lost."""

log = logging.getLogger("skep.worker")


class Keeping:
    """The held leases, and which of them are lost."""

    def __init__(self, client: AsyncClient, lease_seconds: float) -> None:
        self._client = client
        self._lease_seconds = lease_seconds
        self._held: Counter[str] = Counter()
        self._lost: set[str] = set()

    def hold(self, lease_id: str) -> None:
        """Renew this lease from now on."""
        self._held[lease_id] += 1

    def release(self, lease_id: str) -> None:
        """One holder has released the lease; it is renewed while others hold it."""
        self._held[lease_id] -= 1
        if not self._held[lease_id]:
            del self._held[lease_id]
            self._lost.discard(lease_id)

    def holds(self, lease_id: str) -> bool:
        """Whether the lease still has a holder."""
        return lease_id in self._held

    def lost(self, lease_id: str) -> bool:
        """Whether another consumer has the lease now."""
        return lease_id in self._lost

    async def run(self) -> None:
        """Renew for ever."""
        while True:
            await asyncio.sleep(self._lease_seconds / RENEWALS_PER_LEASE)
            await self.renew([lease for lease in self._held if lease not in self._lost])

    async def renew(self, lease_ids: list[str]) -> None:
        """Renew these leases now, and note which held leases are lost."""
        if not lease_ids:
            return
        try:
            results = await self._client.run(calls.extend_batch(lease_ids, self._lease_seconds))
        except SkepError as error:
            log.warning("%d leases could not be renewed: %s", len(lease_ids), error)
            return
        # A lease that was released meanwhile is not noted: nobody would ever forget it again.
        self._lost.update(one.lease_id for one in results if one.code is not None and one.lease_id in self._held)
