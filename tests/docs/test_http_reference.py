"""The HTTP reference names every operation and no other, and its examples are answered as it shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from msgspec import Struct

from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api, Reply
from tests.http.every import every_route

PAGE = (Path(__file__).resolve().parents[2] / "docs/http.md").read_text(encoding="utf-8")
BASE = "http://127.0.0.1:6632"
EXAMPLE = re.compile(r"^```sh\n(curl .*?)^```\n\n```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPERATIONS = every_route()
REST = "…"


def test_every_operation_is_documented_and_no_other() -> None:
    told = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \|", PAGE, re.MULTILINE)

    assert sorted(told) == sorted((operation.method, operation.path) for operation in OPERATIONS)


def test_every_parameter_is_documented() -> None:
    told = set(re.findall(r"`(\w+)(?:=\w+)?`", PAGE))

    missing = {(o.path, name) for o in OPERATIONS for name in o.query_names if name not in told}
    assert not missing


def test_every_field_of_a_request_is_documented() -> None:
    told = set(re.findall(r"`(\w+)(?:=\w+)?`", PAGE))
    parts = [part for o in OPERATIONS for part in (o.request if isinstance(o.request, tuple) else (o.request,))]
    requests = [part for part in parts if isinstance(part, type) and issubclass(part, Struct)]

    missing = {(request, name) for request in requests for name in request.__struct_encode_fields__ if name not in told}
    assert requests
    assert not missing


def test_every_group_of_operations_has_an_example() -> None:
    chapters = [chapter for chapter in re.split(r"^## ", PAGE, flags=re.MULTILINE) if "| route |" in chapter]

    assert len(chapters) == len({operation.tag for operation in OPERATIONS})
    assert [chapter.partition("\n")[0] for chapter in chapters if not EXAMPLE.search(chapter)] == []


def test_examples_are_answered_as_shown() -> None:
    examples = EXAMPLE.findall(PAGE)
    with running_server() as server:
        lease_id = ""
        for line, shown in examples:
            reply = curl(server, line.replace("LEASE_ID", lease_id))
            assert reply.status in (200, 201, 202), line
            answered, told = shape(reply.json), shape(json.loads(shown))
            assert without_rest(answered, told) == told, line
            found = re.search(rb'"leaseId":"([^"]+)"', reply.body)
            lease_id = found[1].decode() if found else lease_id


def curl(server: RunningServer, line: str) -> Reply:
    """What a curl line means, without the program."""
    words = iter(shlex.split(line.replace("\\\n", " "))[1:])
    method, url, body = "", "", None
    headers: dict[str, str] = {}
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-d":
                body = next(words).encode()
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case _:
                url = word
    assert url.startswith(BASE)
    api = Api(server, "default")
    try:
        return api.request(method or ("GET" if body is None else "POST"), url.removeprefix(BASE), body, headers)
    finally:
        api.close()


def without_rest(answered: Any, told: Any) -> Any:
    """What was answered, without the fields that an example sums up as "…"."""
    if not isinstance(answered, dict) or not isinstance(told, dict):
        return answered
    kept = {name: without_rest(inner, told.get(name)) for name, inner in answered.items()}
    return {**{name: kept.get(name) for name in told}, REST: told[REST]} if REST in told else kept


def shape(value: Any) -> Any:
    """Names and types, without what differs from run to run."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [shape(inner) for inner in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
