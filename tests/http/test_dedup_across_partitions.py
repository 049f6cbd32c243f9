"""A transaction id that counts in the whole queue does so for every route that pushes (I3)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.http.driver import Api
from tests.http.test_arrow import batch, stream
from tests.http.test_arrow import push as push_arrow
from tests.http.test_operations import busy
from tests.http.test_staging import log, publish, stage
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def queue(api: Api) -> None:
    assert api.post("/api/v1/configure", {"queue": "q", "settings": {"dedup_across_partitions": True}}).status == 200


def items(*messages: tuple[int, str, str]) -> list[dict[str, object]]:
    return [
        {"queue": "q", "payload": n, "partition": partition, "transactionId": id_} for n, partition, id_ in messages
    ]


def statuses(api: Api, *messages: tuple[int, str, str], **fields: object) -> list[str]:
    told = api.post("/api/v1/push", {"items": items(*messages), **fields}).json
    return [one["status"] for one in told["messages"]]


def test_a_batch(api: Api) -> None:
    assert statuses(api, (1, "a", "t"), (2, "b", "t"), (3, "b", "u")) == ["stored", "duplicate", "stored"]
    assert statuses(api, (4, "c", "u")) == ["duplicate"]
    assert log(api) == [1, 3]


def test_arrow_pushed_and_staged(api: Api) -> None:
    statuses(api, (1, "a", "t"))
    pushed = push_arrow(api, stream(batch(payload=["2", "3"], partition=["b", "b"], transaction_id=["t", "u"])))
    assert pushed.status == 201, pushed
    stage(api, batch(payload=["4", "5"], partition=["c", "c"], transaction_id=["u", "v"]))
    stage(api, batch(payload=["6", "7"], partition=["d", "d"], transaction_id=["v", None]), "1/1")
    told = publish(api, (0, 1, 2), (1, 1, 2)).json
    assert (told["messages"], told["duplicates"]) == (2, 2)
    assert log(api) == [1, 3, 5, 7]


def test_pushes_that_go_with_acks(api: Api) -> None:
    statuses(api, (1, "a", "t"))
    [message] = api.pop("q")
    ack = {"leaseId": message["leaseId"], "seq": message["seq"], "status": "completed"}
    pushed = items((2, "b", "t"), (3, "b", "u"))
    reply = api.post("/api/v1/transaction", {"acknowledgments": [ack], "items": pushed})
    assert reply.status == 200, reply
    assert log(api) == [1, 3]


def test_messages_for_later(api: Api) -> None:
    later = [{**one, "deliverAt": datetime(2999, 1, 1, tzinfo=UTC).isoformat()} for one in items((1, "a", "t"))]
    assert api.post("/api/v1/push", {"items": later}).json["messages"][0]["status"] == "scheduled"
    assert statuses(api, (2, "b", "t")) == ["duplicate"]
    assert log(api) == []


def test_pushes_that_wait_in_a_buffer(api: Api) -> None:
    for number, partition in enumerate("abc"):
        assert statuses(api, (number, partition, "t"), bufferMs=5) == ["buffered"]
    assert statuses(api, (9, "d", "u")) == ["stored"]  # a push that waits comes after them
    assert log(api) == [0, 9]


def test_pushes_that_were_queued(api: Api) -> None:
    """While one waits in front of its partition, others go ahead to theirs: whoever is first in the log has the id."""
    server = api.server
    busy(server)
    try:
        queued = [api.post("/api/v1/push", {"items": items((n, partition, "t"))}) for n, partition in enumerate("ab")]
    finally:
        busy(server, False)
    assert [one.status for one in queued] == [202, 202]
    paths = [f"/api/v1/operations/{one.json['operationId']}" for one in queued]
    until(lambda: [api.get(path).json["status"] for path in paths] == ["completed"] * 2)
    assert statuses(api, (2, "c", "t")) == ["duplicate"]
    assert log(api) == [0]
