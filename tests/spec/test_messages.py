"""A message that does not fit is told by its field, its value and what was expected; one that does is let through."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.spec import compile_validator, decode, export, load, misfit, misfit_of
from skep.spec.export import ExportFormat
from skep.spec.ir import ExtraFields
from skep.spec.types import parse_field
from tests.spec.incidents import INCIDENTS

FIELDS = {
    "id": parse_field("uuid"),
    "class": parse_field("string"),
    "n": parse_field("int"),
    "price": parse_field("float"),
    "at": parse_field("time"),
    "state": parse_field("enum(open, closed) = open"),
    "tags": parse_field("list<string>"),
    "by": parse_field("map<string, list<int>>"),
    "note": parse_field("string?"),
    "any": parse_field("json"),
}
STRICT = compile_validator(FIELDS)
LENIENT = compile_validator(FIELDS, ExtraFields.ALLOW)
GOOD: dict[str, object] = {
    "id": "0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d", "class": "x", "n": 1, "price": 2, "at": "2026-01-01T00:00:00Z", "tags": ["a"],
    "by": {"k": [1]}, "any": {"deep": [None]},
}  # fmt: skip


def payload(**changes: object) -> bytes:
    return msgspec.json.encode({name: value for name, value in (GOOD | changes).items() if value is not ...})


@pytest.mark.parametrize(
    "message",
    [
        payload(), payload(note=None), payload(note="x", state="closed"), payload(any=None), payload(price=2.5),
        payload(at="2026-01-01T02:00:00.5+02:00"),
    ],
)  # fmt: skip
def test_what_fits_is_let_through(message: bytes) -> None:
    assert misfit(STRICT, message) is None
    assert misfit_of(STRICT, msgspec.json.decode(message)) is None


@pytest.mark.parametrize(
    ("message", "field", "value", "expected"),
    [
        (payload(n="1"), "n", '"1"', "int"),
        (payload(n=1.5), "n", "1.5", "int"),
        (payload(n=2**63), "n", "9223372036854775808", "int"),
        (payload().replace(b'"n":1', b'"n":' + b"9" * 30), "n", "9" * 30, "int"),
        (payload(n=True), "n", "true", "int"),
        (payload(n=...), "n", None, "int, which is required"),
        (payload(at="noon"), "at", '"noon"', "time"),
        (payload(at="2026-01-01T00:00:00"), "at", '"2026-01-01T00:00:00"', "time"),
        (payload(id="x"), "id", '"x"', "uuid"),
        (payload(state="shut"), "state", '"shut"', "enum(open, closed)"),
        (payload(tags=["a", 2]), "tags[1]", "2", "string"),
        (payload(by={"k": [1, "x"]}), "by[...][1]", "{'k': [1, 'x']}", "int"),
        (payload(note=5), "note", "5", "string?"),
        (payload(extra=5), "extra", "5", "no field of this name"),
        (payload(**{"class": None}), "class", "null", "string"),
        (b"[1]", "", "[1]", "an object"),
    ],
)
def test_what_does_not_fit_is_told(message: bytes, field: str, value: str | None, expected: str) -> None:
    found = misfit(STRICT, message)
    assert found is not None
    assert (found.field, found.value, found.expected) == (field, value, expected)


@pytest.mark.parametrize("message", [b"", b"{", b"\xff", b'{"any": "\xff"}', b"nul", b"[" * 100_000])
def test_what_is_no_json_is_told(message: bytes) -> None:
    assert misfit(STRICT, message) is not None


def test_bytes_that_are_no_text_are_found_inside_json_fields_too() -> None:
    spoilt = payload(any="?").replace(b'"?"', b'"\xff"')
    assert misfit(STRICT, spoilt) is not None


def test_extra_fields_are_let_through_where_the_spec_says_so() -> None:
    assert misfit(LENIENT, payload(extra=5)) is None


def test_defaults_are_filled_in_for_expressions() -> None:
    message = decode(STRICT, payload())
    assert (message["state"], message["note"], message["class"]) == ("open", None, "x")


def test_a_misfit_can_be_read() -> None:
    assert str(misfit(STRICT, payload(n="1"))) == "field 'n' does not fit: expected int, not \"1\""


@settings(max_examples=200)
@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5).map(msgspec.json.encode)
)
def test_no_bytes_make_the_validator_crash(message: bytes) -> None:
    misfit(STRICT, message)


def test_json_schema_of_every_message_type() -> None:
    document = msgspec.json.decode(export(load(INCIDENTS, "i.skep"), ExportFormat.JSONSCHEMA))
    assert document["$defs"]["Incoming"] == {
        "type": "object",
        "properties": {
            "payload": {},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}},
            "source_ip": {"type": "string"},
            "received_at": {"type": "string", "format": "date-time"},
        },
        "required": ["payload", "headers", "source_ip", "received_at"],
        "additionalProperties": False,
    }


def test_async_api_has_a_channel_for_every_queue_and_webhook() -> None:
    document = msgspec.json.decode(export(load(INCIDENTS, "i.skep"), ExportFormat.ASYNCAPI))
    assert document["asyncapi"] == "3.0.0"
    assert {name: channel["address"] for name, channel in document["channels"].items()} == {
        "queue_Incoming": "Incoming", "queue_IncomingDead": "IncomingDead", "webhook_Alerts": "/hook/Alerts",
    }  # fmt: skip
    assert document["operations"]["receive_webhook_Alerts"]["channel"] == {"$ref": "#/channels/webhook_Alerts"}
    for operation in document["operations"].values():
        channel = operation["channel"]["$ref"].removeprefix("#/channels/")
        assert channel in document["channels"]
