"""How a queue keeps up, and who consumes it, over the wire."""

from __future__ import annotations

import threading
from typing import Any

from skep.clock import ManualClock
from skep.config import EngineSettings
from skep.testing.server import running_server
from tests.http.driver import Api

WHO = 'name="mailer", host="web-3", version="0.9.0", pid="4711"'


def pace(api: Api, queue: str) -> dict[str, Any]:
    reply = api.get(f"/api/v1/status/queues/{queue}/pace")
    assert reply.status == 200, reply
    found: dict[str, Any] = reply.json
    return found


def pop(api: Api, queue: str, query: str = "") -> Any:
    return api.request("POST", f"/api/v1/pop/queue/{queue}?batch=1{query}", headers={"Skep-Consumer": WHO})


def test_a_queue_that_nobody_consumes_says_so(api: Api) -> None:
    api.push("orders", 1)

    told = pace(api, "orders")

    assert (told["cause"], told["consumerGroup"], told["timings"]) == ("no_consumers", None, [])
    assert "no consumer has popped from it yet" in told["sentence"]


def test_a_paused_queue_says_so(api: Api) -> None:
    api.push("orders", 1)
    api.post("/api/v1/queues/orders/pause")

    assert pace(api, "orders")["cause"] == "paused"


def test_wait_and_handler_times_are_told_by_group() -> None:
    clock = ManualClock()
    with running_server(settings=EngineSettings(), clock=clock) as server:
        api = Api(server, "tenant")
        api.push("orders", 1, 2)
        clock.advance(5)
        for group in ("bill", "mail"):
            message = pop(api, "orders", f"&consumerGroup={group}").json["messages"][0]
            clock.advance(2)
            api.ack(message)

        told = pace(api, "orders")

        assert [one["consumerGroup"] for one in told["timings"]] == ["bill", "mail"]
        bill, mail = told["timings"]
        assert bill["wait"] == {"count": 1, "p50": 5.0, "p95": 5.0, "p99": 5.0}
        assert mail["wait"] == {"count": 1, "p50": 7.0, "p95": 7.0, "p99": 7.0}
        assert bill["handler"] == mail["handler"] == {"count": 1, "p50": 2.0, "p95": 2.0, "p99": 2.0}
        api.close()


def test_who_holds_leases_and_who_waits_is_told(api: Api) -> None:
    api.push("orders", 1)
    pop(api, "orders")
    other = Api(api.server, api.tenant)
    waiter = threading.Thread(target=lambda: pop(other, "orders", "&wait=true&timeout=60&consumerGroup=waits"))
    pop(api, "orders", "&consumerGroup=waits")
    waiter.start()
    try:
        while sum(one["waiting"] for one in consumers(api)) == 0:
            pass
        found = {one["consumerGroup"]: one for one in consumers(api, "orders")}
    finally:
        api.push("orders", 2, partition="other")
        waiter.join()
        other.close()

    assert found["__QUEUE_MODE__"]["leases"] == 1
    assert found["waits"]["waiting"] == 1
    assert {one["consumer"]["name"] for one in found.values()} == {"mailer"}
    assert {one["queue"] for one in found.values()} == {"orders"}


def consumers(api: Api, queue: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get(
        "/api/v1/status/consumers" + ("" if queue is None else f"?queue={queue}")
    ).json["consumers"]
    return found


def test_consumers_of_another_tenant_are_not_told(api: Api) -> None:
    api.push("orders", 1)
    pop(api, "orders")
    other = Api(api.server, api.tenant + "-other")
    try:
        assert consumers(other) == []
    finally:
        other.close()
