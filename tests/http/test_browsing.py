"""Looking at messages over the wire, without leasing them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.http.driver import Api

TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"


def browse(api: Api, query: str) -> list[dict[str, Any]]:
    reply = api.get(f"/api/v1/messages?{query}")
    assert reply.status == 200, reply
    messages: list[dict[str, Any]] = reply.json["messages"]
    return messages


def test_the_log_is_browsed_page_by_page_both_ways(api: Api) -> None:
    api.push("q", *range(5))

    first = api.get("/api/v1/messages?queue=q&limit=2").json
    second = browse(api, f"queue=q&limit=2&after={first['after']}")
    backwards = browse(api, "queue=q&descending=true&limit=2")

    assert [message["payload"] for message in first["messages"]] == [0, 1]
    assert [message["payload"] for message in second] == [2, 3]
    assert [message["seq"] for message in backwards] == [5, 4]


def test_browsing_is_narrowed_by_what_is_known_of_a_message(api: Api) -> None:
    api.push("q", "one", partition="a", transactionId="t-1")
    api.push("q", "two", partition="b", traceId=TRACE)

    def found(query: str) -> list[str]:
        return [message["payload"] for message in browse(api, f"queue=q&{query}")]

    assert found("partition=a") == ["one"]
    assert found("transactionId=t-1") == ["one"]
    assert found(f"traceId={TRACE}") == ["two"]
    assert found("since=2000-01-01T00:00:00Z") == ["one", "two"]
    assert found("until=2000-01-01T00:00:00Z") == []


def test_browsing_for_a_group_tells_states_and_selects_by_them(api: Api) -> None:
    api.push("q", *range(3), partition="p")
    first, _ = api.pop("q", batch=2, query="&consumerGroup=g")
    api.ack(first)

    states = {message["seq"]: message["state"] for message in browse(api, "queue=q&consumerGroup=g")}
    pending = browse(api, "queue=q&consumerGroup=g&state=pending")

    assert states == {1: "settled", 2: "in_flight", 3: "pending"}
    assert [message["seq"] for message in pending] == [3]


def test_a_long_payload_is_shown_in_part_and_whole_by_its_seq(api: Api) -> None:
    payload = {"text": "x" * 5000}
    api.push("q", payload)

    [listed] = browse(api, "queue=q&preview=12")
    whole = api.get("/api/v1/resources/queues/q/messages/1").json

    assert (listed["payload"], listed["preview"]) == (None, json.dumps(payload)[:12])
    assert listed["payloadBytes"] == len(json.dumps(payload))
    assert (whole["payload"], whole["preview"]) == (payload, None)


def test_a_cut_through_a_character_leaves_it_out(api: Api) -> None:
    body = '{"items":[{"queue":"q","payload":"aé"}]}'.encode()
    assert api.request("POST", "/api/v1/push", body).status == 201

    [listed] = browse(api, "queue=q&preview=3")

    assert listed["preview"] == '"a'


def test_a_message_is_found_by_partition_and_transaction_id(api: Api) -> None:
    api.push("q", {"n": 1}, partition="a/b", transactionId="t 1")

    found = api.get("/api/v1/messages/a%2Fb/t%201?queue=q")
    other = api.get("/api/v1/messages/a/t%201?queue=q")

    assert (found.status, found.json["payload"], found.json["seq"]) == (200, {"n": 1}, 1)
    assert (other.status, other.code) == (404, "MESSAGE_NOT_FOUND")


def test_a_message_that_is_not_there_is_404(api: Api) -> None:
    api.push("q", 1)

    reply = api.get("/api/v1/resources/queues/q/messages/2")

    assert (reply.status, reply.code) == (404, "MESSAGE_NOT_FOUND")


def test_a_trace_is_followed_across_queues(api: Api) -> None:
    api.push("first", 1, traceId=TRACE)
    api.push("second", 2, traceId=TRACE)
    api.push("second", 3)

    reply = api.get(f"/api/v1/traces/{TRACE}")

    assert [(m["queue"], m["payload"]) for m in reply.json["messages"]] == [("first", 1), ("second", 2)]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/v1/traces/nonsense", "INVALID_TRACE_ID"),
        ("/api/v1/messages", "INVALID_REQUEST"),
        ("/api/v1/messages?queue=q&state=lost", "INVALID_REQUEST"),
        ("/api/v1/messages?queue=q&since=yesterday", "INVALID_REQUEST"),
        ("/api/v1/messages?queue=q&since=2026-01-01T00:00:00", "INVALID_TIME"),
        ("/api/v1/messages?queue=q&preview=-1", "INVALID_REQUEST"),
        ("/api/v1/messages?queue=q&after=-1", "INVALID_REQUEST"),
        ("/api/v1/messages?queue=q&traceId=1", "INVALID_TRACE_ID"),
        ("/api/v1/resources/queues/q/messages/one", "INVALID_REQUEST"),
        ("/api/v1/messages?queue=", "INVALID_NAME"),
    ],
)
def test_a_wish_that_cannot_be_meant_is_told_so(api: Api, path: str, code: str) -> None:
    api.push("q", 1)

    reply = api.get(path)

    assert (reply.status, reply.code) == (422, code)


def test_a_group_that_is_not_there_is_404(api: Api) -> None:
    api.push("q", 1)

    reply = api.get("/api/v1/messages?queue=q&consumerGroup=none")

    assert (reply.status, reply.code) == (404, "GROUP_NOT_FOUND")


def test_of_several_messages_with_a_transaction_id_the_newest_is_shown(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "q", "settings": {"dedup_window_seconds": 0}})
    for number in range(3):
        assert api.push("q", number, partition="p", transactionId="t").status == 201

    assert api.get("/api/v1/messages/p/t?queue=q").json["payload"] == 2
    assert [message["payload"] for message in browse(api, "queue=q&transactionId=t&descending=true&limit=2")] == [2, 1]


def test_filters_narrow_together(api: Api) -> None:
    api.push("q", 1, transactionId="t", traceId=TRACE, partition="a")
    api.push("q", 2, transactionId="u", traceId=TRACE, partition="b")

    def found(query: str) -> list[int]:
        return [message["payload"] for message in browse(api, f"queue=q&{query}")]

    assert found(f"traceId={TRACE}") == [1, 2]
    assert found(f"traceId={TRACE}&descending=true&limit=1") == [2]
    assert found(f"transactionId=u&traceId={TRACE}") == [2]
    assert found("transactionId=t&traceId=01a1de02-7b1f-7061-b55a-489bc83b0733") == []
    assert found(f"traceId={TRACE}&partition=b") == [2]
