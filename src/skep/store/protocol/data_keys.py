"""The keys that payloads are sealed with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model.data_key import WrappedKey


class DataKeyVerbs(Protocol):
    """Data keys, each wrapped by a master key."""

    async def put_data_key(self, key: WrappedKey) -> None:
        """Keep a key."""

    async def data_keys(self) -> list[WrappedKey]:
        """All keys, oldest first."""

    async def rewrap_data_keys(self, keys: Sequence[WrappedKey], was: str) -> int:
        """Store the new wrapping of these keys, if they are still wrapped by the master key ``was``; returns how many were."""

    async def shred_data_keys(self, tenant: str, queue: str | None, now: Instant) -> int:
        """Destroy the keys of a queue, or of all queues of a tenant: nobody can read their sealed messages again.

        When this returns, the store's files hold neither the destroyed keys nor the old wrapping of rewrapped ones.
        """

    async def reserve_seals(self, id_: Id, messages: int) -> int | None:
        """Count messages that a key is about to seal; returns the new total of the key, None when there is no such key."""
