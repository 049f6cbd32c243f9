"""Scheduled messages over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.driver import Api

SOON, LATER, LAST = "2101-01-01T00:00:00Z", "2101-01-02T00:00:00Z", "2101-01-03T00:00:00Z"
TRACE = "01a1de2f-4a86-75f1-89bd-cf7336a85775"


def schedule(api: Api, payload: object, at: str = SOON, queue: str = "q", **fields: object) -> str:
    """Schedule one message; its id."""
    [told] = api.push(queue, payload, deliverAt=at, **fields).json["messages"]
    assert told["status"] == "scheduled"
    return str(told["message_id"])


def found(api: Api, query: str = "queue=q") -> list[Any]:
    """The payloads of all that fit, page by page."""
    payloads, after = [], ""
    while True:
        reply = api.get(f"/api/v1/scheduled?{query}&limit=2{after}")
        assert reply.status == 200, reply
        payloads += [one["payload"] for one in reply.json["messages"]]
        if reply.json["after"] is None:
            return payloads
        after = f"&after={reply.json['after']}"


def change(api: Api, verb: str, **body: object) -> dict[str, Any]:
    reply = api.post(f"/api/v1/scheduled/{verb}", {"queue": "q", **body})
    assert reply.status == 200, reply
    answer: dict[str, Any] = reply.json
    return answer


def test_they_are_listed_of_a_queue_and_of_all(api: Api) -> None:
    schedule(api, 2, LATER)
    schedule(api, 1, SOON, partition="p", transactionId="t")
    schedule(api, 3, LAST, queue="other", traceId=TRACE)
    api.push("q", "now")

    assert found(api) == [1, 2]
    assert found(api, "") == [1, 2, 3]
    assert found(api, "partition=p") == [1]
    assert found(api, "transactionId=t") == [1]
    assert found(api, f"traceId={TRACE}") == [3]
    assert found(api, f"dueAfter={LATER}") == [2, 3]
    assert found(api, f"dueBefore={LATER}&queue=q") == [1]


def test_one_is_shown_with_all_that_it_has(api: Api) -> None:
    id_ = schedule(api, {"n": 1}, partition="p", transactionId="t", headers={"k": "v"}, priority=2)

    shown = api.get(f"/api/v1/scheduled/q/{id_}").json

    assert shown["scheduledAt"] is not None
    del shown["scheduledAt"]
    assert shown == {
        "queue": "q", "partition": "p", "id": id_, "transactionId": "t", "traceId": id_, "deliverAt": SOON, "priority": 2,
        "headers": {"k": "v"}, "contentType": None, "payloadBytes": 8, "payload": {"n": 1}, "preview": None,
    }  # fmt: skip
    assert api.get(f"/api/v1/scheduled/q/{TRACE}").code == "MESSAGE_NOT_FOUND"
    schedule(api, "x", queue="other")
    assert api.get(f"/api/v1/scheduled/other/{id_}").code == "MESSAGE_NOT_FOUND"


def test_a_payload_is_cut_to_the_preview(api: Api) -> None:
    schedule(api, "long enough")

    [one] = api.get("/api/v1/scheduled?queue=q&preview=3").json["messages"]

    assert (one["payload"], one["preview"], one["payloadBytes"]) == (None, '"lo', 13)


def test_a_cancelled_message_is_gone_and_its_transaction_id_taken(api: Api) -> None:
    id_ = schedule(api, 1, transactionId="t")
    schedule(api, 2)

    told = change(api, "cancel", ids=[id_])

    assert (told["count"], told["dryRun"], told["messages"]) == (1, False, [{"id": id_, "seq": None}])
    assert found(api) == [2]
    [again] = api.push("q", 1, transactionId="t").json["messages"]
    assert (again["status"], again["message_id"], again["seq"]) == ("duplicate", id_, None)


def test_what_runs_can_be_popped_at_once(api: Api) -> None:
    id_ = schedule(api, 1)

    assert change(api, "run", ids=[id_])["messages"] == [{"id": id_, "seq": 1}]
    assert [message["payload"] for message in api.pop("q")] == [1]


def test_a_moved_message_has_another_time(api: Api) -> None:
    schedule(api, 1, SOON)
    schedule(api, 2, LATER)

    assert change(api, "move", dueBefore=LATER, deliverAt=LAST)["count"] == 1
    assert found(api) == [2, 1]
    assert change(api, "move", deliverAt="2001-01-01T00:00:00Z", dueAfter=LAST)["count"] == 1
    assert [message["payload"] for message in api.pop("q", query="&wait=true&timeout=30")] == [1]


@pytest.mark.parametrize("verb", ["cancel", "run", "move"])
def test_what_was_confirmed_is_what_is_done(api: Api, verb: str) -> None:
    more = {"deliverAt": LAST} if verb == "move" else {}
    for payload in range(3):
        schedule(api, payload)

    would = change(api, verb, dryRun=True, **more)
    schedule(api, "after the question")
    did = change(api, verb, mark=would["mark"], **more)

    assert (would["count"], would["messages"], would["dryRun"]) == (3, [], True)
    assert (did["count"], did["mark"]) == (3, would["mark"])
    assert found(api, f"queue=q&dueBefore={LAST}") == ["after the question"]


@pytest.mark.parametrize(
    ("verb", "body", "code"),
    [
        ("cancel", {"ids": ["nope"]}, "INVALID_REQUEST"),
        ("cancel", {"queue": "nowhere"}, "QUEUE_NOT_FOUND"),
        ("cancel", {"mark": -1}, "INVALID_REQUEST"),
        ("cancel", {"mark": 2**63}, "INVALID_REQUEST"),
        ("cancel", {"deliverAt": SOON}, "INVALID_REQUEST"),
        ("cancel", {"partition": "\x00"}, "INVALID_REQUEST"),
        ("cancel", {"traceId": "nope"}, "INVALID_TRACE_ID"),
        ("cancel", {"dueBefore": "2101-01-01T00:00:00"}, "INVALID_TIME"),
        ("run", {"nope": 1}, "INVALID_REQUEST"),
        ("move", {}, "INVALID_REQUEST"),
        ("move", {"deliverAt": "1901-01-01T00:00:00Z"}, "INVALID_TIME"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    api: Api, verb: str, body: dict[str, object], code: str
) -> None:
    schedule(api, 1)

    reply = api.post(f"/api/v1/scheduled/{verb}", {"queue": "q", **body})

    assert reply.code == code
    assert found(api) == [1]


@pytest.mark.parametrize(
    "query",
    ["after=x", "after=1", "after=-1-1", "after=1-99999999999999999999", "limit=0", "traceId=x", "dueAfter=soon"],
)
def test_a_list_that_cannot_be_meant_is_refused(api: Api, query: str) -> None:
    assert api.get(f"/api/v1/scheduled?{query}").status in (400, 422)


def test_times_from_before_all_time_narrow_nothing(api: Api) -> None:
    schedule(api, 1)

    assert found(api, "queue=q&dueAfter=0001-01-01T00:00:00Z&dueBefore=9999-12-31T00:00:00Z") == [1]
    assert found(api, "queue=q&dueBefore=1901-01-01T00:00:00Z") == []


def test_a_delay_counts_from_when_the_server_read_it(api: Api) -> None:
    [told] = api.push("q", 1, delaySeconds=3600).json["messages"]
    [soon] = api.push("q", 2, delaySeconds=0).json["messages"]

    assert (told["status"], soon["status"]) == ("scheduled", "stored")
    assert found(api) == [1]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"delaySeconds": 1, "deliverAt": SOON}, "INVALID_REQUEST"),
        ({"delaySeconds": -1}, "INVALID_TIME"),
        ({"delaySeconds": 1e18}, "INVALID_TIME"),
        ({"delaySeconds": "1"}, "INVALID_REQUEST"),
    ],
)
def test_a_delay_that_cannot_be_meant_is_refused(api: Api, fields: dict[str, object], code: str) -> None:
    assert api.push("q", 1, **fields).code == code


def test_a_transaction_has_no_delays_since_its_repeat_must_be_the_same(api: Api) -> None:
    body = {"items": [{"queue": "q", "payload": 1, "delaySeconds": 60}], "acks": []}
    assert api.post("/api/v1/transaction", body).code == "INVALID_REQUEST"


def test_a_trace_has_those_that_are_scheduled_at_its_end(api: Api) -> None:
    id_ = schedule(api, "later", traceId=TRACE)
    api.push("q", "now", traceId=TRACE)

    messages = api.get(f"/api/v1/traces/{TRACE}").json["messages"]

    assert [(one["payload"], one["seq"], one["deliverAt"]) for one in messages] == [
        ("now", 1, None),
        ("later", 0, SOON),
    ]
    alone = schedule(api, "alone")
    assert [one["id"] for one in api.get(f"/api/v1/traces/{alone}").json["messages"]] == [alone]
    assert id_ == messages[1]["id"]


def test_a_message_is_found_by_its_transaction_id_while_it_is_scheduled(api: Api) -> None:
    schedule(api, "later", partition="p", transactionId="t")

    shown = api.get("/api/v1/messages/p/t?queue=q").json
    assert (shown["payload"], shown["seq"], shown["deliverAt"]) == ("later", 0, SOON)
    assert api.get("/api/v1/messages/other/t?queue=q").code == "MESSAGE_NOT_FOUND"
    change(api, "run")
    entered = api.get("/api/v1/messages/p/t?queue=q").json
    assert (entered["payload"], entered["seq"], entered["deliverAt"]) == ("later", 1, None)


def test_the_audit_log_tells_a_change_from_a_dry_run(api: Api) -> None:
    schedule(api, 1)
    would = change(api, "move", dryRun=True, deliverAt=LAST)
    change(api, "move", mark=would["mark"], deliverAt=LAST)

    did, asked = (one for one in api.get("/api/v1/audit?limit=2").json["entries"])

    for entry, outcome in ((did, "done"), (asked, "dry run")):
        assert (entry["verb"], entry["outcome"], entry["count"]) == ("move scheduled messages", outcome, 1)
    assert did["after"].startswith("2101-01-03")
