"""Erasing messages over HTTP, and reading which were."""

from __future__ import annotations

from typing import Any

import pytest

from skep.http.request.paging import PAGE_MAX
from tests.http.driver import Api


def forget(api: Api, queue: str = "q", **wanted: Any) -> Any:
    reply = api.post(f"/api/v1/queues/{queue}/forget", wanted)
    assert reply.status == 200, reply
    return reply.json


def seqs(api: Api, queue: str = "q") -> list[int]:
    return [one["seq"] for one in api.get(f"/api/v1/log/{queue}").json["messages"]]


def test_messages_are_erased_by_their_seqs_and_told_of(api: Api) -> None:
    api.push("q", *range(8))
    [message] = api.pop("q", batch=1)
    api.ack(message, "dlq")
    bounds = api.get("/api/v1/log/q/bounds").json
    assert bounds["forgotten"] == 0

    would = forget(api, seqs=[1, [4, 6]], dryRun=True)
    done = forget(api, seqs=[1, [4, 6]], log=bounds["log"])

    assert would == {**done, "dryRun": True}
    assert done == {
        "queue": "q", "log": bounds["log"], "dryRun": False, "forgotten": 5, "messages": 4, "deadLetters": 1, "copies": 0,
        "scheduled": 0, "operations": 0,
    }  # fmt: skip
    assert seqs(api) == [2, 3, 7, 8]
    assert api.get("/api/v1/dlq?queue=q").json["deadLetters"] == []
    assert api.get("/api/v1/resources/queues/q/messages/1").code == "MESSAGE_NOT_FOUND"
    assert forget(api, seqs=[[1, 8]])["forgotten"] == 4
    assert forget(api, seqs=[[1, 8]])["forgotten"] == 0
    page = api.get("/api/v1/log/q/forgotten?limit=2").json
    assert (page["queue"], page["log"], page["after"]) == ("q", bounds["log"], 2)
    rest = api.get(f"/api/v1/log/q/forgotten?after={page['after']}").json
    ranges = [(one["firstSeq"], one["lastSeq"]) for one in page["forgotten"] + rest["forgotten"]]
    assert (ranges, rest["after"]) == ([(1, 1), (4, 6), (2, 3), (7, 8)], None)
    assert rest["forgotten"][0]["forgottenAt"].endswith("Z")
    assert api.get("/api/v1/log/q/bounds").json["forgotten"] == 4
    assert api.post("/api/v1/logs/bounds", {"queues": ["q"]}).json["logs"][0]["forgotten"] == 4


def test_messages_are_erased_by_partition_and_ids(api: Api) -> None:
    api.push("q", 1, 2, partition="ann")
    api.push("q", 3, partition="bob", transactionId="t")
    trace = api.get("/api/v1/resources/queues/q/messages/3").json["traceId"]

    assert forget(api, partition="ann")["messages"] == 2
    assert forget(api, transactionId="t", partition="ann")["messages"] == 0
    assert forget(api, transactionId="t", traceId=trace)["messages"] == 1
    assert seqs(api) == []


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ({}, "INVALID_REQUEST"),
        ({"seqs": [0]}, "INVALID_REQUEST"),
        ({"seqs": [[2, 1]]}, "INVALID_REQUEST"),
        ({"seqs": [2]}, "INVALID_REQUEST"),
        ({"seqs": [[1, 1, 1]]}, "INVALID_REQUEST"),
        ({"seqs": ["1"]}, "INVALID_REQUEST"),
        ({"traceId": "x"}, "INVALID_TRACE_ID"),
        ({"seqs": [1], "log": 1}, "LOG_REPLACED"),
        ({"payload": "x"}, "INVALID_REQUEST"),
    ],
)
def test_what_cannot_be_is_refused(api: Api, wanted: dict[str, Any], code: str) -> None:
    api.push("q", 1)

    assert api.post("/api/v1/queues/q/forget", wanted).code == code
    assert seqs(api) == [1]
    assert api.post("/api/v1/queues/none/forget", {"seqs": [1]}).code == "QUEUE_NOT_FOUND"
    assert api.get("/api/v1/log/none/forgotten").code == "QUEUE_NOT_FOUND"
    assert api.get(f"/api/v1/log/q/forgotten?limit={PAGE_MAX + 1}").code == "INVALID_REQUEST"
