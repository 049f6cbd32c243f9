"""Following traces, and what workers tell of them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.http.driver import Api


def tell(api: Api, *events: dict[str, object]) -> None:
    assert api.post("/api/v1/traces", {"events": list(events)}).status == 201


def test_events_are_shown_with_their_trace(api: Api) -> None:
    trace_id = str(uuid4())
    api.push("orders", {"n": 1}, traceId=trace_id)
    [message] = api.pop("orders")

    tell(api, {"traceId": trace_id, "name": "charged card", "data": {"amount": 3}, "messageId": message["id"]})

    found = api.get(f"/api/v1/traces/{trace_id}").json
    assert [one["seq"] for one in found["messages"]] == [1]
    [event] = found["events"]
    assert (event["name"], event["data"], event["messageId"]) == ("charged card", {"amount": 3}, message["id"])


def test_payloads_of_a_trace_are_whole_up_to_page_bytes_together(api: Api) -> None:
    trace_id, long = str(uuid4()), "x" * 900_000
    for _ in range(20):
        api.push("orders", long, traceId=trace_id)
    api.push("orders", {"n": 1}, traceId=trace_id, deliverAt="2099-01-01T00:00:00Z")

    found = api.get(f"/api/v1/traces/{trace_id}").json["messages"]

    whole = [one["payload"] for one in found if one["payload"] is not None]
    assert whole == [long] * 18 + [{"n": 1}]
    assert [(one["payload"], one["preview"]) for one in found[18:20]] == [(None, "")] * 2
    assert [one["payloadBytes"] for one in found] == [900_002] * 20 + [len('{"n": 1}')]
    assert api.get(f"/api/v1/resources/queues/orders/messages/{found[19]['seq']}").json["payload"] == long


def test_events_are_found_by_name_page_by_page(api: Api) -> None:
    for number in range(3):
        tell(api, {"traceId": str(uuid4()), "name": "sent mail", "data": {"n": number}})
    tell(api, {"traceId": str(uuid4()), "name": "asked back"})

    first = api.get("/api/v1/traces/by-name?name=sent%20mail&limit=2").json
    rest = api.get(f"/api/v1/traces/by-name?name=sent%20mail&limit=2&after={first['after']}").json

    assert [one["data"]["n"] for one in first["events"] + rest["events"]] == [2, 1, 0]
    assert rest["after"] is None
    assert [one["name"] for one in api.get("/api/v1/traces/names").json["names"]] == ["asked back", "sent mail"]


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ({"traceId": "x", "name": "n"}, "INVALID_TRACE_ID"),
        ({"traceId": str(uuid4()), "name": ""}, "INVALID_NAME"),
        ({"traceId": str(uuid4()), "name": "n", "data": [1]}, "INVALID_REQUEST"),
        ({"traceId": str(uuid4()), "name": "n", "data": {"text": "x" * 20_000}}, "PAYLOAD_TOO_LARGE"),
    ],
)
def test_what_is_not_an_event_is_refused(api: Api, event: dict[str, object], code: str) -> None:
    reply = api.post("/api/v1/traces", {"events": [event]})

    assert reply.code == code
    assert api.get("/api/v1/traces/names").json["names"] == []
