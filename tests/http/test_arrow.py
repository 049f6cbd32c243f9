"""Bulk over HTTP: Arrow streams in and out."""

from __future__ import annotations

import datetime
import io

import pyarrow as pa
import pytest

from skep.columns import LOG_SCHEMA
from skep.wire.log import ARROW
from tests.http.driver import Api, Reply


def stream(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def push(api: Api, body: bytes, queue: str | None = "q") -> Reply:
    path = "/api/v1/push" + ("" if queue is None else f"?queue={queue}")
    return api.request("POST", path, body, {"Content-Type": ARROW})


def read(api: Api, query: str = "") -> pa.Table:
    reply = api.request("GET", f"/api/v1/log/q{query}", headers={"Accept": ARROW})
    assert (reply.status, reply.headers["content-type"]) == (200, ARROW)
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.schema == LOG_SCHEMA
    return table


def batch(**columns: object) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(values) for name, values in columns.items()})


def test_a_stream_is_pushed_and_read_back_byte_by_byte(api: Api) -> None:
    payloads = ['{"n": 1}', '"é"', "[ ]"]
    first, second = batch(payload=payloads[:2], partition=["a", "ü"]), batch(payload=payloads[2:], partition=["a"])

    reply = push(api, stream(first, second))

    assert (reply.status, reply.json["count"], reply.json["firstSeq"], reply.json["lastSeq"]) == (201, 3, 1, 3)
    assert reply.json["queues"]["q"]["depth"] == 3
    table = read(api)
    assert table["payload"].to_pylist() == [text.encode() for text in payloads]
    assert table["partition"].to_pylist() == ["a", "ü", "a"]
    assert sorted(m["seq"] for m in api.pop("q")) == [1, 2, 3]


def test_a_stream_with_more_columns_is_pushed_with_all_of_them(api: Api) -> None:
    due = datetime.datetime(2999, 1, 1, tzinfo=datetime.UTC)
    rows = pa.record_batch(
        {
            "queue": ["q", "q", "q"],
            "payload": ["1", "1", "2"],
            "transaction_id": ["t", "t", "u"],
            "headers": pa.array([[("a", "b")], None, None], pa.map_(pa.string(), pa.string())),
            "deliver_at": pa.array([None, None, due], pa.timestamp("us", tz="UTC")),
        }
    )

    reply = push(api, stream(rows), queue=None)

    assert [m["status"] for m in reply.json["messages"]] == ["stored", "duplicate", "scheduled"]
    assert [m["headers"] for m in api.pop("q")] == [{"a": "b"}]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_range_may_be_compressed(api: Api, compression: str) -> None:
    push(api, stream(batch(payload=["1"] * 100)))

    assert read(api, f"?from=11&to=20&compression={compression}")["seq"].to_pylist() == list(range(11, 21))


def test_a_long_range_comes_in_several_batches_up_to_the_limit(api: Api) -> None:
    push(api, stream(batch(payload=["1"] * 25_000)))

    reply = api.request("GET", "/api/v1/log/q?limit=24000", headers={"Accept": ARROW})

    batches = list(pa.ipc.open_stream(reply.body))
    assert len(batches) == 3
    assert sum(b.num_rows for b in batches) == 24_000


def test_the_log_is_read_as_json_too(api: Api) -> None:
    api.push("q", {"n": 1}, headers={"a": "b"}, partition="p")
    api.push("q", 2)

    reply = api.get("/api/v1/log/q?from=1&to=1")

    [message] = reply.json["messages"]
    assert (message["seq"], message["payload"], message["headers"], message["partition"]) == (
        1, {"n": 1}, {"a": "b"}, "p",
    )  # fmt: skip


def test_bounds_say_what_the_log_holds(api: Api) -> None:
    api.push("q", 1, 2)

    reply = api.get("/api/v1/log/q/bounds")

    assert (reply.json["firstSeq"], reply.json["lastSeq"]) == (1, 2)
    assert api.get("/api/v1/log/none/bounds").code == "QUEUE_NOT_FOUND"
    assert api.request("GET", "/api/v1/log/none", headers={"Accept": ARROW}).code == "QUEUE_NOT_FOUND"


@pytest.mark.parametrize(
    ("rows", "code"),
    [
        (batch(payload=["{"]), "INVALID_PAYLOAD"),
        (batch(payload=[b'"\xff"']), "INVALID_PAYLOAD"),
        (batch(payload=["1,2"]), "INVALID_PAYLOAD"),
        (batch(payload=["[" * 100_000]), "INVALID_PAYLOAD"),
        (batch(payload=["1"], partition=[""]), "INVALID_PARTITION"),
        (batch(payload=["1"], partition=["a\n"]), "INVALID_PARTITION"),
        (batch(payload=["1"], partition=["a\x85"]), "INVALID_PARTITION"),
        (batch(payload=["1"], partition=["é" * 256]), "INVALID_PARTITION"),
        (batch(payload=["1"], partition=[b"\xff"]), "INVALID_PARTITION"),
        (batch(payload=pa.array([None, "1"])), "INVALID_REQUEST"),
        (batch(payload=[1]), "INVALID_REQUEST"),
        (batch(partition=["a"]), "INVALID_REQUEST"),
        (batch(payload=["1"], colour=["red"]), "INVALID_REQUEST"),
        (batch(payload=pa.array([], pa.string())), "INVALID_REQUEST"),
    ],
)
def test_what_may_not_enter_is_refused_whole(api: Api, rows: pa.RecordBatch, code: str) -> None:
    good = batch(payload=["1"])
    api.push("q", 0)

    reply = push(api, stream(rows))

    assert (reply.status, reply.code) == (422, code)
    assert push(api, stream(good)).json["lastSeq"] == 2


@pytest.mark.parametrize("body", [b"", b"\x00" * 100, stream(batch(payload=["1"] * 1000))[:-500]])
def test_what_is_no_stream_is_400(api: Api, body: bytes) -> None:
    reply = push(api, body)

    assert (reply.status, reply.code) == (400, "MALFORMED")


def test_offsets_that_lie_do_not_reach_memory(api: Api) -> None:
    honest = stream(batch(payload=["aaaa", "bbbb"]))
    lying = honest.replace((4).to_bytes(4, "little") + (8).to_bytes(4, "little"), b"\x04\0\0\0\xff\xff\xff\x7f")
    assert lying != honest

    reply = push(api, lying)

    assert (reply.status, reply.code) == (400, "MALFORMED")
