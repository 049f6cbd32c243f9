"""Every reason to refuse what fits its schema is real: its requests fit the schema, and are refused with 422 for that reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from skep.config import Limits
from skep.http.openapi import document
from skep.testing.server import RunningServer
from tests.http.driver import Api
from tests.http.every import described_routes
from tests.http.unsayable import REASONS, Example, reason_for

DOCUMENT = document(described_routes(), Limits())
JSON = {"Content-Type": "application/json"}
TYPED = b'{"name": "Unsayable", "queues": {"UnsayablyTyped": {"message_type": {"n": "int"}}}}'
EXAMPLES = [(name, example) for name, reason in REASONS.items() for example in reason.examples]


def operation_of(example: Example) -> dict[str, Any]:
    """What the document says of a request; a path without braces comes before one with them."""
    path = example.path.partition("?")[0]
    for told, methods in sorted(DOCUMENT["paths"].items(), key=lambda one: one[0].count("{")):
        if example.method.lower() in methods and re.fullmatch(re.sub("{[^}]*}", "[^/]+", told), path):
            found: dict[str, Any] = methods[example.method.lower()]
            return found
    raise AssertionError(example)


@pytest.fixture
def stocked(sqlite_server: RunningServer) -> Iterator[Api]:
    api = Api(sqlite_server, "unsayable")
    api.push("q", 1)
    api.post("/api/v1/configure", {"queue": "none kept", "settings": {"dead_letter_queue": "none"}})
    assert api.request("PUT", "/api/v1/apps/Unsayable", TYPED, JSON).status == 200
    yield api
    api.delete("/api/v1/apps/Unsayable")
    api.close()


@pytest.mark.parametrize(("name", "example"), EXAMPLES, ids=[f"{name}: {example.path}" for name, example in EXAMPLES])
def test_a_request_that_fits_its_schema_is_refused_for_what_the_schema_cannot_say(
    stocked: Api, name: str, example: Example
) -> None:
    if example.body is not None:
        body = operation_of(example)["requestBody"]["content"][example.kind]["schema"]
        jsonschema_rs.validate({**body, "components": DOCUMENT["components"]}, example.body, validate_formats=True)

    body_text = None if example.body is None else json.dumps(example.body).encode()
    reply = stocked.request(
        example.method, example.path, body_text, {"Content-Type": example.kind, "Skep-Tenant": example.tenant}
    )

    assert reply.status == 422, reply
    assert reason_for(reply.code, reply.json["error"]["message"]) == name, reply.json
