"""A compiled entity: each expression is compiled once, against the variables of its place."""

from __future__ import annotations

from msgspec import UNSET, Struct

from skep.spec import App, Expression, FieldMapping, Validator, compile_expression, compile_mapping, compile_validator
from skep.spec.ir import Command, Emit, Entity
from skep.spec.types import BOOL, Field, Type, optional
from skep.spec.variables import event_fields, of_command, of_event


class CompiledEmit(Struct, frozen=True):
    """An event that a command emits, if ``when`` holds."""

    event: str
    fields: FieldMapping
    when: Expression | None


class CompiledCommand(Struct, frozen=True):
    """A command: the type of its input, the id of its entity, its guard, and the events that it emits."""

    name: str
    input: Validator
    id: Expression
    guard: Expression | None
    emits: list[CompiledEmit]


class CompiledEntity(Struct, frozen=True):
    """An entity. ``initial`` is the state before the first event, ``state`` checks the fields that an event sets."""

    name: str
    initial: dict[str, object]
    state: Validator
    commands: dict[str, CompiledCommand]
    events: dict[str, FieldMapping]


def compile_entities(app: App) -> dict[str, CompiledEntity]:
    """The entities of a valid app, by name."""
    return {name: compile_entity(name, entity) for name, entity in app.entities.items()}


def compile_entity(name: str, entity: Entity) -> CompiledEntity:
    """One entity of a valid app."""
    emitted = event_fields(entity)
    return CompiledEntity(
        name=name,
        initial={field: None if spec.default is UNSET else spec.default for field, spec in entity.state.items()},
        # A field is null until an event sets it, and an event need not set all fields.
        state=compile_validator({field: Field(optional(spec.type)) for field, spec in entity.state.items()}),
        commands={key: _command(key, entity, command) for key, command in entity.commands.items()},
        events={
            event: compile_mapping(assignments, of_event(entity, emitted.get(event)), entity.state)
            for event, assignments in entity.events.items()
        },
    )


def _command(name: str, entity: Entity, command: Command) -> CompiledCommand:
    variables = of_command(entity, command)
    return CompiledCommand(
        name=name,
        input=compile_validator(command.input),
        id=compile_expression(entity.id, {"input": variables["input"]}),
        guard=_condition(command.guard, variables),
        emits=[_emit(emit, variables) for emit in command.emits],
    )


def _emit(emit: Emit, variables: dict[str, Type]) -> CompiledEmit:
    return CompiledEmit(emit.event, compile_mapping(emit.fields, variables), _condition(emit.when, variables))


def _condition(text: str | None, variables: dict[str, Type]) -> Expression | None:
    return None if text is None else compile_expression(text, variables, BOOL)
