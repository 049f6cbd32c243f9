"""Keys of payloads in the reference model."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.ids import Id
from skep.model.data_key import WrappedKey


class ReferenceDataKeys:
    """Wrapped keys, in the order in which they were made."""

    wrapped: list[WrappedKey]
    seals: dict[Id, int]

    async def put_data_key(self, key: WrappedKey) -> None:
        self.wrapped.append(key)

    async def data_keys(self) -> list[WrappedKey]:
        return sorted(self.wrapped, key=lambda key: (key.created_at, key.id))

    async def rewrap_data_keys(self, keys: Sequence[WrappedKey], was: str) -> int:
        changed = {key.id: key for key in keys}
        found = [key for key in self.wrapped if key.id in changed and key.master == was]
        self.wrapped = [changed[key.id] if key in found else key for key in self.wrapped]
        return len(found)

    async def shred_data_keys(self, tenant: str, queue: str | None, now: Instant) -> int:
        gone = [key for key in self.wrapped if key.queue.tenant == tenant and queue in (None, key.queue.name)]
        self.wrapped = [key for key in self.wrapped if key not in gone]
        return len(gone)

    async def reserve_seals(self, id_: Id, messages: int) -> int | None:
        if all(key.id != id_ for key in self.wrapped):
            return None
        self.seals[id_] = self.seals.get(id_, 0) + messages
        return self.seals[id_]
