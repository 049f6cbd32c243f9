"""The variables of expressions, by the expression's place in a spec. The validator and the evaluator both use this list."""

from __future__ import annotations

from msgspec import UNSET

from skep.spec.expressions import analyse
from skep.spec.ir import Command, Entity, Fields, Queue
from skep.spec.types import JSON, STRING, TIME, Type, join, map_of, optional, record_of

WEBHOOK: dict[str, Type] = {
    "payload": JSON, "headers": map_of(STRING, STRING), "source_ip": STRING, "received_at": TIME, "tenant": STRING,
}  # fmt: skip
"""The variables of a webhook."""
TENANT: dict[str, Type] = {"payload": JSON}
"""The variables of a webhook's tenant: only the body, since the sender signed it."""
ENVELOPE = ("payload", "headers", "source_ip", "received_at")
"""The fields that a webhook pushes by default, as far as the queue's message type has them."""
SCHEDULE: dict[str, Type] = {"now": TIME}
"""The variables of a schedule."""


def types_of(fields: Fields) -> dict[str, Type]:
    """The types of fields by name."""
    return {name: field.type for name, field in fields.items()}


def of_queue(queue: Queue) -> dict[str, Type]:
    """The variables of a queue: the fields of its messages, or the whole message when it has no type."""
    return types_of(queue.message_type) if queue.message_type else {"message": JSON}


def of_then(queue: Queue) -> dict[str, Type]:
    """The variables of `then`: those of the queue, and the command's ``result``, unless a field has that name."""
    return {"result": JSON, **of_queue(queue)} if queue.map_to is not None else of_queue(queue)


def state_record(entity: Entity) -> Type:
    """The state as expressions see it: a field without a default is null until an event sets it."""
    return record_of({
        name: field.type if field.default is not UNSET else optional(field.type) for name, field in entity.state.items()
    })  # fmt: skip


def of_command(entity: Entity, command: Command) -> dict[str, Type]:
    """The variables of a guard and of emitted fields."""
    return {"input": record_of(types_of(command.input)), "state": state_record(entity), "now": TIME}


def of_event(entity: Entity, fields: dict[str, Type] | None) -> dict[str, Type]:
    """The variables of an event's assignments; an event that no command emits is json."""
    return {"event": record_of(fields) if fields is not None else JSON, "state": state_record(entity)}


def event_fields(entity: Entity) -> dict[str, dict[str, Type]]:
    """The fields of every event that a valid entity's commands emit, with their types."""
    found: dict[str, dict[str, Type]] = {}
    for command in entity.commands.values():
        variables = of_command(entity, command)
        for emit in command.emits:
            types = {name: analyse(text, variables).type for name, text in emit.fields.items()}
            found[emit.event] = merged(found.get(emit.event), types)
    return found


def merged(known: dict[str, Type] | None, types: dict[str, Type]) -> dict[str, Type]:
    """The fields of an event that several commands emit: in their common type, and optional where only some commands set them."""
    if known is None:
        return types
    result: dict[str, Type] = {}
    for name in known.keys() | types.keys():
        if name in known and name in types:
            result[name] = join(known[name], types[name]) or JSON
        else:
            result[name] = optional(known.get(name) or types[name])
    return result
