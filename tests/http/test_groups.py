"""Consumer groups over the wire."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.driver import Api


def seek(api: Api, **fields: object) -> dict[str, Any]:
    reply = api.post("/api/v1/consumer-groups/g/seek", {"queue": "q", **fields})
    assert reply.status == 200, reply
    answer: dict[str, Any] = reply.json
    return answer


def drain(api: Api, queue: str, group: str) -> list[Any]:
    """What the group gets, one after the other."""
    payloads = []
    while messages := api.pop(queue, query=f"&consumerGroup={group}"):
        for message in messages:
            payloads.append(message["payload"])
            api.ack(message)
    return payloads


def test_groups_are_listed_with_their_lag_queue_by_queue(api: Api) -> None:
    api.push("a", 1, 2)
    api.push("b", 3)
    drain(api, "a", "fast")
    api.pop("a", batch=1, query="&consumerGroup=slow")
    drain(api, "b", "fast")

    def listed(query: str) -> list[tuple[str, str, int]]:
        groups = api.get(f"/api/v1/consumer-groups{query}").json["consumerGroups"]
        return [(group["queue"], group["consumerGroup"], group["lag"]) for group in groups]

    assert listed("") == [("a", "fast", 0), ("a", "slow", 2), ("b", "fast", 0)]
    assert listed("?queue=b") == [("b", "fast", 0)]
    assert listed("?limit=1") == [("a", "fast", 0), ("a", "slow", 2)]
    assert listed("?after=a") == [("b", "fast", 0)]


def test_a_group_tells_when_it_was_used_and_what_waits_for_it_alone(api: Api) -> None:
    api.push("a", 1, 2, 3)
    drain(api, "a", "fast")
    api.ack(api.pop("a", batch=1, query="&consumerGroup=slow")[0])

    def held(group: dict[str, Any]) -> tuple[str, int, int]:
        assert group["idle"] is False
        assert group["activeAt"] >= group["createdAt"]
        assert group["inactiveSeconds"] >= 0
        return group["consumerGroup"], group["heldMessages"], group["heldDepth"]

    groups = [("fast", 0, 0), ("slow", 2, 2)]
    assert [held(group) for group in api.get("/api/v1/consumer-groups?queue=a").json["consumerGroups"]] == groups
    assert [held(group) for group in api.get("/api/v1/consumer-groups/slow").json["queues"]] == groups[1:]


def test_a_group_is_shown_in_all_queues_that_it_reads(api: Api) -> None:
    api.push("a", 1, 2)
    api.push("b", 3)
    for queue in "ab":
        api.pop(queue, batch=1, query="&consumerGroup=g")

    shown = api.get("/api/v1/consumer-groups/g").json

    assert (shown["lag"], [group["queue"] for group in shown["queues"]], shown["complete"]) == (3, ["a", "b"], True)
    assert api.get("/api/v1/consumer-groups/none").code == "GROUP_NOT_FOUND"


def test_I7_a_group_goes_back_by_a_seek_and_a_dry_run_moves_nothing(api: Api) -> None:
    api.push("q", 1, 2, 3)
    assert drain(api, "q", "g") == [1, 2, 3]

    would = seek(api, to="beginning", dryRun=True)
    assert (would["fromSeq"], would["toSeq"], would["pending"]) == (3, 0, 3)
    assert drain(api, "q", "g") == []

    assert seek(api, to="beginning") == {**would, "dryRun": False}
    assert drain(api, "q", "g") == [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"to": "beginning"}, [1, 2, 3]),
        ({"to": "end"}, []),
        ({"to": "seq", "seq": 2}, [2, 3]),
        ({"to": "seq", "seq": 0}, [1, 2, 3]),
        ({"to": "seq", "seq": 999}, []),
        ({"to": "time", "time": "2000-01-01T00:00:00Z"}, [1, 2, 3]),
        ({"to": "time", "time": "2100-01-01T00:00:00Z"}, []),
    ],
)
def test_a_dry_run_of_a_seek_foretells_it(api: Api, fields: dict[str, object], left: list[int]) -> None:
    api.push("q", 1, 2, 3)

    would = seek(api, **fields, dryRun=True)
    did = seek(api, **fields)

    assert did == {**would, "dryRun": False}
    assert (did["fromSeq"], did["pending"]) == (None, len(left))
    assert drain(api, "q", "g") == left


def test_a_seek_ends_the_leases_of_the_group(api: Api) -> None:
    api.push("q", 1, 2)
    [message] = api.pop("q", batch=1, query="&consumerGroup=g")

    assert seek(api, to="end")["inFlight"] == 1
    assert api.ack(message).code == "STALE_LEASE"


@pytest.mark.parametrize(
    "fields", [{"to": "time"}, {"to": "seq"}, {"to": "end", "seq": 1}, {"to": "seq", "time": "2100-01-01T00:00:00Z"}]
)
def test_a_seek_says_where_to_in_one_way(api: Api, fields: dict[str, object]) -> None:
    api.push("q", 1)

    reply = api.post("/api/v1/consumer-groups/g/seek", {"queue": "q", **fields})

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_a_partition_is_taken_from_whoever_holds_it(api: Api) -> None:
    api.push("orders", 1, partition="a")
    api.push("orders", 2, partition="b")
    held = {one["partition"]: one for one in api.pop("orders", query="&consumerGroup=g")}

    released = api.post("/api/v1/consumer-groups/g/release", {"queue": "orders", "partition": "a"})

    assert (released.status, released.json["released"]) == (200, 1)
    [again] = api.pop("orders", query="&consumerGroup=g")
    assert (again["partition"], again["attempt"]) == ("a", 2)
    late = api.ack(held["a"])
    assert (late.status, late.code) == (409, "STALE_LEASE"), "someone else has it"
    assert api.ack(held["b"]).status == 200, "the other partition keeps its lease"
    unheld = api.post("/api/v1/consumer-groups/g/release", {"queue": "orders", "partition": "nobody"})
    assert unheld.json["released"] == 0
    assert api.post("/api/v1/consumer-groups/g/release", {"queue": "nowhere", "partition": "a"}).status == 404


def test_a_group_is_forgotten_once(api: Api) -> None:
    api.push("q", 1, 2)
    api.pop("q", batch=1, query="&consumerGroup=g")
    path = "/api/v1/consumer-groups/g?queue=q"

    would = api.delete(f"{path}&dryRun=true")
    did = api.delete(path)

    assert (would.json["pending"], would.json["inFlight"], would.json["dryRun"]) == (1, 1, True)
    assert did.json == {**would.json, "dryRun": False}
    assert api.delete(path).code == "GROUP_NOT_FOUND"
    assert drain(api, "q", "g") == [1, 2]


def test_a_reader_of_the_log_tells_its_progress(api: Api) -> None:
    api.push("q", 1, 2, 3)

    def progress(seq: int) -> dict[str, Any]:
        reply = api.post("/api/v1/consumer-groups/lake/progress", {"queue": "q", "seq": seq})
        assert reply.status == 200, reply
        answer: dict[str, Any] = reply.json
        return answer

    assert [(progress(seq)["lag"], progress(seq)["external"]) for seq in (1, 3, 2)] == [(2, True), (0, True), (0, True)]
    assert api.get("/api/v1/consumer-groups/lake").json["queues"][0]["completed"] == 2
    popped = api.get("/api/v1/pop/queue/q?consumerGroup=lake")
    assert (popped.status, popped.code) == (409, "GROUP_EXTERNAL")


def test_a_reader_of_many_logs_tells_its_progress_at_once(api: Api) -> None:
    for queue in ("a", "b"):
        api.push(queue, 1, 2, 3)

    def progress(**seqs: int) -> Any:
        return api.post("/api/v1/consumer-groups/lake/progress/batch", {"seqs": seqs}).json

    assert progress(b=2, none=9, a=1) == {"consumerGroup": "lake", "progress": {"b": 2, "a": 1}}
    assert progress(a=3, b=1)["progress"] == {"a": 3, "b": 2}
    assert {one["queue"]: one["lag"] for one in api.get("/api/v1/consumer-groups/lake").json["queues"]} == {
        "a": 0,
        "b": 1,
    }


def test_an_archive_reports_what_is_safe_in_its_lake(api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "q", "settings": {"retention_requires_archive": True}})
    api.push("q", 1, 2, 3)
    detail = api.get("/api/v1/resources/queues/q").json
    assert (detail["stats"]["archive"]["archivedSeq"], detail["stats"]["archive"]["unarchived"]) == (None, 3)

    reply = api.post("/api/v1/consumer-groups/lake/progress", {"queue": "q", "seq": 2, "archived": True})

    assert (reply.status, reply.json["archivedSeq"]) == (200, 2)
    detail = api.get("/api/v1/resources/queues/q").json
    assert (detail["stats"]["archive"]["archivedSeq"], detail["stats"]["archive"]["unarchived"]) == (2, 1)
    assert detail["groups"][0]["archivedSeq"] == 2


def test_progress_that_cannot_be_is_refused(api: Api) -> None:
    api.push("q", 1)
    drain(api, "q", "g")

    def code(group: str, **fields: object) -> str:
        return api.post(f"/api/v1/consumer-groups/{group}/progress", fields).code

    assert code("g", queue="q", seq=1) == "GROUP_NOT_EXTERNAL"
    assert code("lake", queue="q", seq=2) == "INVALID_REQUEST"
    assert code("lake", queue="q", seq=-1) == "INVALID_REQUEST"
    assert code("lake", queue="none", seq=0) == "QUEUE_NOT_FOUND"
    for wrong in ({}, {"q": -1}, {"q": 2}, {"q": "1"}):
        assert api.post("/api/v1/consumer-groups/lake/progress/batch", {"seqs": wrong}).code == "INVALID_REQUEST", wrong
