"""The validator of entities: commands over input and state, the events they emit, and how events become state."""

from __future__ import annotations

from msgspec import UNSET

from skep.spec.checking import Checking, types_of
from skep.spec.ir import Command, Entity
from skep.spec.problems import Path
from skep.spec.types import JSON, TIME, Field, Type, join, optional, record_of


def check_entity(checking: Checking, name: str, entity: Entity, path: Path) -> None:
    """One entity."""
    checking.identifier(path, "an entity", name)
    checking.fields((*path, "state"), entity.state)
    if not entity.commands:
        checking.warning(path, f"the entity {name!r} has no command, so it never changes", "command Name { … }")
    emitted: dict[str, dict[str, Type]] = {}
    for command_name, command in entity.commands.items():
        at = (*path, "commands", command_name)
        checking.identifier(at, "a command", command_name)
        variables = command_variables(entity, command)
        checking.key((*path, "id"), entity.id, {"input": variables["input"]})
        _check_command(checking, command, variables, at, emitted)
    for event, assignments in entity.events.items():
        at = (*path, "events", event)
        checking.identifier(at, "an event", event)
        if event not in emitted:
            checking.warning(at, f"no command emits {event!r}", f"one of {', '.join(emitted)}" if emitted else None)
        variables = event_variables(entity, emitted.get(event))
        # An event need not set the whole state, so nothing of it is required here.
        target = {field: Field(type_.type, None) for field, type_ in entity.state.items()}
        checking.mapping(at, assignments, variables, target, "the state")


def state_record(entity: Entity) -> Type:
    """The state as expressions see it: a field without a default is null until an event sets it."""
    types = {
        name: field.type if field.default is not UNSET else optional(field.type) for name, field in entity.state.items()
    }
    return record_of(types)


def command_variables(entity: Entity, command: Command) -> dict[str, Type]:
    """What guards and emitted fields can read."""
    return {"input": record_of(types_of(command.input)), "state": state_record(entity), "now": TIME}


def event_variables(entity: Entity, fields: dict[str, Type] | None) -> dict[str, Type]:
    """What an event's assignments can read; of an event that nobody emits nothing is known."""
    return {"event": record_of(fields) if fields is not None else JSON, "state": state_record(entity)}


def _check_command(
    checking: Checking, command: Command, variables: dict[str, Type], path: Path, emitted: dict[str, dict[str, Type]]
) -> None:
    checking.fields((*path, "input"), command.input)
    checking.condition((*path, "guard"), command.guard, variables)
    if not command.emits:
        checking.warning(path, "the command emits nothing, so it changes nothing", "emits Name { … }")
    for index, emit in enumerate(command.emits):
        at = (*path, "emits", index)
        checking.identifier((*at, "event"), "an event", emit.event)
        checking.condition((*at, "when"), emit.when, variables)
        types = checking.mapping((*at, "fields"), emit.fields, variables, None, emit.event)
        emitted[emit.event] = _merged(emitted.get(emit.event), types)


def _merged(known: dict[str, Type] | None, types: dict[str, Type]) -> dict[str, Type]:
    """The fields of an event that several commands emit: of their common type, absent where only some give them."""
    if known is None:
        return types
    merged: dict[str, Type] = {}
    for name in known.keys() | types.keys():
        if name in known and name in types:
            merged[name] = join(known[name], types[name]) or JSON
        else:
            merged[name] = optional(known.get(name) or types[name])
    return merged
