"""The reference: an OpenAPI document of all that is served, and a page that asks nobody else for anything."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from skep.http.app import HttpApp
from skep.http.reference import page
from skep.testing.server import RunningServer
from tests.http.driver import Api


def references(value: Any) -> Iterator[str]:
    """Every ``$ref`` in a document."""
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


@pytest.fixture
def document(sqlite_server: RunningServer) -> dict[str, Any]:
    api = Api(sqlite_server, "default")
    reply = api.get("/openapi.json")
    api.close()
    assert reply.status == 200
    found: dict[str, Any] = reply.json
    return found


def test_every_operation_is_in_the_document_and_no_other(
    document: dict[str, Any], sqlite_server: RunningServer
) -> None:
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}

    assert told == {(o.method, o.path) for o in HttpApp(sqlite_server.engine, sqlite_server.catalogue).routes}
    assert document["openapi"] == "3.1.0"


def test_every_reference_in_the_document_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in references(document):
        target: Any = document
        for part in reference.removeprefix("#/").split("/"):
            target = target[part]
        assert target


def test_operations_have_names_of_their_own_and_all_parameters_of_their_path(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(names)) == len(names)
    for path, methods in document["paths"].items():
        for operation in methods.values():
            told = {one["name"] for one in operation.get("parameters", []) if one.get("in") == "path"}
            assert told == set(re.findall(r"{(\w+)}", path))


def test_names_and_times_are_told_as_they_are_on_the_wire(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]

    assert "transactionId" in schemas["PushItem"]["properties"]
    assert "lease_seconds" in schemas["QueueSettings"]["properties"]
    assert schemas["PoppedMessage"]["properties"]["createdAt"]["format"] == "date-time"
    assert schemas["PushItem"]["additionalProperties"] is False


def test_the_page_asks_nobody_else_for_anything(api: Api) -> None:
    reply = api.get("/docs")

    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = reply.body.decode()
    outside = [url for url in re.findall(r"(?:https?:)?//[\w.-]+", text) if "www.w3.org" not in url]
    assert outside == []
    assert set(re.findall(r'(?:src|href)="([^"#]+)', text)) - {"openapi.json"} == set(
        re.findall(r'href="(data:[^"]+?)#?(?=["#])', text)
    )


def test_the_policy_of_the_page_allows_its_own_script_and_style_only() -> None:
    told = page()

    allowed = re.findall(r"'sha256-([^']+)'", told.policy.decode())
    html = told.html.decode()
    parts = [re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL) for tag in ("style", "script")]
    assert [len(found) for found in parts] == [1, 1]
    assert allowed == [base64.b64encode(hashlib.sha256(found[0].encode()).digest()).decode() for found in parts]
    assert "unsafe" not in told.policy.decode()
