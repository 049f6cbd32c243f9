"""The fields of a message type as columns: values as expressions have them, names that clash with nothing, types that Spark knows."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from skep.spark.schema import sql_type
from skep.spark.typed.fields import TAKEN, FieldReader, arrow_type, column_names
from skep.spec import compile_validator, decode, misfit
from skep.spec.ir import ExtraFields, Fields
from skep.spec.types import Type, TypeKind, parse_field

TYPES = {
    "id": "uuid", "s": "string?", "n": "int", "f": "float", "b": "bool = true", "at": "time", "e": "enum(open, closed) = open",
    "l": "list<list<string?>>", "m": "map<string, time?> = {\"k\": null}", "j": "json", "h": "map<string, json>", "o": "json?",
    "lo": "list<json?>?", "class": "int = 3",
}  # fmt: skip
FIELDS: Fields = {name: parse_field(text) for name, text in TYPES.items()}
MESSAGE: dict[str, Any] = {
    "id": "0190A7C49d7e7a3b8a440f0e6c5b1a2d", "n": 2**63 - 1, "f": -0.0, "at": "2026-01-31T00:00:00.5+01:00", "l": [["a", None], []],
    "j": {"t": [1, "x", None]}, "h": {"x": 1.5, "y": None},
}  # fmt: skip


def like_json(value: Any, type_: Type) -> Any:
    """A value of a column as the evaluator has it."""
    if value is None:
        return None
    if type_.kind is TypeKind.JSON:
        return json.loads(value)
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return [like_json(one, type_.element) for one in value]
    if type_.kind is TypeKind.MAP and type_.element is not None:
        return {key: like_json(one, type_.element) for key, one in value}
    return value


def as_told(value: Any, type_: Type) -> Any:
    """A value of the evaluator, with times as instants."""
    if value is None:
        return None
    if type_.kind is TypeKind.TIME:
        return datetime.fromisoformat(value).astimezone(UTC)
    if type_.kind is TypeKind.LIST and type_.element is not None:
        return [as_told(one, type_.element) for one in value]
    if type_.kind is TypeKind.MAP and type_.element is not None:
        return {key: as_told(one, type_.element) for key, one in value.items()}
    return value


def changed(count: int) -> list[bytes]:
    """The message with some fields that are absent, null or of another kind."""
    chance = random.Random(5)
    values = [None, 1, -2.5, True, "a", "2026-01-31T12:00:00Z", [], [None], {}, {"a": None}, [["x"]], "closed"]
    made = [MESSAGE]
    for _ in range(count):
        message = dict(MESSAGE)
        for name in chance.sample(list(TYPES), 2):
            if chance.random() < 0.5:
                message.pop(name, None)
            else:
                message[name] = chance.choice(values)
        made.append(message)
    return [msgspec.json.encode(message) for message in made]


def test_values_are_those_of_expressions_and_misfits_those_of_pushes() -> None:
    validator = compile_validator(FIELDS, ExtraFields.ALLOW)
    payloads = changed(400)
    columns, misfits = FieldReader(FIELDS).read(payloads)
    read = [column.to_pylist() for column in columns]
    assert misfits == [misfit(validator, payload) for payload in payloads]
    for index, payload in enumerate(payloads):
        found = {name: like_json(read[place][index], field.type) for place, (name, field) in enumerate(FIELDS.items())}
        if misfits[index] is not None:
            assert set(found.values()) == {None}
            continue
        meant = decode(validator, payload)
        assert found == {name: as_told(meant[name], field.type) for name, field in FIELDS.items()}, payload
    assert 40 < misfits.count(None) < 360


def test_json_is_the_text_of_the_message_and_its_null_is_a_value_unless_it_may_be_absent() -> None:
    fields = {name: parse_field(text) for name, text in {"j": "json", "o": "json?", "d": "json = [1.10]"}.items()}
    payloads = [b'{"j": {"b" : 1.10}, "o": null}', b'{"j":null,"o":"null","d":null}']
    columns, _ = FieldReader(fields).read(payloads)
    assert [column.to_pylist() for column in columns] == [['{"b" : 1.10}', "null"], [None, '"null"'], ["[1.1]", "null"]]


def test_what_is_not_asked_for_has_neither_fields_nor_a_misfit() -> None:
    columns, misfits = FieldReader({"n": parse_field("int")}).read([None, b'{"n":1,"more":2}', b"[]"])
    assert columns[0].to_pylist() == [None, 1, None]
    assert [unfit is None for unfit in misfits] == [True, True, False]


def test_a_name_that_is_taken_gets_a_prefix_and_moves_no_other() -> None:
    assert column_names(["total", "payload"]) == {"total": "total", "payload": "message_payload"}
    assert column_names(["payload", "message_payload"]) == {
        "payload": "message_message_payload", "message_payload": "message_payload",
    }  # fmt: skip
    assert column_names(["Total", "total", "SEQ"]) == {"Total": "Total", "total": "message_total", "SEQ": "message_SEQ"}
    assert {"created_at", "date", "queue", "headers"} <= TAKEN


@pytest.mark.parametrize(
    ("type_", "sql"),
    [
        ("uuid", "string"), ("enum(a)", "string"), ("int?", "bigint"), ("float", "double"), ("bool", "boolean"), ("time", "timestamp"),
        ("json", "string"), ("list<list<int?>>", "array<array<bigint>>"), ("map<uuid, list<time>>", "map<string,array<timestamp>>"),
    ],
)  # fmt: skip
def test_every_type_has_one_of_spark(type_: str, sql: str) -> None:
    assert sql_type(arrow_type(parse_field(type_).type)) == sql
