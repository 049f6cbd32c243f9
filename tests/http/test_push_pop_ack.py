"""Messages over the wire: pushed, popped, settled."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from skep.config import Limits
from tests.http.driver import Api


def test_a_push_tells_what_became_of_each_item(api: Api) -> None:
    reply = api.post(
        "/api/v1/push",
        {
            "items": [
                {"queue": "orders", "partition": "c-1", "payload": {"n": 1}, "transactionId": "t-1"},
                {"queue": "orders", "partition": "c-1", "payload": {"n": 1}, "transactionId": "t-1"},
            ]
        },
    )

    assert reply.status == 201
    first, second = reply.json["messages"]
    assert (reply.json["pushed"], reply.json["qos0"], reply.json["dbHealthy"]) == (True, False, True)
    assert (first["status"], first["seq"], first["transaction_id"]) == ("stored", 1, "t-1")
    assert (second["status"], second["seq"], second["message_id"]) == ("duplicate", 1, first["message_id"])
    assert reply.json["queues"] == {"orders": {"depth": 1, "remaining": None}}


def test_a_push_of_nothing_but_duplicates_is_200(api: Api) -> None:
    assert api.push("orders", 1, transactionId="t").status == 201
    assert api.push("orders", 1, transactionId="t").status == 200


def test_a_payload_passes_through_byte_by_byte(api: Api) -> None:
    text = '{ "b": 1.0e2, "a" : "é\\u00e9", "big": 123456789012345678901234567890 }'
    api.request("POST", "/api/v1/push", f'{{"items":[{{"queue":"q","payload":{text}}}]}}'.encode())

    reply = api.get("/api/v1/pop/queue/q")

    assert f'"payload":{text}'.encode() in reply.body


def test_bytes_travel_as_base64_with_their_content_type(api: Api) -> None:
    body = base64.b64encode(b"\x00\xff").decode()
    assert api.push("q", body, contentType="image/png").status == 201

    [message] = api.pop("q")

    assert (message["contentType"], message["payload"]) == ("image/png", body)


def test_headers_trace_and_priority_come_with_the_message(api: Api) -> None:
    trace = "01a1de02-7b1f-7061-b55a-489bc83b0732"
    api.push("q", 1, headers={"source": "till"}, traceId=trace, priority=7)

    [message] = api.pop("q")

    assert (message["headers"], message["traceId"], message["priority"]) == ({"source": "till"}, trace, 7)


def test_an_acked_message_does_not_come_again(api: Api) -> None:
    api.push("q", 1)
    [message] = api.pop("q")

    reply = api.ack(message)

    assert (reply.status, reply.json["status"]) == (200, "completed")
    assert api.pop("q") == []


def test_I6_an_ack_with_a_stale_lease_is_409_and_changes_nothing(api: Api) -> None:
    api.push("q", 1)
    [first] = api.pop("q")
    assert api.ack(first, "retry").json["status"] == "retrying"
    [second] = api.pop("q")

    reply = api.ack(first)

    assert (reply.status, reply.code) == (409, "STALE_LEASE")
    assert (second["attempt"], api.ack(second).json["status"]) == (2, "completed")


def test_a_batch_of_acks_is_answered_one_by_one(api: Api) -> None:
    for partition in "abc":
        api.push("q", 1, partition=partition)
    a, b, c = sorted(api.pop("q"), key=lambda message: str(message["partition"]))
    acks = [
        {"leaseId": a["leaseId"], "seq": a["seq"]},
        {"leaseId": b["leaseId"], "seq": b["seq"], "status": "dlq", "error": "no such customer"},
        {"leaseId": c["leaseId"], "seq": 999},
    ]

    reply = api.post("/api/v1/ack/batch", {"acknowledgments": acks})

    assert reply.status == 200
    assert [(r["status"], r["code"]) for r in reply.json["results"]] == [
        ("completed", None),
        ("dead", None),
        ("refused", "NOT_IN_LEASE"),
    ]
    assert reply.json["results"][1]["deadLetterQueue"] == "q.dead"


def test_I15_a_transaction_with_a_stale_ack_pushes_nothing(api: Api) -> None:
    api.push("in", 1)
    [message] = api.pop("in")
    api.ack(message)
    ack = {"leaseId": message["leaseId"], "seq": message["seq"]}

    reply = api.post("/api/v1/transaction", {"acknowledgments": [ack], "items": [{"queue": "out", "payload": 1}]})

    assert (reply.status, reply.code) == (409, "STALE_LEASE")
    assert api.get("/api/v1/pop/queue/out").status == 404


def test_a_transaction_acks_and_pushes(api: Api) -> None:
    api.push("in", 1)
    [message] = api.pop("in")
    ack = {"leaseId": message["leaseId"], "seq": message["seq"]}

    reply = api.post("/api/v1/transaction", {"acknowledgments": [ack], "items": [{"queue": "out", "payload": 2}]})

    assert (reply.status, reply.json["committed"]) == (200, True)
    assert [m["payload"] for m in api.pop("out")] == [2]
    assert api.pop("in") == []


def test_a_lease_is_extended_from_now(api: Api) -> None:
    api.push("q", 1)
    [message] = api.pop("q", query="&leaseSeconds=10")

    reply = api.post(f"/api/v1/lease/{message['leaseId']}/extend", {"leaseSeconds": 1000})

    assert reply.status == 200
    assert reply.json["leaseDeadline"] > message["leaseDeadline"]


def test_a_name_may_contain_a_slash(api: Api) -> None:
    api.push("shop/orders", 1, partition="a/b")

    [message] = api.pop("shop%2Forders")

    assert (message["queue"], message["partition"]) == ("shop/orders", "a/b")


def test_a_waiting_pop_is_answered_by_a_push(api: Api) -> None:
    api.push("q", 0)
    api.ack(api.pop("q")[0])
    waiting = Api(api.server, api.tenant)
    waiting._connection.request("GET", "/api/v1/pop/queue/q?wait=true&timeout=20", headers={"Skep-Tenant": api.tenant})

    api.push("q", 1)

    response = waiting._connection.getresponse()
    assert [message["payload"] for message in json.loads(response.read())["messages"]] == [1]
    waiting.close()


def test_leases_are_extended_together_each_on_its_own_merits(api: Api) -> None:
    api.push("a", 1)
    api.push("b", 1)
    [a], [b] = api.pop("a"), api.pop("b")
    api.delete("/api/v1/resources/queues/b")

    reply = api.post("/api/v1/leases/extend", {"leaseIds": [a["leaseId"], b["leaseId"]]})

    assert reply.status == 200
    kept, gone = reply.json["results"]
    assert (kept["code"], kept["leaseDeadline"] > a["leaseDeadline"]) == (None, True)
    assert (gone["code"], gone["leaseDeadline"]) == ("STALE_LEASE", None)


def test_so_many_leases_are_extended_at_once_and_no_more(api: Api) -> None:
    api.push("q", 1)
    [message] = api.pop("q")

    reply = api.post("/api/v1/leases/extend", {"leaseIds": [message["leaseId"]] * 10_001})

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


@pytest.mark.parametrize("path", ["/api/v1/pop/queue/q", "/api/v1/pop/queue/q/partition/Default", "/api/v1/pop"])
def test_I2_who_asks_for_no_body_takes_no_messages(api: Api, path: str) -> None:
    api.push("q", 1, namespace="n")
    query = "?autoAck=true" + ("&namespace=n" if path == "/api/v1/pop" else "")

    reply = api.request("HEAD", path + query)

    assert (reply.status, reply.headers["allow"]) == (405, "GET, POST")
    assert [m["payload"] for m in api.pop("q")] == [1]


def test_a_push_over_the_limit_is_refused_whole_and_told_the_limit(api: Api) -> None:
    limit = Limits().request_bytes
    piece = "x" * (limit // 16)

    fits = api.push("large", *[piece] * 15)
    refused = api.push("large", *[piece] * 17)

    assert (fits.status, refused.status, refused.code) == (201, 413, "PAYLOAD_TOO_LARGE")
    assert str(limit) in refused.json["error"]["message"]
    assert len(api.pop("large", batch=100)) == 15


def labels(api: Api, queue: str = "q") -> tuple[str | None, str | None]:
    settings = api.get(f"/api/v1/resources/queues/{queue}").json["settings"]
    return settings["namespace"], settings["task"]


def labelled(queue: str, **names: str) -> dict[str, Any]:
    return {"queue": queue, "payload": 1, **names}


@pytest.mark.parametrize("route", ["push", "transaction"])
def test_a_push_labels_the_queue_it_makes_and_may_repeat_its_labels(api: Api, route: str) -> None:
    items = [labelled("q", namespace="shop"), labelled("q", task="bill"), labelled("q")]

    replies = [api.post(f"/api/v1/{route}", {"items": items}) for _ in range(2)]

    assert [reply.status // 100 for reply in replies] == [2, 2], replies
    assert labels(api) == ("shop", "bill")
    assert len(api.pop("q")) == 6


@pytest.mark.parametrize("route", ["push", "transaction"])
@pytest.mark.parametrize("label", ["namespace", "task"])
def test_two_labels_of_one_kind_for_a_queue_are_refused_and_nothing_is_made(api: Api, route: str, label: str) -> None:
    items = [labelled("q", **{label: "a"}), labelled("other"), labelled("q", **{label: "b"})]

    reply = api.post(f"/api/v1/{route}", {"items": items})

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")
    assert all(text in reply.json["error"]["message"] for text in (f"{label} 'a'", "'b'"))
    assert api.get("/api/v1/resources/queues/q").code == "QUEUE_NOT_FOUND"


@pytest.mark.parametrize("route", ["push", "transaction"])
@pytest.mark.parametrize("has", ["shop", None])
def test_a_label_that_its_queue_does_not_have_is_refused_with_the_cure(api: Api, route: str, has: str | None) -> None:
    api.post("/api/v1/configure", {"queue": "q", "settings": {"namespace": has}})

    reply = api.post(f"/api/v1/{route}", {"items": [labelled("q", namespace="bank")]})

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")
    told = reply.json["error"]["message"]
    assert ("the namespace 'shop'" if has else "no namespace") in told
    assert "skep queue update q" in told
    assert labels(api) == (has, None)
    assert api.pop("q") == []


def test_I6_a_released_lease_counts_no_more_and_its_messages_come_again(api: Api) -> None:
    api.push("q", 1, 2)
    first, second = api.pop("q")
    api.ack(first)

    released = api.post(f"/api/v1/lease/{second['leaseId']}/release")

    assert (released.status, released.json) == (200, {"leaseId": second["leaseId"], "released": True})
    assert api.ack(second).code == "STALE_LEASE"
    assert api.post(f"/api/v1/lease/{second['leaseId']}/extend").code == "STALE_LEASE"
    assert api.post(f"/api/v1/lease/{second['leaseId']}/release").code == "STALE_LEASE"
    (again,) = api.pop("q")
    assert (again["seq"], again["attempt"]) == (second["seq"], 2)
    assert api.post("/api/v1/lease/nonsense/release").status == 422


def test_a_batch_of_acks_may_name_its_group_and_settles_nothing_of_another(api: Api) -> None:
    api.push("q", 1)
    (mine,) = api.pop("q", query="&consumerGroup=mine")
    (other,) = api.pop("q", query="&consumerGroup=other")
    acks = [{"leaseId": one["leaseId"], "seq": one["seq"]} for one in (mine, other)]

    refused = api.post("/api/v1/ack/batch", {"consumerGroup": "mine", "acknowledgments": acks})
    done = api.post("/api/v1/ack/batch", {"consumerGroup": "mine", "acknowledgments": acks[:1]})

    assert (refused.status, refused.code) == (422, "INVALID_REQUEST")
    assert "'other'" in refused.json["error"]["message"]
    assert [one["status"] for one in done.json["results"]] == ["completed"]
    assert "repeated" not in done.json["results"][0]
