"""How things stand, over the wire."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from skep.model import QueueKey
from skep.testing.server import running_server
from tests.http.driver import Api


def get(api: Api, path: str) -> Any:
    reply = api.get(f"/api/v1/status{path}")
    assert reply.status == 200, reply
    return reply.json


def test_a_quiet_tenant_is_ok() -> None:
    # The status counts calls that failed lately, whoever made them: no other test calls this server.
    with running_server() as server, closing(Api(server, "quiet")) as api:
        api.push("q", 1)
        status = get(api, "")

    assert (status["status"], status["warnings"], status["totals"]["depth"]) == ("ok", [], 1)


def test_what_may_need_attention_is_told_with_its_reason(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "paused", "settings": {"paused": True}})
    api.post("/api/v1/configure", {"queue": "small", "settings": {"max_depth": 1}})
    api.push("small", 1)
    api.push("old", 1)

    status = get(api, "?olderThan=0")

    assert status["status"] == "attention"
    assert {(warning["queue"], warning["concern"]) for warning in status["warnings"]} == {
        ("paused", "paused"),
        ("small", "nearly_full"),
        ("small", "old"),
        ("old", "old"),
    }


def test_queues_are_seen_at_one_look_each(api: Api) -> None:
    api.push("a", 1, 2)
    api.pop("a", batch=1)
    api.push("b", 3)

    page = get(api, "/queues?limit=1")
    rest = get(api, f"/queues?after={page['after']}")
    detail = get(api, "/queues/a")

    [a] = page["queues"]
    assert (a["queue"], a["depth"], a["inFlight"], a["groups"], a["paused"]) == ("a", 2, 1, 1, False)
    assert [queue["queue"] for queue in rest["queues"]] == ["b"]
    assert (detail["status"]["depth"], detail["groups"][0]["lag"]) == (2, 2)


def test_partitions_with_work_are_seen_for_a_group(api: Api) -> None:
    for partition in "abc":
        api.push("q", 1, 2, partition=partition)
    api.pop("q", batch=2, query="&consumerGroup=g")

    page = get(api, "/queues/q/partitions?consumerGroup=g&limit=2")
    rest = get(api, f"/queues/q/partitions?consumerGroup=g&after={page['after']}")

    [a, b] = page["partitions"]
    assert (a["partition"], a["inFlight"], a["attempts"], a["leaseDeadline"] is None) == ("a", 2, 1, False)
    assert (b["partition"], b["pending"], b["attempts"], b["leaseDeadline"]) == ("b", 2, 0, None)
    assert [partition["partition"] for partition in rest["partitions"]] == ["c"]


def test_live_leases_are_seen_and_those_about_to_run_out(api: Api) -> None:
    api.push("q", 1, partition="soon")
    api.push("q", 1, partition="later")
    api.pop("q", batch=1, query="&leaseSeconds=100")
    api.pop("q", batch=1, query="&leaseSeconds=10000")

    every = get(api, "/leases")["leases"]
    soon = get(api, "/leases?queue=q&expiringWithin=1000")["leases"]

    assert [(lease["queue"], lease["partition"], lease["messages"]) for lease in every] == [
        ("q", "soon", 1),
        ("q", "later", 1),
    ]
    assert [lease["partition"] for lease in soon] == ["soon"]
    assert 0 < soon[0]["remainingSeconds"] <= 100


def test_utilisation_is_leased_over_all_with_work(api: Api) -> None:
    for partition in "abcd":
        api.push("q", 1, partition=partition)
    api.pop("q", batch=1, query="&consumerGroup=g")

    [one] = get(api, "/utilisation")["utilisation"]

    assert (one["queue"], one["consumerGroup"]) == ("q", "g")
    assert (one["partitionsLeased"], one["partitionsPending"], one["share"]) == (1, 3, 0.25)


def test_stuck_partitions_come_worst_first(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "q", "settings": {"initial_backoff_ms": 0}})
    for partition in ("fine", "failed", "failing"):
        api.push("q", 1, partition=partition)
    for partition, failures in (("failed", 1), ("failing", 2)):
        for _ in range(failures):
            reply = api.get(f"/api/v1/pop/queue/q/partition/{partition}").json
            api.ack(reply["messages"][0], "retry")

    def stuck(query: str) -> list[tuple[str, int]]:
        return [(one["partition"], one["attempts"]) for one in get(api, f"/stuck?{query}")["partitions"]]

    assert stuck("") == [("failing", 2), ("failed", 1)]
    assert stuck("queue=q&limit=1") == [("failing", 2)]
    assert stuck("olderThan=0") == [("failing", 2), ("failed", 1), ("fine", 0)]


def test_a_first_try_under_way_is_not_stuck(api: Api) -> None:
    api.push("q", 1, partition="a")
    api.push("q", 1, partition="b")
    api.pop("q", batch=1)
    [message] = api.pop("q", batch=1)
    api.ack(message, "retry")
    api.pop("q", batch=1)

    assert [one["partition"] for one in get(api, "/stuck")["partitions"]] == ["b"]


def test_the_lease_history_tells_how_leases_ended(api: Api) -> None:
    api.push("q", 1, partition="a")
    api.push("q", 2, partition="b")
    for status in ("completed", "dlq"):
        [message] = api.pop("q", batch=1)
        api.ack(message, status)

    page = get(api, "/lease-history?queue=q&limit=1")
    rest = get(api, f"/lease-history?queue=q&after={page['after']}")

    [first] = page["leases"]
    assert (first["partition"], first["messages"], first["completed"]) == ("a", 1, 1)
    assert [lease["partition"] for lease in rest["leases"]] == ["b"]
    assert rest["after"] is None


def test_the_retention_history_tells_what_was_taken(api: Api) -> None:
    api.push("q", 1, 2)
    assert get(api, "/retention?queue=q") == {"queue": "q", "passes": []}

    settings = {"retention_seconds": 0.000_001, "retention_ignores_groups": True}
    api.post("/api/v1/configure", {"queue": "q", "settings": settings})
    engine = api.server.engine
    # It would run by itself; now it has.
    api.server.run(engine._store.retain(QueueKey("q", api.tenant), engine.now(), 100))

    passes = get(api, "/retention?queue=q")["passes"]
    assert sum(one["deleted"] for one in passes) == 2
