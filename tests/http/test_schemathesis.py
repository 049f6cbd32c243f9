"""Whatever the OpenAPI document allows, and much that it does not, is answered as it says and never with a 5xx.

What it allows is not refused with 422 either, but for what no schema can say (`tests/http/unsayable.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from skep.crypto.master import MasterKeys, new_master_line
from skep.http.request.route import Media, Route
from skep.testing.server import RunningServer, running_server
from skep.wire.log import ARROW
from tests.http.driver import Api
from tests.http.every import described_routes
from tests.http.unsayable import reason_for

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 2
MANY_EXAMPLES = 60
LONG_LIST = 100
PATIENCE_SECONDS = 120
"""A busy machine takes long to import pyarrow, which the first request for Arrow waits for."""

TENANT = "stocked"
TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"
SHOP = b"""{"name": "Shop", "queues": {"Q": {"message_type": {"n": "int"}}, "Rings": {"message_type": {"payload": "json"}}},
  "webhooks": {"Bell": {"queue": "Rings", "verify": {"scheme": "none"}}}}"""
THERE = {
    "queue": "orders", "name": "orders", "partition": "p", "transactionId": "t", "group": "g", "seq": 1, "letter": 1,
    "traceId": TRACE, "app": "Shop", "type": "Order", "id": "1001",
    "webhook": "Bell", "tenant": "north",
}  # fmt: skip
"""Names of what is there, so that valid requests get further than a 404."""
DEAD = "/admin/queues/{name}/dlq/{id}"
"""Where an `id` is that of a dead letter, and not of an entity."""


@schemathesis.serializer(ARROW)
def as_it_is(_: Any, value: Any) -> bytes:
    """A body that says it is Arrow, and hardly ever is."""
    return value if isinstance(value, bytes) else str(value).encode(errors="replace")


def can_be_wrong(operation: Route) -> bool:
    """Whether a request can break its schema: any text is a name, so only other types and bodies can."""
    takes_anything = isinstance(operation.request, Media) and operation.request.schema is Any
    return (operation.request is not None and not takes_anything) or any(
        parameter.type is not str for parameter in operation.parameters if parameter.name in operation.query_names
    )


ROUTES = described_routes()
CASES = [(o.method, o.path, GenerationMode.POSITIVE) for o in ROUTES] + [
    (o.method, o.path, GenerationMode.NEGATIVE) for o in ROUTES if can_be_wrong(o)
]
each_case = pytest.mark.parametrize(
    ("method", "path", "mode"), CASES, ids=[f"{method} {path} {mode.value}" for method, path, mode in CASES]
)


@pytest.fixture(scope="module")
def empty_server() -> Iterator[RunningServer]:
    """A server whose queues may come and go, and may be encrypted."""
    with running_server(masters=MasterKeys(new_master_line("tests"))) as server:
        yield server


@pytest.fixture(scope="module")
def described(empty_server: RunningServer) -> Any:
    """The document of a running server."""
    document = requests.get(f"{empty_server.url}/openapi.json", timeout=PATIENCE_SECONDS).json()
    described = schemathesis.openapi.from_dict(without_long_lists(document))
    described.config.update(base_url=empty_server.url)
    return described


def without_long_lists(document: Any) -> Any:
    """The same document without the limits of lists that can be very long.

    A list that breaks one is too long to be generated: it is given up after seconds. `test_stated_limits.py` sends such lists.
    """
    if isinstance(document, dict):
        limit = document.get("maxItems", 0)
        kept = {name: value for name, value in document.items() if name != "maxItems" or limit <= LONG_LIST}
        return {name: without_long_lists(value) for name, value in kept.items()}
    return [without_long_lists(value) for value in document] if isinstance(document, list) else document


@pytest.fixture
def stocked(empty_server: RunningServer) -> None:
    """A tenant with something of everything."""
    api = Api(empty_server, TENANT)
    for number in range(4):
        api.push("orders", {"n": number}, partition="p", transactionId=f"t{number or ''}", traceId=TRACE)
    for message in api.pop("orders", batch=2, query="&consumerGroup=g"):
        api.ack(message, "dlq", error="no")
    api.pop("orders", batch=1, query="&consumerGroup=g")
    event = {"name": "Placed", "data": {}}
    effect = {"entity": "Order", "id": "1001", "version": 0, "events": [event, event], "state": {}}
    api.post("/api/v1/transaction", {"effects": [effect]})
    api.post("/api/v1/endpoints/report", {"url": "https://example.com", "report": "failed"})
    api.request("PUT", "/api/v1/apps/Shop", SHOP)
    api.close()


def check(described: Any, method: str, path: str, mode: GenerationMode, examples: int) -> None:
    """Call an operation with as many requests as there are examples."""
    session = requests.Session()

    @settings(max_examples=examples, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(case=described[path][method].as_strategy(generation_mode=mode))
    def answers_as_described(case: Any) -> None:
        if mode is GenerationMode.POSITIVE:
            meet_what_is_there(case, path)
        if "wait" in (case.query or ()):
            case.query["timeout"] = 0.01
        response = case.call_and_validate(checks=CHECKS, session=session, timeout=PATIENCE_SECONDS)
        if mode is GenerationMode.POSITIVE and response.status_code == 422:
            error = response.json()["error"]
            assert reason_for(error["code"], error["message"]), f"{error} for {case.as_curl_command()}"

    with session:
        answers_as_described()


def meet_what_is_there(case: Any, path: str) -> None:
    """Change names of a request to those of what is there, where they are of the same type."""
    case.headers["Skep-Tenant"] = TENANT
    for given_ in (case.path_parameters or {}, case.query or {}):
        fitting = {name for name, value in THERE.items() if type(given_.get(name)) is type(value)}
        given_.update({name: THERE[name] for name in fitting if not (name == "id" and path.startswith(DEAD))})
    if case.media_type == "application/json":
        case.body = without_fractions(case.body)


def without_fractions(value: Any) -> Any:
    """The same JSON, with whole numbers written as such: 1.0 is the one integer that is always refused."""
    if isinstance(value, dict):
        return {name: without_fractions(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [without_fractions(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


@each_case
@pytest.mark.usefixtures("stocked")
def test_answers_are_as_the_document_says(described: Any, method: str, path: str, mode: GenerationMode) -> None:
    check(described, method, path, mode, EXAMPLES)


@each_case
@pytest.mark.slow
@pytest.mark.usefixtures("stocked")
def test_very_many_answers_are_as_the_document_says(
    described: Any, method: str, path: str, mode: GenerationMode
) -> None:
    check(described, method, path, mode, MANY_EXAMPLES)
