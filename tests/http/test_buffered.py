"""QoS 0 over the wire: answered at once, stored soon."""

from __future__ import annotations

import pytest

import skep
from skep.errors import Code, SkepError
from skep.testing.server import RunningServer
from tests.http.driver import Api


def buffered(api: Api, *payloads: object, queue: str = "views", **fields: object) -> dict[str, object]:
    reply = api.post("/api/v1/push", {"items": [{"queue": queue, "payload": one} for one in payloads], **fields})
    assert reply.status == 201, reply
    return dict(reply.json)


def test_a_buffered_push_is_answered_with_its_ids_and_delivered_soon(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "views"})  # a pop does not make a queue, and the flush comes later
    told = buffered(api, 1, 2, bufferMs=5)
    assert (told["pushed"], told["qos0"], told["dbHealthy"], told["queues"]) == (True, True, True, {})
    messages = told["messages"]
    assert isinstance(messages, list)
    assert [(one["status"], one["seq"]) for one in messages] == [("buffered", None)] * 2
    reply = api.get("/api/v1/pop/queue/views?batch=2&wait=true&timeout=30")
    assert [one["id"] for one in reply.json["messages"]] == [one["message_id"] for one in messages]


def test_a_push_that_waits_comes_after_it(api: Api) -> None:
    buffered(api, 1, bufferMs=60_000, bufferMax=1000)
    assert api.push("views", 2).json["messages"][0]["seq"] == 2


def test_bufferMax_alone_flushes_by_number(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "views"})
    for number in range(3):
        buffered(api, number, bufferMax=3, bufferMs=60_000)
    reply = api.get("/api/v1/pop/queue/views?batch=3&wait=true&timeout=30")
    assert [one["payload"] for one in reply.json["messages"]] == [0, 1, 2]


@pytest.mark.parametrize("fields", [{"bufferMs": -1}, {"bufferMs": 10**6}, {"bufferMax": 0}, {"bufferMax": 10**6}])
def test_what_cannot_be_is_refused(api: Api, fields: dict[str, int]) -> None:
    reply = api.post("/api/v1/push", {"items": [{"queue": "views", "payload": 1}], **fields})
    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_the_buffers_tell_what_is_in_them(api: Api) -> None:
    buffered(api, 1, bufferMs=60_000, bufferMax=1000, queue="told")
    figures = api.get("/api/v1/status/buffers").json
    assert figures["qos0"]["pending"] >= 1
    assert figures["spool"]["state"] == "up"
    api.push("told", 2)
    assert api.get("/api/v1/status/buffers").json["qos0"]["lost"] == 0


def test_a_client_pushes_without_waiting_for_the_disk(server: RunningServer) -> None:
    with skep.Client(server.url, tenant="buffered") as client:
        pushed = client.push("views", {"page": "/"}, durability="buffered")
        assert len(pushed.buffered) == 1
        assert pushed.buffered[0].transaction_id is None
        several = client.queue("views").push([1, 2, 3], buffer_ms=1000, buffer_max=2)
        assert len(several.buffered) == 3
        assert client.push("views", 4).stored[0].seq == 5
        assert client.pop("views")[0].payload == b'{"page":"/"}'
        with pytest.raises(SkepError) as caught:
            client.push("views", 1, durability="stored", buffer_ms=5)
        assert caught.value.code is Code.INVALID_REQUEST
