"""The parser of entities, with their commands and events."""

from __future__ import annotations

from skep.spec.ir import Command, Emit, Entity, Expressions, Fields
from skep.spec.parse_queue import split_when
from skep.spec.problems import Path
from skep.spec.reading import Reading
from skep.spec.syntax import Block, Entry
from skep.spec.values import read_name

_PARTS = ("id", "state", "command", "event")


def parse_entity(reading: Reading, block: Block, path: Path) -> Entity:
    """An entity from its block."""
    id_: str | None = None
    state: Fields = {}
    commands: dict[str, Command] = {}
    events: dict[str, Expressions] = {}
    noted = len(reading.problems)
    for entry in reading.entries(block, _PARTS, "an entity", repeated=("command", "event")):
        match entry.name:
            case "id":
                id_ = reading.expression(entry, (*path, "id"))
            case "state":
                inner = reading.block(entry, (*path, "state"))
                state = reading.fields(inner, (*path, "state"), "the state") if inner else {}
            case "command":
                _command(reading, entry, commands, (*path, "commands"))
            case _:
                _event(reading, entry, events, (*path, "events"))
    if id_ is None and len(reading.problems) == noted:
        span = reading.spans[path]
        reading.problem(span, "the entity has no id", "id: and an expression over input, as in id: input.order_id")
    return Entity(id=id_ or "", state=state, commands=commands, events=events)


def _command(reading: Reading, entry: Entry, commands: dict[str, Command], path: Path) -> None:
    name = reading.label(entry, path, commands)
    if name is None:
        return
    at = (*path, name)
    block = reading.block(entry, at, labelled=True)
    if block is None:
        return
    input_: Fields = {}
    guard: str | None = None
    emits: list[Emit] = []
    for part in reading.entries(block, ("input", "guard", "emits"), "a command", repeated=("emits",)):
        if part.name == "input":
            inner = reading.block(part, (*at, "input"))
            input_ = reading.fields(inner, (*at, "input"), "the input") if inner else {}
        elif part.name == "guard":
            guard = reading.expression(part, (*at, "guard"))
        else:
            _emit(reading, part, emits, at)
    commands[name] = Command(input=input_, guard=guard, emits=emits)


def _emit(reading: Reading, entry: Entry, emits: list[Emit], path: Path) -> None:
    at = (*path, "emits", len(emits))
    if entry.value is None or entry.colon or entry.block is None:
        reading.problem(entry.span, "'emits' names no event", "emits Name { field: expression }")
        return
    reading.spans[at] = entry.value.span
    head, when = split_when(entry.value)
    reading.spans[(*at, "event")] = head.span
    name = reading.read(head, read_name)
    if when is not None:
        reading.spans[(*at, "when")] = when.span
    fields = reading.expressions(entry.block, (*at, "fields"), "the event")
    if name is not None:
        emits.append(Emit(event=name, fields=fields, when=when.text if when else None))


def _event(reading: Reading, entry: Entry, events: dict[str, Expressions], path: Path) -> None:
    name = reading.label(entry, path, events)
    if name is None:
        return
    block = reading.block(entry, (*path, name), labelled=True)
    if block is not None:
        events[name] = reading.expressions(block, (*path, name), "the event")
