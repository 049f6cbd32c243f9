"""Tables over the wire: what Spark computes latencies, journeys and lag from."""

from __future__ import annotations

import pyarrow as pa
import pytest

from skep.http import tables
from tests.http.driver import Api


def read(api: Api, table: str, query: str = "") -> pa.Table:
    reply = api.get(f"/api/v1/tables/{table}{query}")
    assert reply.status == 200, reply
    found = pa.ipc.open_stream(reply.body).read_all()
    assert found.schema == tables.TABLES[table].schema
    return found


def test_leases_come_in_order_and_in_ranges(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LEASE_ROWS", 2)
    for number in range(5):
        api.push("q", number, partition=f"p{number}")
        api.ack(api.pop("q")[0], "completed" if number else "retry")

    found = read(api, "leases", "?queue=q")
    positions = found["position"].to_pylist()

    assert found["partition"].to_pylist()[0] == "p0"
    assert positions == sorted(positions)
    assert len(positions) >= 5
    assert set(found["outcome"].to_pylist()) >= {"completed"}
    assert (
        read(api, "leases", f"?queue=q&after={positions[0]}&until={positions[2]}")["position"].to_pylist()
        == positions[1:3]
    )
    assert read(api, "leases", "?queue=q&limit=3").num_rows == 3


def test_leases_and_dead_letters_come_from_a_time_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LEASE_ROWS", 2)
    monkeypatch.setattr(tables, "LETTER_ROWS", 2)
    api.push("q", *range(7))
    for message in api.pop("q"):
        api.ack(message, "dlq", error="broken")

    for table, column in (("leases", "settled_at"), ("dead_letters", "failed_at")):
        times = read(api, table, "?queue=q")[column].to_pylist()
        since = times[3].isoformat().replace("+", "%2B")
        found = read(api, table, f"?queue=q&since={since}")
        assert found[column].to_pylist() == [at for at in times if at >= times[3]]
    assert api.get("/api/v1/tables/leases?queue=q&since=never").code == "INVALID_REQUEST"


def test_dead_letters_are_those_of_a_queue_or_in_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "LETTER_ROWS", 2)
    api.push("q", *range(5), headers={"a": "b"})
    for message in api.pop("q"):
        api.ack(message, "dlq", error="broken")

    found = read(api, "dead_letters", "?queue=q")

    assert found["payload"].to_pylist() == [b"0", b"1", b"2", b"3", b"4"]
    assert (found["error"].to_pylist(), found["headers"].to_pylist()) == (["broken"] * 5, ['{"a": "b"}'] * 5)
    assert read(api, "dead_letters", "?queue=q.dead&after=1&until=4")["seq"].to_pylist() == [2, 3, 4]


def test_queues_and_groups_are_tables_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "QUEUE_ROWS", 2)
    for name in "abcde":
        api.push(name, 1)
    api.post("/api/v1/consumer-groups/lake/progress", {"queue": "c", "seq": 0})
    api.pop("e", query="&consumerGroup=g")

    queues, groups = read(api, "queues"), read(api, "groups")

    assert queues["queue"].to_pylist() == list("abcde")
    assert queues["depth"].to_pylist() == [1] * 5
    assert read(api, "queues", "?after=b&limit=2")["queue"].to_pylist() == ["c", "d"]
    assert [(row["queue"], row["group"], row["external"], row["lag"]) for row in groups.to_pylist()] == [
        ("c", "lake", True, 1), ("e", "g", False, 1),
    ]  # fmt: skip
    assert read(api, "groups", "?queue=e").num_rows == 1


def test_a_table_that_cannot_be_is_refused_before_it_begins(api: Api) -> None:
    assert api.get("/api/v1/tables/none").code == "INVALID_REQUEST"
    assert api.get("/api/v1/tables/leases").code == "INVALID_REQUEST"
    assert api.get("/api/v1/tables/leases?queue=none").code == "QUEUE_NOT_FOUND"
    assert api.get("/api/v1/tables/dead_letters?queue=none").code == "QUEUE_NOT_FOUND"
    assert api.get("/api/v1/tables/queues?limit=0").code == "INVALID_REQUEST"
    api.push("q", 1)
    assert api.get("/api/v1/tables/leases?queue=q&after=x").code == "INVALID_REQUEST"
    assert read(api, "dead_letters", "?queue=q").num_rows == 0
