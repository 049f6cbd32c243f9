"""Entities: each has a state, and the events that led to it; its version is the number of these events.

All entities of a call are locked at its beginning, in ascending order, after its receipts and before any other lock. Effects
are then decided in memory, and those that hold are written at the end, in the same transaction (I15).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from skep.clock import Instant
from skep.model.record import MAX_BYTES, Effect, EntityEvent, EntityKey, EntityState
from skep.store.postgres.connection import Connection
from skep.store.rules import too_much_at_once
from skep.store.statements import load_statements

SQL = load_statements(__package__, "entities")


class _Entity(Struct):
    """A locked entity; without a ``number`` it does not exist yet."""

    number: int | None
    version: int
    stored: int
    state: bytes = b""


class Locked:
    """The entities of a call, and the effects on them so far."""

    def __init__(self, entities: dict[EntityKey, _Entity]) -> None:
        self._entities = entities
        self._effects: list[Effect] = []

    def conflict(self, effects: Sequence[Effect]) -> int | None:
        """The index of the first effect that was computed from another version than the present one."""
        versions: dict[EntityKey, int] = {}
        for index, effect in enumerate(effects):
            version = versions.get(effect.entity, self._entities[effect.entity].version)
            if version != effect.version:
                return index
            versions[effect.entity] = version + len(effect.events)
        return None

    def apply(self, effects: Sequence[Effect]) -> None:
        """Apply effects, in memory."""
        for effect in effects:
            entity = self._entities[effect.entity]
            entity.version += len(effect.events)
            entity.state = effect.state
        self._effects += effects

    async def write(self, connection: Connection, now: Instant) -> None:
        """Write the applied effects: each entity once, and all events."""
        changed = {key: entity for key, entity in self._entities.items() if entity.version != entity.stored}
        if changed:
            versions, states = [e.version for e in changed.values()], [e.state for e in changed.values()]
            events = [
                (self._entities[effect.entity].number, number, effect.cause, event.name, event.data)
                for effect in self._effects
                for number, event in enumerate(effect.events, effect.version + 1)
            ]
            await connection.execute(
                SQL["write"], *_columns(list(changed)), versions, states, now, *map(list, zip(*events, strict=True))
            )
        empty = [key for key, entity in self._entities.items() if entity.number is not None and not entity.version]
        if empty:
            await connection.execute(SQL["drop"], *_columns(empty))


async def lock(connection: Connection, effects: Iterable[Effect], now: Instant) -> Locked:
    """Lock the entities that effects are on."""
    fresh: dict[EntityKey, bool] = {}
    for effect in effects:
        fresh[effect.entity] = fresh.get(effect.entity, False) or not effect.version
    if not fresh:
        return Locked({})
    # In the order of the primary key.
    keys = sorted(fresh, key=lambda key: (key.tenant, key.type, key.id))
    found = {key: _Entity(None, 0, 0) for key in keys}
    for row in await connection.fetch(SQL["lock"], *_columns(keys), [fresh[key] for key in keys], now):
        found[keys[row["ord"] - 1]] = _Entity(row["number"], row["version"], row["version"])
    return Locked(found)


def _columns(keys: Sequence[EntityKey]) -> tuple[list[str], list[str], list[str]]:
    return [key.tenant for key in keys], [key.type for key in keys], [key.id for key in keys]


async def entities(
    connection: Connection, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES
) -> list[EntityState | None]:
    """Each entity as it is now; PAYLOAD_TOO_LARGE when that is too much."""
    found: list[EntityState | None] = [None] * len(keys)
    for row in await connection.fetch(SQL["find"], *_columns(keys), max_bytes):
        index = row["ord"] - 1
        if row["state"] is None:
            raise too_much_at_once(max_bytes)
        found[index] = EntityState(keys[index], row["version"], row["state"], row["created_at"], row["updated_at"])
    return found


async def list_entities(
    connection: Connection, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
) -> list[EntityState]:
    """Entities of a type by id."""
    rows = await connection.fetch(SQL["list"], tenant, type_, after, limit, max_bytes)
    return [
        EntityState(EntityKey(type_, r["id"], tenant), r["version"], r["state"], r["created_at"], r["updated_at"])
        for r in rows
    ]


async def entity_types(connection: Connection, tenant: str) -> list[str]:
    """The types of which there are entities, by name."""
    return [row["type"] for row in await connection.fetch(SQL["types"], tenant)]


async def entity_events(
    connection: Connection, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
) -> list[EntityEvent]:
    """Events in order, those after number ``after``."""
    rows = await connection.fetch(SQL["events"], key.tenant, key.type, key.id, after, limit, max_bytes)
    return [EntityEvent(key=key, **dict(row.items())) for row in rows]
