"""The validator of entities: their commands, the events that these emit, and the state that events set."""

from __future__ import annotations

from skep.spec.checking import Checking
from skep.spec.ir import Command, Entity
from skep.spec.problems import Path
from skep.spec.types import Field, Type
from skep.spec.variables import merged, of_command, of_event


def check_entity(checking: Checking, name: str, entity: Entity, path: Path) -> None:
    """Check one entity."""
    checking.identifier(path, "an entity", name)
    checking.fields((*path, "state"), entity.state)
    if not entity.commands:
        checking.warning(path, f"the entity {name!r} has no command, so it never changes", "command Name { … }")
    emitted: dict[str, dict[str, Type]] = {}
    for command_name, command in entity.commands.items():
        at = (*path, "commands", command_name)
        checking.identifier(at, "a command", command_name)
        variables = of_command(entity, command)
        checking.key((*path, "id"), entity.id, {"input": variables["input"]})
        _check_command(checking, command, variables, at, emitted)
    for event, assignments in entity.events.items():
        at = (*path, "events", event)
        checking.identifier(at, "an event", event)
        if event not in emitted:
            checking.warning(at, f"no command emits {event!r}", f"one of {', '.join(emitted)}" if emitted else None)
        variables = of_event(entity, emitted.get(event))
        # An event need not set the whole state, so no field is required here.
        target = {field: Field(type_.type, None) for field, type_ in entity.state.items()}
        checking.mapping(at, assignments, variables, target, "the state")


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
        emitted[emit.event] = merged(emitted.get(emit.event), types)
