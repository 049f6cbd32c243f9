"""Entities: a state, and the events that led to it. The version is the number of events.

Effects are written in the transaction of their cause (I15), and only if they were computed from the present version.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from skep.clock import Instant
from skep.model.record import MAX_BYTES, Effect, EntityEvent, EntityKey, EntityState
from skep.store.rules import too_much_at_once
from skep.store.sqlite.session import Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "entities")


class _Changed(Struct):
    """An entity after some effects; ``number`` is None when the entity is new."""

    number: int | None
    version: int
    state: bytes = b""


def apply(session: Session, effects: Sequence[Effect], now: Instant) -> int | None:
    """Write effects in order. If one was computed from another version, nothing is written: returns the index of the first.

    An entity is written once, however many effects it has.
    """
    changed: dict[EntityKey, _Changed] = {}
    for index, effect in enumerate(effects):
        entity = changed.get(effect.entity)
        if entity is None:
            entity = changed[effect.entity] = _look_up(session, effect.entity)
        if entity.version != effect.version:
            return index
        entity.version += len(effect.events)
        entity.state = effect.state
    for key, entity in changed.items():
        if entity.number is None:
            session.db.execute(SQL["insert"], (key.tenant, key.type, key.id, entity.version, now, entity.state))
            entity.number = session.db.last_insert_rowid()
        else:
            session.db.execute(SQL["update"], (entity.number, entity.version, now, entity.state))
    events = [
        (changed[effect.entity].number, number, now, effect.cause, event.name, event.data)
        for effect in effects
        for number, event in enumerate(effect.events, effect.version + 1)
    ]
    session.db.executemany(SQL["add_event"], events)
    return None


def _look_up(session: Session, key: EntityKey) -> _Changed:
    row = session.row(SQL["version"], (key.tenant, key.type, key.id))
    return _Changed(None, 0) if row is None else _Changed(*row)


def entities(session: Session, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES) -> list[EntityState | None]:
    """Each entity in its present state, or None; PAYLOAD_TOO_LARGE when all but the last reach ``max_bytes``."""
    found: list[EntityState | None] = []
    size = 0
    for key in keys:
        state = _find(session, key)
        if state is not None:
            if size >= max_bytes:
                raise too_much_at_once(max_bytes)
            size += len(state.state)
        found.append(state)
    return found


def _find(session: Session, key: EntityKey) -> EntityState | None:
    row = session.row(SQL["find"], (key.tenant, key.type, key.id))
    return None if row is None else EntityState(key, *row)


def list_entities(
    session: Session, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
) -> list[EntityState]:
    """Entities of a type by id, after the id ``after``."""
    rows = _within(session, SQL["list"], (tenant, type_, after, limit), max_bytes)
    return [EntityState(EntityKey(type_, id_, tenant), *rest) for id_, *rest in rows]


def entity_types(session: Session, tenant: str) -> list[str]:
    """The types of a tenant's entities, by name."""
    return [row[0] for row in session.rows(SQL["types"], (tenant,))]


def entity_events(
    session: Session, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
) -> list[EntityEvent]:
    """Events in order, after number ``after``."""
    rows = _within(session, SQL["events"], (key.tenant, key.type, key.id, after, limit), max_bytes)
    return [_event(key, row) for row in rows]


def _within(session: Session, sql: str, parameters: Row, max_bytes: int) -> list[Row]:
    """Rows up to the one that reaches ``max_bytes`` in the third column; later rows are not read."""
    found: list[Row] = []
    size = 0
    cursor = session.db.execute(sql, parameters)
    for row in cursor:
        found.append(row)
        size += len(row[2])
        if size >= max_bytes:
            break
    cursor.close()
    return found


def _event(key: EntityKey, row: Row) -> EntityEvent:
    number, name, data, at, cause = row
    return EntityEvent(key=key, number=number, name=name, data=data, at=at, cause=cause)
