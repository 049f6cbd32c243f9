"""The story of a message over the wire: its attempts, who made them, and why they failed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.driver import Api

WHO = 'name="mailer", host="web-3", version="0.9.0", pid="4711"'
TRACEBACK = 'ValueError: no such customer\nTraceback (most recent call last):\n  File "handler.py", line 3'


def pop(api: Api, queue: str, consumer: str | None = WHO, query: str = "") -> dict[str, Any]:
    headers = {} if consumer is None else {"Skep-Consumer": consumer}
    reply = api.request("POST", f"/api/v1/pop/queue/{queue}?batch=1{query}", headers=headers)
    assert reply.status == 200, reply
    message: dict[str, Any] = reply.json["messages"][0]
    return message


def attempts(api: Api, queue: str, seq: int = 1) -> list[dict[str, Any]]:
    reply = api.get(f"/api/v1/resources/queues/{queue}/messages/{seq}/attempts")
    assert reply.status == 200, reply
    found: list[dict[str, Any]] = reply.json["attempts"]
    return found


def test_every_attempt_is_told_with_its_error_and_its_consumer(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 2, "initial_backoff_ms": 0}})
    api.push("orders", {"n": 1})
    api.ack(pop(api, "orders"), "retry", error=TRACEBACK)
    api.ack(pop(api, "orders", None), "retry", error="again")

    first, second = attempts(api, "orders")

    assert (first["attempt"], first["outcome"], first["error"]) == (1, "retried", TRACEBACK)
    assert first["consumer"] == {"name": "mailer", "host": "web-3", "version": "0.9.0", "pid": "4711"}
    assert (second["attempt"], second["outcome"], second["error"], second["consumer"]) == (2, "dead", "again", None)
    assert first["leasedAt"] <= first["endedAt"] <= second["leasedAt"]


def test_an_attempt_under_way_tells_who_has_it_and_until_when(api: Api) -> None:
    api.push("orders", {"n": 1})
    api.ack(pop(api, "orders", query="&consumerGroup=bill"))
    lease = pop(api, "orders", query="&consumerGroup=mail")

    done, under_way = sorted(attempts(api, "orders"), key=lambda one: str(one["consumerGroup"]))

    assert (done["consumerGroup"], done["outcome"], done["error"]) == ("bill", "completed", None)
    assert (under_way["outcome"], under_way["endedAt"]) == ("in_flight", None)
    assert under_way["leaseDeadline"] == lease["leaseDeadline"]
    assert under_way["consumer"]["name"] == "mailer"


def test_leases_tell_who_holds_them(api: Api) -> None:
    api.push("orders", {"n": 1})
    pop(api, "orders")

    [lease] = api.get("/api/v1/status/leases?queue=orders").json["leases"]

    assert lease["consumer"] == {"name": "mailer", "host": "web-3", "version": "0.9.0", "pid": "4711"}
    assert (lease["firstSeq"], lease["lastSeq"]) == (1, 1)


@pytest.mark.parametrize("header", ["mailer", 'name="' + "a" * 300 + '"', 'name="<b>"', "", 'name="%00"; DROP TABLE'])
def test_a_header_that_cannot_be_read_makes_no_pop_fail(api: Api, header: str) -> None:
    api.push("orders", {"n": 1})
    pop(api, "orders", header)

    [lease] = api.get("/api/v1/status/leases?queue=orders").json["leases"]
    assert lease["consumer"] is None


def test_a_partition_tells_why_its_first_message_failed_last(api: Api) -> None:
    api.push("orders", {"n": 1}, partition="p")
    api.ack(pop(api, "orders"), "retry", error="no such customer")

    [partition] = api.get("/api/v1/status/queues/orders/partitions").json["partitions"]
    assert partition["lastError"] == "no such customer"


def test_a_message_that_is_not_there_has_no_attempts(api: Api) -> None:
    api.push("orders", {"n": 1})

    reply = api.get("/api/v1/resources/queues/orders/messages/7/attempts")
    assert (reply.status, reply.code) == (404, "MESSAGE_NOT_FOUND")


def test_attempts_of_another_tenant_are_not_told(api: Api) -> None:
    api.push("orders", {"n": 1})
    api.ack(pop(api, "orders"), "retry", error="secret")
    other = Api(api.server, api.tenant + "-other")
    try:
        other.push("orders", {"n": 1})
        assert attempts(other, "orders") == []
        assert other.get("/api/v1/status/leases").json["leases"] == []
    finally:
        other.close()
