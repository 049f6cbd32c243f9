"""OpenAPI states the limits that are enforced: what is beyond one is refused, what is at it is not.

That what fits is not refused is held for all routes by `test_schemathesis.py`.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from copy import deepcopy
from math import inf
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import pyarrow as pa
import pytest

from skep.config import EngineSettings, Limits
from skep.http.openapi import document
from skep.http.request.route import Media, Route
from skep.model import Token
from skep.testing.postgres import PostgresServer
from skep.testing.server import running_server
from skep.wire.leases import LeaseName, lease_id
from skep.wire.log import ARROW
from tests.http.driver import Api
from tests.http.every import described_routes

ROUTES = described_routes()
DOCUMENT = document(ROUTES, Limits())
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]
TENANT = "stated"
UUID = "01a1de02-7b1f-7061-b55a-489bc83b0732"
LEASE = lease_id(LeaseName(Token(bytes(16)), TENANT, "q", "g", "p"))
LIMITING = {
    "minimum", "maximum", "exclusiveMinimum", "minLength", "maxLength", "pattern", "format", "enum", "minItems", "maxItems", "items",
    "anyOf", "$ref",
}  # fmt: skip

RUN_FIGURES = ("rowsIn", "rowsOut", "rowsRejected", "rowsPerSecond")
UNSTATED = {
    "/api/v1/log/{queue} columns": "names of columns, separated by commas: the error names those that there are",
    "/hook/{webhook} webhook": "what is none is not found",
    "/hook/{webhook}/{tenant} webhook": "what is none is not found",
    "/api/v1/webhooks/{webhook}/refusals webhook": "what is none is not found",
    "/api/v1/apps/{app} app": "what is none is not found",
    "/api/v1/keys/{key} key": "what is none is not found",
    "Ack error": "what is too long is cut",
    "UnfitMessage error": "what is too long is cut",
    "EndpointReport reason": "what is too long is cut",
    **{
        f"{struct} {name}": "what a run tells of itself is kept as it is"
        for struct, more in (("RunReport", ()), ("RunStage", ("seconds",)), ("RunCheck", ()))
        for name in ("name", "message", *(("rows",) if struct == "RunCheck" else RUN_FIGURES), *more)
    },
}  # fmt: skip
"""Texts and numbers of requests that have no limit, and why."""


def parts(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """What a value may be, apart from null."""
    return [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]


def followed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema that another one refers to, or itself."""
    found: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def fields(body: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The fields that a body is made of, each with its struct and its schema."""
    open_, seen = [body], set()
    while open_:
        for part in parts(open_.pop()):
            name = part.get("$ref", "").rpartition("/")[2]
            if isinstance(part.get("items"), dict):  # of a tuple there are no further items
                open_.append(part["items"])
            if name and name not in seen:
                seen.add(name)
                for field, schema in SCHEMAS[name].get("properties", {}).items():
                    yield name, field, schema
                    open_.append(schema)


def body_of(told: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of an operation's body of JSON."""
    found: dict[str, Any] | None = (
        told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    )
    return found


def stated() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every value of every request by its place, with its schema."""
    for path, methods in DOCUMENT["paths"].items():
        for told in methods.values():
            for one in told.get("parameters", []):
                if "$ref" not in one:
                    yield f"{path} {one['name']}", one["schema"]
            for struct, name, schema in fields(body_of(told) or {}):
                yield f"{struct} {name}", schema


def test_every_text_and_number_of_a_request_has_a_stated_limit_or_a_reason_for_none() -> None:
    without = {
        place
        for place, schema in stated()
        for part in parts(schema)
        if part.get("type") in ("string", "integer", "number") and not LIMITING & set(part)
    }

    assert without == set(UNSTATED)


def test_the_document_states_them() -> None:
    def parameter(path: str, name: str) -> dict[str, Any]:
        return next(one["schema"] for one in DOCUMENT["paths"][path]["get"]["parameters"] if one.get("name") == name)

    name = {
        "type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^\x00-\x1f\x7f-\x9f]*$", "not": {"enum": [".", ".."]},
    }  # fmt: skip
    assert parameter("/api/v1/messages", "limit") == {"type": "integer", "minimum": 1, "maximum": 1000}
    assert parameter("/api/v1/messages", "traceId") == {"type": "string", "format": "uuid"}
    assert parameter("/api/v1/pop/queue/{queue}", "queue") == parameter("/api/v1/pop", "consumerGroup") == name
    item = SCHEMAS["PushItem"]["properties"]
    assert item["queue"] == name
    assert item["traceId"]["anyOf"][0] == {"type": "string", "format": "uuid"}
    assert SCHEMAS["PoppedMessage"]["properties"]["id"] == {"type": "string", "format": "uuid"}
    assert SCHEMAS["QueueChanges"]["properties"]["max_attempts"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 1_000_000,
    }
    lease = SCHEMAS["Ack"]["properties"]["leaseId"]
    assert lease == SCHEMAS["PoppedMessage"]["properties"]["leaseId"]
    assert (lease["pattern"], lease["maxLength"]) == ("^lcQQ[A-Za-z0-9_-]*$", 8192)


def test_limits_that_are_settings_are_those_of_the_server() -> None:
    settings = EngineSettings(limits=Limits(push_messages=3, pop_messages=7))
    with running_server(settings=settings) as server:
        api = Api(server, TENANT)
        told = api.get("/openapi.json").json
        refused = api.push("q", 1, 2, 3, 4)
        taken = api.push("q", 1, 2, 3)
        api.close()

    assert told["components"]["schemas"]["PushRequest"]["properties"]["items"]["maxItems"] == 3
    [batch] = [one for one in told["paths"]["/api/v1/pop"]["get"]["parameters"] if one.get("name") == "batch"]
    assert batch["schema"]["maximum"] == 7
    assert (refused.status, taken.status) == (422, 201)


ANYTHING = "no limit"
"""Of a value that may be anything: what no store can hold is no fault of the server's."""
WAITING = {"/api/v1/log/{queue}/bounds": {"wait": "true", "after": 0}}
"""What a timeout needs to count at all, where that is more than wait=true."""
UNREAD = {"/api/v1/push queue": "JSON names the queue of each message; this one is for an Arrow stream"}


class Beyond(NamedTuple):
    """A request that breaks one limit of one value."""

    place: str
    limit: str
    path: str
    body: Any = None
    in_path: bool = False


def beyond(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Values that break a schema, each in one way."""
    if "minimum" in schema:
        yield "minimum", schema["minimum"] - 1
    if "exclusiveMinimum" in schema:
        yield "exclusiveMinimum", schema["exclusiveMinimum"]
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + 1
    if schema.get("minLength"):
        yield "minLength", ""
    if "maxLength" in schema:
        yield "maxLength", (schema["maxLength"] + 1) * "a"
    if schema.get("format") == "uuid":
        yield "format", "no UUID"
    if "pattern" in schema:
        yield "pattern", "\0"
    if schema.get("type") == "string" and not LIMITING & set(schema):
        yield ANYTHING, "\0"
    if "not" in schema:
        yield "not", schema["not"]["enum"][0]
    if "enum" in schema and schema.get("type") == "string":
        yield "enum", "none of them"
    if schema.get("minItems"):
        yield "minItems", []
    if "items" in schema:
        for limit, value in beyond(schema["items"]):
            yield f"items {limit}", [value]


def fitting(schema: dict[str, Any], name: str = "") -> Any:
    """A value that fits a schema, as small as it goes."""
    schema = followed(parts(schema)[0])
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "string" if schema.get("format") == "date-time":
            return "2027-01-01T00:00:00Z"
        case "string" if schema.get("format") == "uuid":
            return UUID
        case "string":
            return LEASE if name in ("leaseId", "lease", "leaseIds") else "q"
        case "boolean":
            return True
        case "array":
            return [fitting(schema["items"], name)]
        case "object":
            inner = schema.get("properties", {})
            return {one: fitting(inner[one], one) for one in schema.get("required", ()) if one in inner}
    return {}


def broken_bodies(schema: dict[str, Any], whole: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Bodies with one value that breaks its limit, here or further in."""
    target = followed(schema)
    struct = schema.get("$ref", "").rpartition("/")[2]
    for name, inner in target.get("properties", {}).items():
        for part in parts(inner):
            for limit, value in beyond(part):
                yield f"{struct} {name}", limit, {**deepcopy(whole), name: value}
            if "$ref" in part and followed(part).get("type") == "object":
                for place, limit, broken in broken_bodies(part, whole.get(name) or fitting(part)):
                    yield place, limit, {**deepcopy(whole), name: broken}
            if "$ref" in part.get("items", {}):
                for place, limit, broken in broken_bodies(part["items"], fitting(part["items"])):
                    yield place, limit, {**deepcopy(whole), name: [broken]}


def requests_beyond(operation: Route) -> Iterator[Beyond]:
    """Requests of an operation that break one limit each."""
    told = DOCUMENT["paths"][operation.path][operation.method.lower()]
    given = [one for one in told.get("parameters", []) if "$ref" not in one]
    needed = {one["name"]: fitting(one["schema"], one["name"]) for one in given if one["required"]}
    body = body_of(told)
    whole = None if body is None else fitting(body)

    def written(values: dict[str, Any]) -> str:
        values = {**values, **(WAITING.get(operation.path, {"wait": "true"}) if "timeout" in values else {})}
        path = operation.path
        for one in given:
            if one["in"] == "path":
                path = path.replace(f"{{{one['name']}}}", quote(str(values[one["name"]]), safe=""))
        query = [(one["name"], values[one["name"]]) for one in given if one["in"] == "query" and one["name"] in values]
        return f"{path}?{urlencode(query, doseq=True)}"

    for one in given:
        for limit, value in beyond(one["schema"]):
            if one["in"] == "path" and value in ("", "."):
                continue  # the path would be another one
            path, in_path = written({**needed, one["name"]: value}), one["in"] == "path"
            yield Beyond(f"{operation.path} {one['name']}", limit, path, whole, in_path)
    if body is not None:
        for place, limit, broken in broken_bodies(body, whole or {}):
            yield Beyond(place, limit, written(needed), broken)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def stocked(request: pytest.FixtureRequest, postgres_server: PostgresServer) -> Iterator[Api]:
    """A server of its own with a queue and a dead letter."""
    store = ":memory:" if request.param == "sqlite" else postgres_server.create_database()
    with running_server(store) as server:
        api = Api(server, TENANT)
        api.push("q", 1)
        [message] = api.pop("q")
        api.ack(message, "dlq")
        yield api
        api.close()
    if store != ":memory:":
        postgres_server.drop_database(store)


def arrow_stream() -> bytes:
    """A message as an Arrow stream."""
    table = pa.table({"payload": pa.array([b"1"])})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("operation", ROUTES, ids=[f"{one.method} {one.path}" for one in ROUTES])
def test_what_is_beyond_a_stated_limit_is_refused(stocked: Api, operation: Route) -> None:
    taken = []
    for one in requests_beyond(operation):
        body, media = None if one.body is None else json.dumps(one.body).encode(), "application/json"
        if operation.request == Media(ARROW):
            body, media = arrow_stream(), ARROW
        reply = stocked.request(operation.method, one.path, body, {"Content-Type": media})
        is_refused = (
            reply.status == 422
            or (one.limit == ANYTHING and reply.status < 500)
            or (one.in_path and reply.status == 404)
        )
        if not is_refused and one.place not in UNREAD:
            taken.append((one.place, one.limit, reply.status, reply.body[:200]))

    assert taken == []


def schema(path: str, name: str) -> dict[str, Any]:
    """What the document says of a parameter."""
    found: dict[str, Any] = next(
        one["schema"] for one in DOCUMENT["paths"][path]["get"]["parameters"] if one.get("name") == name
    )
    return found


def fits(stated_schema: dict[str, Any], text: str) -> bool:
    """Whether a value is within what a schema states."""
    if stated_schema["type"] in ("integer", "number"):
        number = int(text)
        is_above = stated_schema.get("minimum", -inf) <= number and number > stated_schema.get("exclusiveMinimum", -inf)
        return bool(is_above and number <= stated_schema.get("maximum", inf))
    if stated_schema.get("format") == "uuid":
        try:
            return str(uuid.UUID(text)) == text
        except ValueError:
            return False
    return bool(stated_schema.get("minLength", 0) <= len(text) <= stated_schema.get("maxLength", inf))


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
