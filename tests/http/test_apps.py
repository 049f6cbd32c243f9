"""Apps, typed pushes, entities and endpoints over a real socket. Apps are the server's, so each test has names of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from skep.spec.endpoint import endpoint_name
from skep.testing.server import RunningServer
from tests.http.driver import Api, Reply

NUMBERS = itertools.count(1)
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def default(server: RunningServer) -> Iterator[Api]:
    """A connection as the tenant whose queues apps declare."""
    api = Api(server, "default")
    yield api
    api.close()


@pytest.fixture
def name() -> str:
    """A name for an app and its queue that no other test has."""
    return f"App{next(NUMBERS)}"


def put(api: Api, name: str, query: str = "", **parts: Any) -> Reply:
    body = json.dumps({"name": name, **parts}).encode()
    return api.request("PUT", f"/api/v1/apps/{name}{query}", body, JSON)


def typed(name: str, **fields: str) -> dict[str, Any]:
    return {"queues": {name: {"message_type": fields}}}


def test_an_app_is_planned_applied_shown_and_forgotten(default: Api, name: str) -> None:
    planned = put(default, name, "?dryRun=true", **typed(name, n="int"))
    assert (planned.status, planned.json["revision"], planned.json["dryRun"]) == (200, None, True)
    assert default.get(f"/api/v1/apps/{name}").code == "APP_NOT_FOUND"

    applied = put(default, name, **typed(name, n="int"))
    assert applied.status == 200
    [change] = applied.json["changes"]
    assert (change["action"], change["queue"], change["destructive"]) == ("create", name, False)
    shown = default.get(f"/api/v1/apps/{name}").json
    assert (shown["document"]["queues"][name], shown["usable"]) == ({"message_type": {"n": "int"}}, True)
    assert shown["revision"] == applied.json["revision"]
    listed = {one["app"]: one for one in default.get("/api/v1/apps").json["apps"]}
    assert listed[name]["queues"] == [name]

    changed = put(default, name, queues={name: {"settings": {"max_depth": 7}}}).json
    assert changed["destructive"] is True
    assert changed["changes"][0]["changes"][0]["after"] == 7
    assert default.delete(f"/api/v1/apps/{name}?dryRun=true").json["dryRun"] is True
    assert default.delete(f"/api/v1/apps/{name}").status == 200
    assert default.delete(f"/api/v1/apps/{name}").code == "APP_NOT_FOUND"
    assert default.get(f"/api/v1/resources/queues/{name}").status == 200


def test_an_app_that_is_not_sound_is_refused_with_all_its_problems(default: Api, name: str) -> None:
    wrong = put(default, name, queues={name: {"key": "nope", "batch": 0}})
    assert (wrong.status, wrong.code) == (422, "INVALID_SPEC")
    assert len(wrong.json["error"]["details"]["problems"]) == 2
    unread = put(default, name, queues={name: {"nope": 1}})
    assert (unread.status, unread.code) == (422, "INVALID_SPEC")
    secret = put(
        default, name, queues={name: {}},
        webhooks={name: {"queue": name, "verify": {"scheme": "github", "secret_env": ["NOT_THERE"]}}},
    )  # fmt: skip
    assert secret.code == "INVALID_SPEC"
    assert "NOT_THERE" in secret.json["error"]["message"]
    other = default.request("PUT", f"/api/v1/apps/{name}", b'{"name": "other"}', JSON)
    assert other.code == "INVALID_REQUEST"


def test_a_push_that_does_not_fit_is_refused_by_index_field_and_value(default: Api, name: str) -> None:
    put(default, name, **typed(name, n="int", tags="list<string>"))
    refused = default.push(name, {"n": 1, "tags": []}, {"n": 2, "tags": ["a", 7]})
    assert (refused.status, refused.code) == (422, "MESSAGE_INVALID")
    details = refused.json["error"]["details"]
    assert (details["queue"], details["index"], details["field"], details["value"]) == (name, 1, "tags[1]", "7")
    assert default.pop(name) == []
    assert default.push(name, {"n": 1, "tags": []}).status == 201
    transaction = default.post("/api/v1/transaction", {"items": [{"queue": name, "payload": {}}]})
    assert (transaction.status, transaction.code) == (422, "MESSAGE_INVALID")


def test_misfits_are_counted_as_refused(default: Api, name: str) -> None:
    put(default, name, **typed(name, n="int"))
    default.push(name, {"n": 1})  # a queue that takes nothing is not counted by its name
    default.push(name, {"n": 1}, {"n": "1"})
    default.post("/api/v1/transaction", {"items": [{"queue": name, "payload": {}}]})
    arrow(default, name, b"{}", b"{}")
    metrics = default.get("/metrics").body.decode()
    [line] = [
        line for line in metrics.splitlines() if line.startswith("skep_refused_messages_total") and f'"{name}"' in line
    ]
    assert float(line.rpartition(" ")[2]) == 5


def arrow(default: Api, name: str, *payloads: bytes) -> Reply:
    batch = pa.record_batch({"payload": payloads})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    headers = {"Content-Type": "application/vnd.apache.arrow.stream"}
    return default.request("POST", f"/api/v1/push?queue={name}", sink.getvalue().to_pybytes(), headers)


def test_no_misfit_comes_in_by_arrow(default: Api, name: str) -> None:
    put(default, name, **typed(name, n="int"))
    refused = arrow(default, name, b'{"n":1}', b'{"n":"1"}')
    assert (refused.status, refused.code, refused.json["error"]["details"]["index"]) == (422, "MESSAGE_INVALID", 1)
    assert arrow(default, name, b'{"n":1}').status == 201
    assert default.get(f"/api/v1/log/{name}/bounds").json["lastSeq"] == 1


def test_repeats_by_arrow_are_told_by_the_spec(default: Api, name: str) -> None:
    put(default, name, queues={name: {"message_type": {"n": "int"}, "idempotency": {"source": "key", "value": "n"}}})
    assert arrow(default, name, b'{"n":1}', b'{"n":2}').status == 201
    again = arrow(default, name, b'{"n":2}', b'{"n":3}').json
    assert [one["status"] for one in again["messages"]] == ["duplicate", "stored"]


EVENT = {"name": "Placed", "data": {"total": 1}}


def effect(version: int, id_: str = "1", **fields: object) -> dict[str, object]:
    return {"entity": "Order", "id": id_, "version": version, "events": [EVENT], "state": {"v": version + 1}, **fields}


def test_I15_effects_receipts_acks_and_pushes_happen_together_or_not_at_all(api: Api) -> None:
    api.push("orders", 1)
    [message] = api.pop("orders")
    ack = {"leaseId": message["leaseId"], "seq": message["seq"]}
    receipt = {"scope": "command", "key": message["id"], "answer": {"ok": True}, "windowSeconds": 60}
    whole = {
        "acknowledgments": [ack], "items": [{"queue": "bills", "payload": 1}],
        "effects": [effect(0, cause=message["id"]), effect(1)], "receipts": [receipt],
    }  # fmt: skip
    late = api.post("/api/v1/transaction", {**whole, "effects": [effect(0), effect(5)]})
    assert (late.status, late.code, late.json["error"]["details"]["index"]) == (409, "ENTITY_CHANGED", 1)
    assert api.get("/api/v1/entities/Order/1").code == "ENTITY_NOT_FOUND"
    assert api.get("/api/v1/entities/Order/1/events").code == "ENTITY_NOT_FOUND"

    assert api.post("/api/v1/transaction", whole).json["committed"] is True
    entity = api.get("/api/v1/entities/Order/1").json
    assert (entity["version"], entity["state"]) == (2, {"v": 2})
    events = api.get("/api/v1/entities/Order/1/events").json["events"]
    assert [(one["number"], one["name"], one["data"], one["cause"]) for one in events] == [
        (1, "Placed", {"total": 1}, message["id"]),
        (2, "Placed", {"total": 1}, None),
    ]
    again = api.post("/api/v1/transaction", {"effects": [effect(2)], "receipts": [receipt]})
    assert (again.status, again.code) == (409, "RECEIPT_EXISTS")
    assert api.get("/api/v1/entities/Order/1").json["version"] == 2
    assert len(api.pop("bills")) == 1


def test_entities_are_listed_and_read_many_at_once(api: Api) -> None:
    api.post("/api/v1/transaction", {"effects": [effect(0, f"{number}") for number in range(5)]})
    assert api.get("/api/v1/entities").json == {"types": ["Order"]}
    page = api.get("/api/v1/entities/Order?limit=3").json
    assert [one["id"] for one in page["entities"]] == ["0", "1", "2"]
    rest = api.get(f"/api/v1/entities/Order?limit=3&after={page['after']}").json
    assert ([one["id"] for one in rest["entities"]], rest["after"]) == (["3", "4"], None)
    wanted = {
        "entities": [{"entity": "Order", "id": "4"}, {"entity": "Order", "id": "nope"}],
        "receipts": [{"scope": "s", "key": "k"}],
    }
    read = api.post("/api/v1/entities/read", wanted).json
    assert (read["entities"][0]["version"], read["entities"][1], read["receipts"]) == (1, None, [None])
    receipt = {"scope": "s", "key": "k", "answer": [1], "windowSeconds": 60}
    assert api.post("/api/v1/transaction", {"receipts": [receipt]}).status == 200
    assert api.post("/api/v1/entities/read", wanted).json["receipts"][0]["answer"] == [1]
    assert api.post("/api/v1/entities/read", {}).status == 422


def test_a_type_may_be_called_read(api: Api) -> None:
    api.post("/api/v1/transaction", {"effects": [{**effect(0), "entity": "read"}]})
    assert len(api.get("/api/v1/entities/read").json["entities"]) == 1


UNFIT = [
    {"effects": [{**effect(0), "state": 1}]},
    {"effects": [{**effect(0), "events": [{"name": "E", "data": []}]}]},
    {"effects": [{**effect(0), "events": []}]},
    {"effects": [effect(-1)]},
    {"effects": [effect(0, cause="nope")]},
    {"receipts": [{"scope": "s", "key": "k", "answer": 1, "windowSeconds": 0}]},
    {"receipts": [{"scope": "", "key": "k", "answer": 1, "windowSeconds": 1}]},
]


@pytest.mark.parametrize("body", UNFIT)
def test_effects_and_receipts_that_cannot_be_meant_are_refused(api: Api, body: dict[str, object]) -> None:
    assert api.post("/api/v1/transaction", body).status == 422


def test_tenants_have_entities_of_their_own(api: Api, server: RunningServer) -> None:
    api.push("orders", 1)
    api.post("/api/v1/transaction", {"effects": [effect(0)]})
    other = Api(server, f"{api.tenant}-other")
    assert other.get("/api/v1/entities/Order/1").code == "ENTITY_NOT_FOUND"
    other.close()
    found: list[str] = []
    after: str | None = ""
    while after is not None:
        page = api.get(f"/api/v1/resources/tenants?limit=50&after={after}").json
        found += page["tenants"]
        after = page["after"]
    assert api.tenant in found


def test_an_endpoint_rests_after_failures_stops_when_gone_and_is_reset(api: Api) -> None:
    url = "https://example.com/hook"
    name = endpoint_name(url)  # the path may be a secret, so nobody is told it
    report = {"url": url, "threshold": 2, "openSeconds": 60}
    first = api.post("/api/v1/endpoints/report", {**report, "report": "failed", "reason": "503"}).json
    second = api.post("/api/v1/endpoints/report", {**report, "report": "failed"}).json
    assert (first["openUntil"], second["failures"], second["openUntil"] is not None) == (None, 2, True)
    assert [one["url"] for one in api.get("/api/v1/endpoints").json["endpoints"]] == [name]
    gone = api.post("/api/v1/endpoints/report", {"url": url, "report": "gone"}).json
    assert gone["stoppedAt"] is not None
    assert api.post("/api/v1/endpoints/reset", {"url": url}).json == {"url": name, "reset": True}
    assert api.post("/api/v1/endpoints/reset", {"url": url}).json["reset"] is False
    assert api.post("/api/v1/endpoints/report", {"url": "", "report": "failed"}).status == 422
