"""Bulk over HTTP: Arrow streams in and out."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from skep.arrow.log import LOG_SCHEMA, POPPED_SCHEMA
from skep.wire.log import ARROW
from tests.engine.driver import until
from tests.http.driver import Api, Reply


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
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
    if "columns" not in query:
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


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_range_may_be_compressed(api: Api, compression: str) -> None:
    push(api, stream(batch(payload=["1"] * 100)))

    assert read(api, f"?from=11&to=20&compression={compression}")["seq"].to_pylist() == list(range(11, 21))


def test_a_long_range_comes_in_several_batches_up_to_the_limit(api: Api) -> None:
    push(api, stream(batch(payload=["1"] * 25_000)))

    reply = api.request("GET", "/api/v1/log/q?limit=24000", headers={"Accept": ARROW})

    batches = list(pa.ipc.open_stream(reply.body))
    assert len(batches) >= 5
    assert sum(b.num_rows for b in batches) == 24_000


def test_the_log_is_read_as_json_too(api: Api) -> None:
    api.push("q", {"n": 1}, headers={"a": "b"}, partition="p")
    api.push("q", 2)

    reply = api.get("/api/v1/log/q?from=1&to=1")

    [message] = reply.json["messages"]
    assert (message["seq"], message["payload"], message["headers"], message["partition"]) == (
        1, {"n": 1}, {"a": "b"}, "p",
    )  # fmt: skip


def test_an_answer_in_json_has_as_many_messages_as_are_not_too_long_together(api: Api) -> None:
    for _ in range(5):
        api.push("q", "a" * 3 * 1024 * 1024)

    pages = [api.get(f"/api/v1/log/q?from={first}").json["messages"] for first in (1, 4)]
    narrow = api.get("/api/v1/log/q?from=2&to=3").json["messages"]

    assert [[m["seq"] for m in page] for page in (*pages, narrow)] == [[1, 2, 3], [4, 5], [2, 3]]


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


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_compressed_stream_is_pushed(api: Api, compression: str) -> None:
    categories = batch(payload=["1", "2", "1"], partition=["a" * 100] * 3)
    encoded = pa.record_batch({name: categories[name].dictionary_encode() for name in categories.schema.names})

    assert push(api, stream(encoded, encoded, compression=compression)).json["count"] == 6
    assert read(api)["payload"].to_pylist() == [b"1", b"2", b"1"] * 2


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_stream_is_not_unpacked_when_it_would_be_too_large(api: Api, compression: str) -> None:
    values = pa.array(['"' + "a" * 9_998 + '"'])
    lying = [
        stream(pa.record_batch({"payload": column}), compression=compression).replace(
            (10_000).to_bytes(8, "little"), (1 << 45).to_bytes(8, "little")
        )
        for column in (values, values.dictionary_encode())
    ]

    replies = [push(api, body) for body in lying]

    assert [(reply.status, reply.code) for reply in replies] == [(413, "PAYLOAD_TOO_LARGE")] * 2


def named_often(data: bytes) -> pa.Array:
    """A column of texts, each of which is the same bytes, at one place."""
    _, view, buffer = pa.array([data]).cast(pa.binary_view()).buffers()
    views = pa.py_buffer(view.to_pybytes() * 10_000)
    return pa.Array.from_buffers(pa.string_view(), 10_000, [None, views, buffer])


def test_what_is_too_large_is_refused_before_every_byte_is_looked_at(api: Api) -> None:
    no_text = b"\xff" * 1_000_000

    reply = push(api, stream(pa.record_batch({"payload": named_often(no_text)})))

    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")


@pytest.mark.parametrize("more", [{}, {"priority": pa.array([1] * 10_000)}])
@pytest.mark.parametrize("name", ["payload", "partition"])
@pytest.mark.parametrize("kind", ["dictionary", "view"])
def test_one_long_value_named_often_is_not_written_out(
    api: Api, kind: str, name: str, more: dict[str, pa.Array]
) -> None:
    value = '"' + "a" * 1_000_000 + '"'
    if kind == "view":
        column = named_often(value.encode())
    else:
        column = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int32()), pa.array([value]))
    columns = {"payload": pa.array(["1"] * 10_000), **more, name: column}

    reply = push(api, stream(pa.record_batch(columns)))

    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")


def test_views_are_pushed(api: Api) -> None:
    rows = batch(payload=["1", '"a text that is longer than twelve bytes"'], partition=["a", "b"])
    views = pa.record_batch({name: rows[name].cast(pa.string_view()) for name in rows.schema.names})

    assert push(api, stream(views, views.slice(1))).json["count"] == 3
    assert read(api)["partition"].to_pylist() == ["a", "b", "b"]


def test_a_column_that_is_there_twice_is_refused(api: Api) -> None:
    names = ["payload", "partition", "partition"]
    rows = pa.RecordBatch.from_arrays([pa.array(["1"]), pa.array(["a"]), pa.array(["b"])], names)

    reply = push(api, stream(rows))

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


AT = datetime.datetime(2200, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"partition": pa.array([""])}, "INVALID_PARTITION"),
        ({"partition": pa.array([b"\xff"])}, "INVALID_REQUEST"),
        ({"queue": pa.array([""])}, "INVALID_NAME"),
        ({"priority": pa.array([1.5])}, "INVALID_REQUEST"),
        ({"priority": pa.array([2**63], pa.uint64())}, "INVALID_REQUEST"),
        ({"deliver_at": pa.array([AT.replace(tzinfo=None)])}, "INVALID_TIME"),
        ({"deliver_at": pa.array([2**62], pa.timestamp("us", "UTC"))}, "INVALID_TIME"),
        ({"deliver_at": pa.array([2**62], pa.timestamp("s", "UTC"))}, "INVALID_REQUEST"),
        ({"trace_id": pa.array(["x"])}, "INVALID_TRACE_ID"),
        ({"trace_id": pa.array([7])}, "INVALID_REQUEST"),
        ({"headers": pa.array([{"a": "b"}])}, "INVALID_REQUEST"),
        ({"headers": pa.array([[("a", None)]], pa.map_(pa.string(), pa.string()))}, "INVALID_HEADERS"),
        ({"headers": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}, "INVALID_REQUEST"),
    ],
)
def test_a_value_that_does_not_fit_its_column_is_told(api: Api, columns: dict[str, pa.Array], code: str) -> None:
    rows = pa.record_batch({"payload": pa.array(["1"]), "transaction_id": pa.array(["t"]), **columns})

    reply = push(api, stream(rows))

    assert (reply.status, reply.code) == (422, code)


def test_columns_of_other_types_mean_the_same(api: Api) -> None:
    rows = pa.record_batch(
        {
            "payload": pa.array(["1", "2"]),
            "partition": pa.array([b"a", None]),
            "transaction_id": pa.array(["t", "u"]).dictionary_encode(),
            "priority": pa.array([1, None], pa.int8()),
            "deliver_at": pa.array([AT, None], pa.timestamp("ns", "Europe/Berlin")),
            "content_type": pa.nulls(2),
        }
    )

    reply = push(api, stream(rows))

    assert [m["status"] for m in reply.json["messages"]] == ["scheduled", "stored"]
    assert [(m["partition"], m["transactionId"]) for m in api.pop("q")] == [("Default", "u")]


def test_a_stream_of_very_many_batches_is_refused(api: Api) -> None:
    empty = batch(payload=pa.array([], pa.string()))

    reply = push(api, stream(*[empty] * 10_001))

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_damaged_streams_are_errors_and_nothing_worse(api: Api) -> None:
    random = Random(1)
    rows = batch(payload=["1", "[2]"] * 10, partition=["a", "b"] * 10)
    coded = pa.record_batch({name: rows[name].dictionary_encode() for name in rows.schema.names})
    views = pa.record_batch({name: rows[name].cast(pa.string_view()) for name in rows.schema.names})
    rich = rows.append_column("deliver_at", pa.array([AT] * 20, pa.timestamp("us", "UTC")))
    sound = [stream(rows, rows), stream(rows, compression="zstd"), stream(coded), stream(views), stream(rich)]

    for _ in range(100):
        damaged = bytearray(random.choice(sound))
        for _ in range(random.choice((1, 2, 8))):
            damaged[random.randrange(len(damaged))] = random.choice((0, 1, 127, 255, random.randrange(256)))
        reply = push(api, bytes(damaged))

        assert reply.status in (201, 400, 413, 422), (reply, bytes(damaged))


def test_only_some_columns_and_partitions_are_sent(api: Api) -> None:
    push(api, stream(batch(payload=["1", "2", "3", "4"], partition=["a", "b", "c&,", "a"])))

    table = read(api, "?columns=payload,seq&partition=a&partition=c%26%2C")

    assert table.to_pydict() == {"payload": [b"1", b"3", b"4"], "seq": [1, 3, 4]}
    assert read(api, "?partition=none").num_rows == 0


@pytest.mark.parametrize("query", ["columns=body", "columns=", "columns=seq,seq", "compression=gzip", "partition=%00"])
def test_a_stream_that_cannot_be_is_refused_before_it_begins(api: Api, query: str) -> None:
    api.push("q", 1)

    reply = api.request("GET", f"/api/v1/log/q?{query}", headers={"Accept": ARROW})

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_what_is_for_arrow_only_is_refused_as_json(api: Api) -> None:
    api.push("q", 1)

    assert api.get("/api/v1/log/q?columns=seq").code == "INVALID_REQUEST"
    assert api.get("/api/v1/log/q?partition=a&partition=b").code == "INVALID_REQUEST"
    assert api.get("/api/v1/log/q?from=1&from=2").code == "INVALID_REQUEST"


def test_bounds_find_a_time_and_how_much_fits(api: Api) -> None:
    api.push("q", 1, 22, 333)

    def bounds(query: str) -> dict[str, Any]:
        answer: dict[str, Any] = api.get(f"/api/v1/log/q/bounds?{query}").json
        return answer

    assert bounds("at=2000-01-01T00:00:00Z")["atSeq"] == 1
    assert bounds("at=2999-01-01T00:00:00Z")["atSeq"] == 4
    assert [bounds(f"from={first}&maxBytes={most}")["throughSeq"] for first, most in ((1, 3), (2, 1), (2, 9))] == [
        2,
        2,
        3,
    ]
    assert bounds("")["throughSeq"] is None
    for wrong in ("from=1", "maxBytes=1", "after=1", "wait=true", "from=1&maxBytes=0", "after=-1&wait=true"):
        assert api.get(f"/api/v1/log/q/bounds?{wrong}").code == "INVALID_REQUEST", wrong


def test_bounds_of_many_queues_come_in_one_answer_in_the_order_they_were_asked_for(api: Api) -> None:
    for queue, count in (("a", 1), ("b", 2)):
        api.post("/api/v1/push", {"items": [{"queue": queue, "payload": number} for number in range(count)]})

    found = api.post("/api/v1/logs/bounds", {"queues": ["b", "none", "a"]}).json["logs"]

    assert found == [api.get(f"/api/v1/log/{queue}/bounds").json for queue in ("b", "a")]
    for wrong in ([], ["a"] * 1_001):
        assert api.post("/api/v1/logs/bounds", {"queues": wrong}).code == "INVALID_REQUEST", wrong


def test_positions_of_many_queues_come_in_one_answer_and_are_those_of_each(api: Api) -> None:
    api.push("a", *("x" * 8 for _ in range(3)))
    api.push("b", "x")
    api.post("/api/v1/consumer-groups/lake/progress", {"queue": "a", "seq": 2})
    now, queues = "2000-01-01T00:00:00Z", ["b", "none", "a"]

    asked = {"queues": queues, "at": now, "from": {"a": 2, "none": 1}, "maxBytes": 15, "consumerGroup": "lake"}
    found = api.post("/api/v1/logs/bounds", asked).json["logs"]

    alone = {queue: api.get(f"/api/v1/log/{queue}/bounds?at={now}&from=2&maxBytes=15").json for queue in ("a", "b")}
    assert found == [{**alone["b"], "throughSeq": None}, {**alone["a"], "progressSeq": 2}]
    assert (alone["a"]["atSeq"], alone["a"]["throughSeq"]) == (1, 2)
    for wrong in (
        {"from": {"c": 1}, "maxBytes": 1},
        {"from": {"a": 1}},
        {"maxBytes": 1},
        {"from": {"a": 1}, "maxBytes": 0},
    ):
        assert api.post("/api/v1/logs/bounds", {"queues": ["a"], **wrong}).code == "INVALID_REQUEST", wrong


def test_bounds_wait_for_more(api: Api) -> None:
    api.push("q", 1)

    assert api.get("/api/v1/log/q/bounds?after=0&wait=true&timeout=30").json["lastSeq"] == 1
    assert api.get("/api/v1/log/q/bounds?after=1&wait=true&timeout=0.01").json["lastSeq"] == 1
    with ThreadPoolExecutor(1) as pool:
        other = Api(api.server, api.tenant)
        waiting = pool.submit(other.get, "/api/v1/log/q/bounds?after=1&wait=true&timeout=30")
        api.server.run(until(lambda: api.server.engine.parked_polls == 1))
        api.push("q", 2)
        assert waiting.result(30).json["lastSeq"] == 2
        other.close()


def test_a_pop_comes_as_columns_that_say_what_its_json_says(api: Api) -> None:
    api.push("q", {"n": 1}, partition="a", headers={"x": "y"}, transactionId="t")
    api.push("q", {"n": 2}, partition="b")

    reply = api.request("POST", "/api/v1/pop/queue/q?batch=10&consumerGroup=columns", headers={"Accept": ARROW})
    told = {m["seq"]: m for m in api.pop("q", query="&consumerGroup=json")}

    assert (reply.status, reply.headers["content-type"]) == (200, ARROW)
    table = pa.ipc.open_stream(reply.body).read_all()
    assert table.schema == POPPED_SCHEMA
    rows = table.to_pylist()
    assert sorted(row["seq"] for row in rows) == [1, 2]
    for row in rows:
        other = told[row["seq"]]
        assert (row["queue"], row["partition"], row["transaction_id"]) == (
            "q",
            other["partition"],
            other["transactionId"],
        )
        assert uuid.UUID(bytes=row["message_id"]) == uuid.UUID(other["id"])
        assert uuid.UUID(bytes=row["trace_id"]) == uuid.UUID(other["traceId"])
        assert json.loads(row["payload"]) == other["payload"]
        assert (row["headers"] and json.loads(row["headers"])) == other["headers"]
        assert row["created_at"] == datetime.datetime.fromisoformat(other["createdAt"])
        assert (row["priority"], row["attempt"], row["group"]) == (other["priority"], 1, "columns")
        assert row["dead_letter"] is None
    acks = [{"leaseId": row["lease_id"], "seq": row["seq"], "status": "completed"} for row in rows]
    settled = api.post("/api/v1/ack/batch", {"acknowledgments": acks})
    assert [one["status"] for one in settled.json["results"]] == ["completed", "completed"]


def test_a_pop_of_nothing_has_no_columns(api: Api) -> None:
    api.push("q", {"n": 1})
    api.pop("q")

    reply = api.request("POST", "/api/v1/pop/queue/q", headers={"Accept": ARROW})

    assert (reply.status, reply.body) == (204, b"")


def test_only_messages_with_some_ids_are_sent(api: Api) -> None:
    trace = str(uuid.UUID(int=7))
    items = [
        {"queue": "q", "partition": f"p-{n % 2}", "payload": n, **({"transactionId": f"t-{n}"} if n % 3 == 0 else {})}
        for n in range(30)
    ]
    items[4]["traceId"] = items[9]["traceId"] = trace
    assert api.post("/api/v1/push", {"items": items}).status == 201

    def found(query: str) -> list[int]:
        return [int(payload) for payload in read(api, query)["payload"].to_pylist()]

    assert found("?transactionId=t-9&transactionId=t-27&transactionId=t-1") == [9, 27]
    assert found(f"?traceId={trace}") == [4, 9]
    assert found(f"?traceId={trace}&transactionId=t-9") == [9]
    assert found(f"?traceId={trace}&partition=p-0") == [4]
    assert found("?transactionId=t-9&from=11") == []
    assert found("?transactionId=t-9&transactionId=t-12&limit=1") == [9]
    table = read(api, "?transactionId=t-9&columns=payload,partition")
    assert table.schema.names == ["payload", "partition"]
    assert table.to_pylist() == [{"payload": b"9", "partition": "p-1"}]
    assert read(api, "?transactionId=none").num_rows == 0


def test_large_payloads_between_two_wanted_messages_do_not_hide_the_second(api: Api) -> None:
    large = "x" * 1_000_000
    for n in range(12):
        wanted = {"transactionId": f"t-{n}"} if n in (0, 11) else {}
        assert api.post("/api/v1/push", {"items": [{"queue": "q", "payload": large, **wanted}]}).status == 201

    assert read(api, "?transactionId=t-0&transactionId=t-11")["seq"].to_pylist() == [1, 12]


def test_ids_are_for_arrow_and_must_be_ids(api: Api) -> None:
    assert api.push("q", 1).status == 201

    assert api.get("/api/v1/log/q?transactionId=t").json["error"]["code"] == "INVALID_REQUEST"
    refused = api.request("GET", "/api/v1/log/q?traceId=x", headers={"Accept": ARROW})
    assert refused.json["error"]["code"] == "INVALID_TRACE_ID"
