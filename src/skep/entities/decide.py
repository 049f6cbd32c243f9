"""What a command does to an entity: from the state and the input to the events, the new state, and the answer.

The same state, input and time always give the same decision, so it can be made again after a conflict. The events are
the truth; the state is their fold, computed by the same function as in `fold`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from skep.clock import Instant
from skep.entities.compiled import CompiledCommand, CompiledEmit, CompiledEntity
from skep.entities.fold import apply_event
from skep.entities.refusal import not_a_condition, rejected, unfit_input, unfit_key, without_value
from skep.errors import Code, SkepError
from skep.spec import Expression, ExpressionError, apply_mapping, evaluate, misfit_of
from skep.spec.messages import with_defaults

ID_CHARACTERS = 255

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Snapshot(Struct, frozen=True):
    """An entity at one moment: the number of its events, and its state."""

    version: int
    state: dict[str, object]


class Accepted(Struct, frozen=True):
    """A command with a valid input, and the id of its entity."""

    entity: CompiledEntity
    command: CompiledCommand
    id: str
    input: dict[str, object]

    @property
    def name(self) -> str:
        """The command's full name, as in a spec."""
        return f"{self.entity.name}.{self.command.name}"


class Emitted(Struct, frozen=True):
    """An event: its name and its data, which is JSON."""

    name: str
    data: dict[str, object]


class Decision(Struct, frozen=True):
    """A decision: the entity ``before`` and ``after`` it, its events, and the answer as JSON."""

    id: str
    before: Snapshot
    after: Snapshot
    events: list[Emitted]
    answer: dict[str, object]


def accept(entity: CompiledEntity, command: str, input_: dict[str, object], *, checked: bool = False) -> Accepted:
    """Check an input against the command's type, unless it was ``checked`` before, and find the id of its entity."""
    compiled = entity.commands.get(command)
    if compiled is None:
        raise SkepError(Code.MAPPING_FAILED, f"the entity {entity.name} has no command {command!r}")
    unfit = None if checked else misfit_of(compiled.input, input_)
    if unfit is not None:
        raise unfit_input(unfit, f"{entity.name}.{command}")
    filled = with_defaults(compiled.input, dict(input_))
    return Accepted(entity, compiled, _id(entity, compiled.id, filled), filled)


def snapshot(entity: CompiledEntity, version: int, state: bytes) -> Snapshot:
    """A stored state as a snapshot. Fields that are newer than the stored state have their initial values."""
    return Snapshot(version, entity.initial | msgspec.json.decode(state, type=dict[str, object]))


def decide(accepted: Accepted, before: Snapshot | None, now: Instant) -> Decision:
    """Decide what a command does. GUARD_REJECTED when it may not run, MAPPING_FAILED when an expression has no value."""
    entity, command = accepted.entity, accepted.command
    start = before or Snapshot(0, entity.initial)
    values = {"input": accepted.input, "state": start.state, "now": _EPOCH + timedelta(microseconds=now)}
    guard = command.guard
    if guard is not None and not _holds(guard, values, f"the guard of {accepted.name}"):
        raise rejected(guard, accepted.name, accepted.id, values)
    events = [
        event
        for emit in command.emits
        if (event := _emitted(emit, values, f"{accepted.name} emits {emit.event}")) is not None
    ]
    state = start.state
    for event in events:
        state = apply_event(entity, state, event.name, event.data)
    after = Snapshot(start.version + len(events), state)
    return Decision(accepted.id, start, after, events, _answer(accepted, after.version, events))


def encoded(value: object) -> bytes:
    """The stored JSON of an event, a state or an answer."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, TypeError, ValueError, RecursionError) as error:
        raise SkepError(Code.MAPPING_FAILED, f"the command makes what JSON cannot hold: {error}") from error


def _id(entity: CompiledEntity, expression: Expression, input_: dict[str, object]) -> str:
    try:
        value = evaluate(expression, {"input": input_})
    except ExpressionError as error:
        raise without_value(error, f"the id of {entity.name}") from error
    id_ = str(value) if type(value) is int else value
    if not isinstance(id_, str) or not 0 < len(id_) <= ID_CHARACTERS or _UNFIT.search(id_):
        raise unfit_key(expression, value, f"the id of {entity.name}")
    return id_


def _emitted(emit: CompiledEmit, values: dict[str, object], where: str) -> Emitted | None:
    if emit.when is not None and not _holds(emit.when, values, where):
        return None
    try:
        return Emitted(emit.event, apply_mapping(emit.fields, values))
    except ExpressionError as error:
        raise without_value(error, where) from error


def _holds(condition: Expression, values: dict[str, object], where: str) -> bool:
    try:
        value = evaluate(condition, values)
    except ExpressionError as error:
        raise without_value(error, where) from error
    if value is True or value is False:
        return value
    raise not_a_condition(condition, value, where)


def _answer(accepted: Accepted, version: int, events: list[Emitted]) -> dict[str, object]:
    """The answer for the caller; `then` reads it as ``result``. It has no state, so that it stays small: receipts keep it."""
    return {
        "entity": accepted.entity.name,
        "id": accepted.id,
        "version": version,
        "events": [{"name": event.name, "data": event.data} for event in events],
    }
