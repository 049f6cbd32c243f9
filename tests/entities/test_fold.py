"""State = fold(events), always: over random commands to the entities of the examples."""

from __future__ import annotations

from datetime import UTC
from functools import cache
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.clock import Instant
from skep.entities import CompiledEntity, Snapshot, accept, compile_entities, decide, encoded, fold, snapshot
from skep.errors import Code, SkepError
from skep.spec import load
from skep.spec.types import Type, TypeKind

ROOT = Path(__file__).resolve().parents[2]


@cache
def entities() -> list[CompiledEntity]:
    found: list[CompiledEntity] = []
    for path in sorted((ROOT / "examples").glob("*.skep")):
        found.extend(compile_entities(load(path.read_text(encoding="utf-8"), path.name)).values())
    assert len(found) >= 5
    return found


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
PLAIN: dict[TypeKind, st.SearchStrategy[object]] = {
    TypeKind.STRING: st.sampled_from(["a", "b", "incident.resolved", "incident.reopened", "paid"]) | st.text(max_size=20),
    TypeKind.INT: st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    TypeKind.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    TypeKind.BOOL: st.booleans(),
    TypeKind.TIME: st.datetimes(timezones=st.just(UTC)).map(lambda at: at.isoformat()),
    TypeKind.UUID: st.sampled_from(["0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2e"]),
    TypeKind.JSON: JSON,
}  # fmt: skip


def values(type_: Type) -> st.SearchStrategy[object]:
    if type_.kind is TypeKind.ENUM:
        made: st.SearchStrategy[object] = st.sampled_from(type_.choices)
    elif type_.kind is TypeKind.LIST and type_.element is not None:
        made = st.lists(values(type_.element), max_size=3)
    elif type_.kind is TypeKind.MAP and type_.element is not None and type_.key is not None:
        made = st.dictionaries(st.text(max_size=5), values(type_.element), max_size=3)
    else:
        made = PLAIN[type_.kind]
    return made | st.none() if type_.optional else made


@st.composite
def calls(draw: st.DrawFn) -> tuple[CompiledEntity, list[tuple[str, dict[str, object]]]]:
    entity = draw(st.sampled_from(entities()))
    names = draw(st.lists(st.sampled_from(sorted(entity.commands)), min_size=1, max_size=8))
    return entity, [
        (name, {field: draw(values(spec.type)) for field, spec in entity.commands[name].input.fields.items()})
        for name in names
    ]  # fmt: skip


@given(calls())
@settings(max_examples=300)
def test_the_state_is_the_fold_of_the_events_whatever_the_commands(
    made: tuple[CompiledEntity, list[tuple[str, dict[str, object]]]],
) -> None:
    entity, commands = made
    kept: dict[str, list[tuple[str, bytes]]] = {}
    stored: dict[str, tuple[int, bytes]] = {}
    for number, (name, input_) in enumerate(commands):
        try:
            accepted = accept(entity, name, input_)
            there = stored.get(accepted.id)
            before = snapshot(entity, *there) if there is not None else None
            decision = decide(accepted, before, Instant(1_767_225_600_000_000 + number))
        except SkepError as error:
            if error.code not in (Code.MAPPING_FAILED, Code.GUARD_REJECTED):
                raise
            continue
        log = kept.setdefault(decision.id, [])
        log.extend((event.name, encoded(event.data)) for event in decision.events)
        stored[decision.id] = (decision.after.version, encoded(decision.after.state))
        assert decision.after.version == len(log)
        again = fold(entity, [(event, msgspec.json.decode(data)) for event, data in log])
        assert encoded(again) == stored[decision.id][1]
        assert decide(accepted, before, Instant(1_767_225_600_000_000 + number)) == decision


def test_a_version_counts_all_events_of_a_command() -> None:
    entity = next(one for one in entities() if one.name == "Incident")
    input_: dict[str, object] = {
        "incident_id": "P1", "kind": "incident.triggered", "title": "t", "severity": "minor", "service": "s",
        "occurred_at": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    first = decide(accept(entity, "Record", input_), None, Instant(0))
    assert (first.after.version, [event.name for event in first.events]) == (2, ["Opened", "Changed"])
    second = decide(accept(entity, "Record", input_), first.after, Instant(0))
    assert (second.before, second.after.version) == (first.after, 3)
    assert isinstance(second.after, Snapshot)
