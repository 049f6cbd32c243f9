"""OpenAPI states the limits of parameters that are enforced: what is beyond one is refused, what is at it is not."""

from __future__ import annotations

from math import inf
from typing import Any
from uuid import UUID

import pytest

from skep.http.openapi import document
from skep.http.stated_limits import stated
from tests.http.driver import Api
from tests.http.every import every_operation

OPERATIONS = every_operation()
UNSTATED = {
    "olderThan": "any number of seconds",
    "epoch": "of staging, by its own rules",
    "partition": "of staging",
    "attempt": "of staging",
    "chunk": "of staging",
    "from": "a place in a log, which is cut to what is there",
    "to": "a place in a log, which is cut to what is there",
    "limit": "of the log and the tables: what is too much is cut",
    "maxBytes": "of a log, by the server's own limit",
    "until": "a place in a log, which is cut to what is there",
}


def test_every_number_of_a_parameter_has_a_stated_limit_or_a_reason_for_none() -> None:
    for operation in OPERATIONS:
        for parameter in operation.parameters:
            if parameter.type in (int, float):
                assert stated(parameter) or parameter.name in UNSTATED, (operation.path, parameter.name)


PATHS = document(OPERATIONS)["paths"]


def schema(path: str, name: str) -> dict[str, Any]:
    """What the document says of a parameter."""
    found: dict[str, Any] = next(one["schema"] for one in PATHS[path]["get"]["parameters"] if one.get("name") == name)
    return found


def fits(stated_schema: dict[str, Any], text: str) -> bool:
    """Whether a value is within what a schema states."""
    if stated_schema["type"] in ("integer", "number"):
        number = int(text)
        is_above = stated_schema.get("minimum", -inf) <= number and number > stated_schema.get("exclusiveMinimum", -inf)
        return bool(is_above and number <= stated_schema.get("maximum", inf))
    if stated_schema.get("format") == "uuid":
        try:
            return str(UUID(text)) == text
        except ValueError:
            return False
    return bool(stated_schema.get("minLength", 0) <= len(text) <= stated_schema.get("maxLength", inf))


def test_the_document_states_them() -> None:
    assert schema("/api/v1/messages", "limit") == {"type": "integer", "minimum": 1, "maximum": 1000}
    assert schema("/api/v1/messages", "traceId") == {"type": "string", "format": "uuid"}
    assert schema("/api/v1/pop", "consumerGroup") == {"type": "string", "minLength": 1, "maxLength": 255}


@pytest.mark.parametrize(
    ("path", "query", "within"),
    [
        ("/api/v1/messages?queue=q&", "limit=0", False),
        ("/api/v1/messages?queue=q&", "limit=1", True),
        ("/api/v1/messages?queue=q&", "limit=1000", True),
        ("/api/v1/messages?queue=q&", "limit=1001", False),
        ("/api/v1/messages?queue=q&", "preview=65536", True),
        ("/api/v1/messages?queue=q&", "preview=65537", False),
        ("/api/v1/messages?queue=q&", "after=9223372036854775807", True),
        ("/api/v1/messages?queue=q&", "after=9223372036854775808", False),
        ("/api/v1/messages?queue=q&", "traceId=nothing", False),
        ("/api/v1/pop/queue/q?", "batch=0", False),
        ("/api/v1/pop/queue/q?", "partitions=1000000", True),
        ("/api/v1/pop/queue/q?", "partitions=1000001", False),
        ("/api/v1/pop/queue/q?", "leaseSeconds=0", False),
        ("/api/v1/pop/queue/q?", "leaseSeconds=2592000", True),
        ("/api/v1/pop/queue/q?", "leaseSeconds=2592001", False),
        ("/api/v1/pop/queue/q?", "consumerGroup=" + 255 * "g", True),
        ("/api/v1/pop/queue/q?", "consumerGroup=" + 256 * "g", False),
        ("/api/v1/status/leases?", "expiringWithin=3153600000", True),
        ("/api/v1/status/leases?", "expiringWithin=3153600001", False),
    ],
)
def test_what_is_stated_is_enforced(api: Api, path: str, query: str, within: bool) -> None:
    api.push("q", 1)
    name, _, value = query.partition("=")

    assert fits(schema(path.partition("?")[0].replace("/queue/q", "/queue/{queue}"), name), value) is within
    assert (api.get(path + query).status == 422) is not within
