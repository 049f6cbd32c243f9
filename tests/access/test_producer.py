"""The producer's identity is on every message, by whatever way it came, and nobody can forge it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from skep.model.key import Verb
from skep.wire.log import ARROW
from tests.access.driver import Door
from tests.access.requests import arrow

FORGED: list[Any] = [
    {"skep-producer": "key:boss"},
    {"Skep-Producer": "key:boss", "a": "b"},
    {" SKEP-PRODUCER ": "key:boss"},
    {"Skep-First-Producer": "key:boss"},
    {},
    None,
]


def named(door: Door, token: str) -> str:
    return f"key:{token.split('_')[1]}"


def producers(door: Door, queue: str = "orders") -> list[Any]:
    popped = door.caller(Verb.POP).pop(queue)
    return [] if popped.status == 204 else [message["headers"] for message in popped.json["messages"]]


@pytest.mark.parametrize("headers", FORGED)
def test_a_push_is_stamped_and_a_forged_stamp_is_left_out(door: Door, headers: Any) -> None:
    key = door.key(Verb.PUSH)
    assert door.with_token(key.text).push("orders", 1, headers=headers).status == 201

    [found] = producers(door)
    assert found.pop("skep-producer") == named(door, key.text)
    assert not any("producer" in name.lower() for name in found)


def test_a_name_written_with_escapes_is_the_same_name(door: Door) -> None:
    key = door.key(Verb.PUSH)
    body = rb'{"items":[{"queue":"orders","payload":1,"headers":{"skep\u002dproducer":"key:boss"}}]}'
    door.with_token(key.text).request("POST", "/api/v1/push", body, {"Content-Type": "application/json"})

    assert producers(door) == [{"skep-producer": named(door, key.text)}]


def test_headers_that_are_none_are_refused_as_ever(door: Door) -> None:
    assert door.caller(Verb.PUSH).push("orders", 1, headers=["skep-producer"]).code == "INVALID_HEADERS"


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"headers": [json.dumps({"skep-producer": "key:boss"})]},
        {"headers": ['{"skep-producer":"key:boss","Skep-Producer":"key:boss"}']},
        {"headers": [None]},
    ],
)
@pytest.mark.parametrize("staged", [False, True])
def test_columns_are_stamped_too(door: Door, columns: dict[str, list[Any]], staged: bool) -> None:
    key = door.key(Verb.PUSH)
    caller = door.with_token(key.text)
    path = "/api/v1/staging/q/1/0/1" if staged else "/api/v1/push"
    reply = caller.request("POST", f"{path}?queue=orders", arrow([b"1"], **columns), {"Content-Type": ARROW})
    assert reply.status == 201, reply
    if staged:
        attempts = {"attempts": [{"partition": 0, "attempt": 1, "messages": 1}]}
        assert caller.post("/api/v1/staging/q/1/publish", attempts).status == 200

    assert producers(door) == [{"skep-producer": named(door, key.text)}]


@pytest.mark.parametrize("on", ["the dashboard", "the API"])
def test_who_edits_a_dead_letter_is_the_producer_of_what_goes_back(door: Door, on: str) -> None:
    first, editor = door.key(Verb.PUSH), door.key(*Verb)
    assert door.with_token(first.text).push("orders", {"n": 1}, headers={"a": "b"}).status == 201
    caller = door.with_token(editor.text)
    [message] = caller.pop("orders").json["messages"]
    died = {"leaseId": message["leaseId"], "seq": message["seq"], "status": "dlq", "error": "bad"}
    assert caller.post("/api/v1/ack", died).status == 200
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    if on == "the dashboard":
        edited = caller.request("POST", "/dead-letters/orders.dead/letters/1/edit", b'payload={"n": 2}', form)
        assert edited.status == 303
    else:
        assert caller.post("/api/v1/dlq/orders/1/replay", {"payload": {"n": 2}}).status == 200

    assert producers(door) == [
        {"a": "b", "skep-producer": named(door, editor.text), "skep-first-producer": named(door, first.text)}
    ]


def test_a_transaction_is_stamped(door: Door) -> None:
    key = door.key(Verb.PUSH)
    body = {"acknowledgments": [], "items": [{"queue": "orders", "payload": 1, "headers": {"skep-producer": "x"}}]}
    assert door.with_token(key.text).post("/api/v1/transaction", body).status == 200

    assert producers(door) == [{"skep-producer": named(door, key.text)}]
