"""Staging over the wire: what a Spark sink does, and what it may do twice."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from skep.wire.log import ARROW
from tests.http.driver import Api, Reply
from tests.http.test_arrow import batch, stream

EPOCH = "/api/v1/staging/a%2Fquery/3"


def stage(api: Api, rows: pa.RecordBatch, place: str = "0/1", query: str = "queue=q") -> Reply:
    return api.request("POST", f"{EPOCH}/{place}?{query}", stream(rows), {"Content-Type": ARROW})


def publish(api: Api, *attempts: tuple[int, int, int]) -> Reply:
    named = [{"partition": p, "attempt": a, "messages": n} for p, a, n in attempts]
    return api.post(f"{EPOCH}/publish", {"attempts": named})


def log(api: Api) -> list[Any]:
    return [message["payload"] for message in api.get("/api/v1/log/q").json["messages"]]


def test_what_is_staged_appears_when_it_is_published_and_once(api: Api) -> None:
    staged = stage(api, batch(payload=["1", "2"]))
    stage(api, batch(payload=["4"]), "1/2", "queue=q&chunk=1")
    stage(api, batch(payload=["3"], queue=["q"], transaction_id=["t"]), "1/2", "chunk=0")
    stage(api, batch(payload=["99"]), "0/9")
    assert (staged.status, staged.json) == (
        201, {"query": "a/query", "epoch": 3, "partition": 0, "attempt": 1, "chunk": 0, "messages": 2},
    )  # fmt: skip
    assert api.get("/api/v1/log/q").code == "QUEUE_NOT_FOUND"
    shown = api.get(EPOCH).json
    assert (shown["published"], shown["answer"], len(shown["attempts"])) == (False, None, 3)
    assert shown["attempts"][2] == {"partition": 1, "attempt": 2, "messages": 2, "chunks": 2}

    first, again = publish(api, (1, 2, 2), (0, 1, 2)), publish(api, (0, 9, 1))

    assert first.status == 200, first
    assert first.json == again.json == {
        "query": "a/query", "epoch": 3, "messages": 4, "duplicates": 0, "scheduled": 0,
        "queues": {"q": {"messages": 4, "firstSeq": 1, "lastSeq": 4}},
    }  # fmt: skip
    assert log(api) == [1, 2, 3, 4]
    assert api.get(EPOCH).json == {
        "query": "a/query", "epoch": 3, "published": True, "answer": first.json, "attempts": [],
    }  # fmt: skip
    late = stage(api, batch(payload=["5"]))
    assert (late.status, late.code) == (409, "EPOCH_PUBLISHED")


def test_publishing_wakes_who_waits_and_is_found_by_a_pop(api: Api) -> None:
    stage(api, batch(payload=['{"n": 1}'], partition=["p"]))
    publish(api, (0, 1, 1))

    [message] = api.pop("q")

    assert (message["payload"], message["partition"]) == ({"n": 1}, "p")


def test_what_is_staged_for_a_group_comes_to_that_group_alone(api: Api) -> None:
    api.push("q", 1)
    for group in ("billing", "audit"):
        [first] = api.pop("q", query=f"&consumerGroup={group}")
        assert api.ack(first).status == 200
    stage(api, batch(payload=["1"]), query="queue=q&consumerGroup=billing")
    publish(api, (0, 1, 1))

    assert api.pop("q", query="&consumerGroup=audit") == []
    assert [message["payload"] for message in api.pop("q", query="&consumerGroup=billing")] == [1]


def test_what_is_staged_for_a_group_has_no_time_of_delivery(api: Api) -> None:
    later = batch(payload=["1"], deliver_at=[datetime(2999, 1, 1, tzinfo=UTC)])
    assert stage(api, later, query="queue=q&consumerGroup=billing").code == "INVALID_REQUEST"


def test_an_abort_forgets_one_attempt_or_all(api: Api) -> None:
    for place in ("0/1", "0/2", "1/1"):
        stage(api, batch(payload=["1"]), place)

    assert api.delete(f"{EPOCH}?partition=0&attempt=2").json["chunks"] == 1
    assert api.delete(f"{EPOCH}?partition=0").code == "INVALID_REQUEST"
    assert api.delete(EPOCH).json["chunks"] == 2
    refused = publish(api, (0, 1, 1))
    assert (refused.status, refused.code) == (409, "STAGING_INCOMPLETE")


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (batch(payload=["{"]), "INVALID_PAYLOAD"),
        (batch(payload=["1"], partition=["\0"]), "INVALID_PARTITION"),
        (batch(payload=["1"], transaction_id=["\0"]), "INVALID_TRANSACTION_ID"),
        (batch(payload=["{"], transaction_id=["t"]), "INVALID_PAYLOAD"),
        (batch(payload=["1"], headers=["[]"]), "INVALID_HEADERS"),
        (batch(partition=["1"]), "INVALID_REQUEST"),
        (batch(payload=["1"], color=["red"]), "INVALID_REQUEST"),
    ],
)
def test_what_could_not_be_pushed_cannot_be_staged(api: Api, rows: pa.RecordBatch, code: str) -> None:
    assert stage(api, rows).code == code
    assert api.get(EPOCH).json["attempts"] == []


def test_bad_places_and_bodies_are_refused(api: Api) -> None:
    assert stage(api, batch(payload=["1"]), "x/1").code == "INVALID_REQUEST"
    assert stage(api, batch(payload=["1"]), "0/-1").code == "INVALID_REQUEST"
    assert stage(api, batch(payload=["1"]), query="chunk=0").code == "INVALID_REQUEST"
    assert publish(api, (0, 1, 0), (0, 2, 0)).code == "INVALID_REQUEST"
    assert publish(api, (0, 1, -1)).code == "INVALID_REQUEST"
    plain = api.post(f"{EPOCH}/0/1?queue=q", {"payload": 1})
    assert (plain.status, plain.code) == (415, "UNSUPPORTED_MEDIA_TYPE")
