"""A pop whose body has acks: they are settled first, and the answer has both their results and the next messages."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from tests.engine.driver import until as loop_until
from tests.http.driver import Api, Reply
from tests.support.waiting import until

POP = "/api/v1/pop/queue/q"


def pop(api: Api, *acks: dict[str, Any], batch: int = 10) -> Reply:
    return api.post(f"{POP}?batch={batch}", {"acknowledgments": list(acks)})


def held(api: Api, *payloads: Any) -> list[dict[str, Any]]:
    api.push("q", *payloads)
    return api.pop("q")


def in_flight(api: Api) -> int:
    [group] = api.get("/api/v1/status/queues/q").json["groups"]
    return int(group["inFlight"])


def payloads(reply: Reply) -> list[Any]:
    return [message["payload"] for message in reply.json["messages"]]


def test_the_acks_are_answered_with_the_next_messages(api: Api) -> None:
    [first, second] = held(api, 1, 2)
    api.push("q", 3)

    reply = pop(
        api,
        {"leaseId": first["leaseId"], "seq": first["seq"]},
        {"leaseId": second["leaseId"], "seq": second["seq"], "status": "dlq"},
    )

    assert reply.status == 200
    assert [(result["seq"], result["status"]) for result in reply.json["results"]] == [(1, "completed"), (2, "dead")]
    assert payloads(reply) == [3]


def test_a_whole_lease_is_acked_and_nothing_more_is_there(api: Api) -> None:
    [message, _] = held(api, 1, 2)

    reply = pop(api, {"leaseId": message["leaseId"]})

    assert reply.status == 200
    assert (reply.json["messages"], reply.json["results"][0]["messages"]) == ([], 2)


@pytest.mark.parametrize("body", [{}, {"acknowledgments": []}])
def test_without_acks_it_is_a_pop_like_any_other(api: Api, body: dict[str, Any]) -> None:
    api.push("q", 1)

    reply = api.post(POP, body)

    assert payloads(reply) == [1]
    assert "results" not in reply.json
    assert api.post(POP, body).status == 204


def test_I6_a_stale_ack_is_refused_in_its_result_and_the_messages_come(api: Api) -> None:
    [message] = held(api, 1)
    assert api.ack(message).status == 200
    api.push("q", 2)

    reply = pop(api, {"leaseId": message["leaseId"], "seq": 7})

    assert [(result["status"], result["code"]) for result in reply.json["results"]] == [("refused", "STALE_LEASE")]
    assert payloads(reply) == [2]


def test_an_ack_of_one_partition_goes_with_a_pop_of_another(api: Api) -> None:
    api.push("q", 1, partition="a")
    [message] = api.pop("q")
    api.push("q", 2, partition="b")

    reply = api.post(f"{POP}/partition/b", {"acknowledgments": [{"leaseId": message["leaseId"]}]})

    assert (payloads(reply), reply.json["results"][0]["status"]) == ([2], "completed")


def test_an_ack_of_one_queue_goes_with_a_pop_of_another(api: Api) -> None:
    [message] = held(api, 1)
    api.push("next", 2)

    reply = api.post("/api/v1/pop/queue/next", {"acknowledgments": [{"leaseId": message["leaseId"]}]})

    assert (payloads(reply), reply.json["results"][0]["status"]) == ([2], "completed")
    assert api.ack(message).json["repeated"] is True


@pytest.mark.parametrize(
    "body",
    [{"acknowledgments": [{"leaseId": "no lease"}]}, {"acknowledgments": [{"seq": 1}]}, {"acks": []}],
    ids=["lease", "field", "name"],
)
def test_a_bad_body_is_refused_and_leases_nothing(api: Api, body: dict[str, Any]) -> None:
    api.push("q", 1)

    assert api.post(POP, body).code == "INVALID_REQUEST"
    assert [message["attempt"] for message in api.pop("q")] == [1]


def test_a_bad_pop_settles_nothing(api: Api) -> None:
    [message] = held(api, 1)

    assert pop(api, {"leaseId": message["leaseId"]}, batch=0).status == 422
    assert api.ack(message).json["status"] == "completed"


def test_an_arrow_stream_has_no_place_for_results_and_so_nothing_is_done(api: Api) -> None:
    [message] = held(api, 1)

    body = json.dumps({"acknowledgments": [{"leaseId": message["leaseId"]}]}).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/vnd.apache.arrow.stream"}
    reply = api.request("POST", POP, body, headers)

    assert reply.code == "INVALID_REQUEST"
    assert "ack by POST /api/v1/ack/batch" in reply.json["error"]["message"]
    assert api.ack(message).json["status"] == "completed"


def test_a_pop_over_several_queues_takes_no_acks(api: Api) -> None:
    [message] = held(api, 1)

    reply = api.post("/api/v1/pop?namespace=n", {"acknowledgments": [{"leaseId": message["leaseId"]}]})

    assert reply.code == "INVALID_REQUEST"
    assert api.ack(message).json["status"] == "completed"


def test_acks_may_come_in_chunks(api: Api) -> None:
    [message] = held(api, 1)
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        head = f"POST {POP} HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
        body = json.dumps({"acknowledgments": [{"leaseId": message["leaseId"]}]})
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\n0\r\n\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 200 ")

    assert api.ack(message).json["repeated"] is True


def test_I10_a_body_that_breaks_off_settles_and_leases_nothing(api: Api) -> None:
    [message] = held(api, 1)
    api.push("q", 2)
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        head = f"POST {POP}?batch=10 HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
        body = json.dumps({"acknowledgments": [{"leaseId": message["leaseId"]}]})
        client.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\nZZ\r\n".encode())
        assert client.recv(100).startswith(b"HTTP/1.1 400 ")

    assert api.pop("q") == [], "the partition is leased still"
    assert api.ack(message).json["status"] == "completed"


def test_I10_messages_of_a_client_that_went_while_it_waited_come_again_uncounted(api: Api) -> None:
    [message] = held(api, 1)
    engine = api.server.engine
    body = json.dumps({"acknowledgments": [{"leaseId": message["leaseId"]}]})
    head = f"POST {POP}?wait=true&timeout=60 HTTP/1.1\r\nHost: 127.0.0.1\r\nSkep-Tenant: {api.tenant}\r\n"
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        until(lambda: in_flight(api) == 0)
        api.server.run(loop_until(lambda: engine.parked_polls == 1))
    api.server.run(loop_until(lambda: engine.parked_polls == 0))
    api.push("q", 2)

    assert [(one["payload"], one["attempt"]) for one in api.pop("q")] == [(2, 1)]
