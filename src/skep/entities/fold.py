"""The state of an entity is the fold of its events. All assignments of an event read the state before the event."""

from __future__ import annotations

from collections.abc import Iterable

from skep.entities.compiled import CompiledEntity
from skep.entities.refusal import cannot_apply, without_value
from skep.spec import ExpressionError, apply_mapping, misfit_of

State = dict[str, object]


def fold(entity: CompiledEntity, events: Iterable[tuple[str, dict[str, object]]]) -> State:
    """The state after these events (name and data, in order)."""
    state = dict(entity.initial)
    for name, data in events:
        state = apply_event(entity, state, name, data)
    return state


def apply_event(entity: CompiledEntity, state: State, name: str, data: dict[str, object]) -> State:
    """The state after one event; the given state stays as it is. An undeclared event has no effect."""
    assignments = entity.events.get(name)
    if assignments is None or not assignments.fields:
        return state
    try:
        changed = apply_mapping(assignments, {"event": data, "state": state})
    except ExpressionError as error:
        raise without_value(error, f"the event {name} of {entity.name}") from error
    unfit = misfit_of(entity.state, changed)
    if unfit is not None:
        raise cannot_apply(assignments, unfit, f"the event {name} of {entity.name}")
    return state | changed
