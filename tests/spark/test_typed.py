"""Typed rows: the fields of a message type as columns, the same by Spark and by Python, and what does not fit beside them, with the reason."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

import skep
from skep.errors import SkepError
from skep.spark.columns import fields as read_by_spark
from skep.spark.data_source import SkepDataSource
from skep.spark.pipelines.quality import quality
from skep.spark.pipelines.typed import Typed, typed
from skep.spark.typed.declared import typed_queue
from skep.spark.typed.rows import TypedRows
from skep.spec import App, load
from skep.spec.ir import Queue
from skep.spec.types import parse_field
from tests.spark.conftest import Lake
from tests.spark.frames import message, messages_of
from tests.spark.test_reader import TYPES, changed

SPEC = """
app Shop {
  queue orders {
    message_type {
      total: float
      at: time
      tags: list<string> = ["none"]
      lines: list<json>
      stock: map<string, time> = {}
      more: json?
      payload: string?
    }
    check Positive {
      holds: total > 0.0
      on_fail: drop
    }
    check Small {
      holds: total < 100.0
    }
  }
  queue refunds {
    message_type {
      total: float
      why: string
    }
  }
  queue odd {
    message_type {
      total: string
    }
  }
  queue plain {}
}
"""
SHOP = load(SPEC, "shop.skep")
NOON = "2026-01-31T12:00:00"
ORDERS = [
    {"total": 1.5, "at": f"{NOON}Z", "lines": [{"n": 1}, "x"], "more": None, "gone": True},
    {"total": 500, "at": f"{NOON}.25+01:00", "tags": [], "lines": [], "stock": {"a": f"{NOON}z"}, "payload": "p"},
    {"total": -1, "at": f"{NOON}Z", "lines": []},
    {"total": "1", "at": f"{NOON}Z", "lines": []},
    {"at": f"{NOON}Z", "lines": []},
]
IMAGE = b"\xff\x00"
FIELDS = ["total", "at", "tags", "lines", "stock", "more", "message_payload"]
UNFIT = "field 'total' does not fit: expected float, not \"1\""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "shop.skep"
    file.write_text(SPEC, encoding="utf-8")
    return str(file)


def push(lake: Lake) -> None:
    lake.client.push("orders", ORDERS)
    lake.client.push("orders", skep.NewMessage(IMAGE, content_type="image/png"))


def schema_of(given: str | StructType) -> StructType:
    found = StructType.fromDDL(given) if isinstance(given, str) else given
    assert isinstance(found, StructType)
    return found


def read(lake: Lake, queue: str, **options: str) -> pa.Table:
    """The rows of a read as Spark would get them, without its tasks."""
    source = SkepDataSource({**lake.connection, "subscribe": queue, **options})
    schema = schema_of(source.schema())
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return pa.Table.from_batches(batches, to_arrow_schema(schema, timezone="UTC")).sort_by("seq")


def in_order(frame: DataFrame) -> list[Row]:
    return frame.orderBy("seq").collect()


def without_reader(app: App, messages: DataFrame, queue: str, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Typed rows in a session that has no reader in Java."""
    with monkeypatch.context() as patch:
        patch.setattr(read_by_spark, "has_reader", lambda _: False)
        return typed(messages, app, queue)


def test_typed_rows_and_rejects_are_all_messages_with_types_defaults_and_reasons(lake: Lake, spec: str) -> None:
    push(lake)
    rows, rejects = in_order(lake.read("orders", spec=spec)), in_order(lake.read("orders", spec=spec, rejects="only"))

    first, second = rows
    assert [row["seq"] for row in rows] == [1, 2]
    assert (first["total"], first["tags"], first["lines"], first["stock"]) == (1.5, ["none"], ['{"n":1}', '"x"'], {})
    assert (first["more"], first["message_payload"], first["partition"]) == (None, None, "Default")
    assert (second["total"], second["tags"], second["message_payload"]) == (500.0, [], "p")
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert second["at"].astimezone(UTC) == noon.replace(hour=11, microsecond=250_000)
    assert {key: at.astimezone(UTC) for key, at in second["stock"].items()} == {"a": noon}

    assert [row["seq"] for row in rejects] == [3, 4, 5, 6], "each message is in one of the two"
    assert [row["error"] for row in rejects[:2]] == ["Positive: does not hold", UNFIT]
    assert rejects[2]["error"] == "field 'total' does not fit: expected float, which is required"
    assert (rejects[1]["field"], rejects[1]["value"]) == ("total", '"1"')
    assert json.loads(rejects[1]["payload"]) == ORDERS[3]
    assert "expected JSON" in rejects[3]["error"]


@pytest.mark.slow
def test_frames_have_the_same_rows_as_reads_with_and_without_the_reader(
    lake: Lake, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(lake)
    plain = lake.read("orders")
    for found in (typed(plain, SHOP, "orders"), without_reader(SHOP, plain, "orders", monkeypatch)):
        assert found.rows.schema == lake.read("orders", spec=spec).schema
        assert in_order(found.rows) == in_order(lake.read("orders", spec=spec))
        names = found.rejects.columns
        assert in_order(found.rejects) == in_order(lake.read("orders", spec=spec, rejects="only").select(*names))


def as_messages(spark: SparkSession, payloads: Sequence[str]) -> DataFrame:
    return messages_of(spark, *[message("orders", seq, 0, payload=payload) for seq, payload in enumerate(payloads)])


def test_the_reason_of_a_check_has_the_words_of_quality(spark: SparkSession) -> None:
    messages = as_messages(spark, [msgspec.json.encode(order).decode() for order in ORDERS[1:]])
    checked = {row["seq"]: row["failed_checks"] for row in quality(messages, SHOP, "orders").quarantined.collect()}
    rejected = {row["seq"]: row["failed_checks"] for row in typed(messages, SHOP, "orders").rejects.collect()}
    assert rejected.keys() == checked.keys() == {1, 2, 3}
    for seq, failed in rejected.items():
        assert failed == [one for one in checked[seq] if one["on_fail"] == "drop"]


@pytest.mark.parametrize("count", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_spark_and_python_read_the_same_whatever_the_bytes_are(
    spark: SparkSession, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = {"oj": "json?", "dj": 'json? = {"a": 1}', "nj": "json = null", "lj": "list<json?> = [null, 1]"}
    types = {name: parse_field(text) for name, text in (TYPES | further).items()}
    app = App(name="Any", queues={"any": Queue(message_type=types)})
    payloads = [*changed(count, seed=count), *_with_more(further, seed=count)]
    raw = spark.createDataFrame(list(enumerate(payloads)), "seq int, payload binary").coalesce(1)
    messages = raw.withColumn("payload", F.col("payload").cast("string"))

    def told(found: Typed) -> tuple[dict[int, str], dict[int, Row]]:
        written = F.to_json(
            F.struct(*found.columns), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS", "ignoreNullFields": "false"}
        )
        rows = found.rows.select("seq", written.alias("row")).collect()
        rejects = found.rejects.withColumn("payload", F.col("payload").cast("binary")).collect()
        return {row["seq"]: row["row"] for row in rows}, {row["seq"]: row for row in rejects}

    rows, rejects = told(typed(messages, app, "any"))
    assert (rows, rejects) == told(without_reader(app, messages, "any", monkeypatch))
    assert rows.keys() | rejects.keys() == set(range(len(payloads)))
    assert not rows.keys() & rejects.keys()
    assert len(rows) > count / 40
    assert all(bytes(row["payload"]) == payloads[seq] for seq, row in rejects.items())


def _with_more(further: dict[str, str], seed: int) -> list[bytes]:
    """Messages with values of any kind in the fields that take any."""
    chance = random.Random(seed)
    values = ["null", "1.10", '{"b" : [1, null]}', '"null"', "1e99", "123456789012345678901234567890", "[ ]", "tru"]
    made = []
    for _ in range(40):
        given = {name: chance.choice(values) for name in further if chance.random() < 0.7}
        given["lj"] = f"[{chance.choice(values)}, null]"
        text = ",".join(f'"{name}":{value}' for name, value in given.items())
        made.append(next(changed(0, seed=0))[:-1] + f",{text}}}".encode())
    return made


def test_a_type_that_changed_reads_old_messages(spark: SparkSession) -> None:
    old = as_messages(
        spark, ['{"number": 1, "gone": "x", "word": "open"}', '{"number": 2, "gone": "y", "word": "shut"}']
    )

    def typed_by(fields: str) -> Typed:
        return typed(old, load(f"app Shop {{ queue orders {{ message_type {{ {fields} }} }} }}", "shop.skep"), "orders")

    rows = in_order(typed_by("number: float, word: string, note: string?, state: enum(new, old) = old").rows)
    assert rows[0].asDict() | {"created_at": None} == {
        "queue": "orders", "partition": "p", "seq": 0, "message_id": "orders-0", "transaction_id": None, "trace_id": "t",
        "headers": None, "created_at": None, "number": 1.0, "word": "open", "note": None, "state": "old",
    }  # fmt: skip
    stricter = typed_by("number: int, gone: string, word: enum(open)")
    assert [row["error"] for row in in_order(stricter.rejects)] == [
        "field 'word' does not fit: expected enum(open), not \"shut\""
    ]
    required = typed_by("number: int, gone: string, word: string, since: time")
    assert [row["field"] for row in required.rejects.collect()] == ["since", "since"]


def test_queues_of_different_types_are_one_table_by_name_and_refused_where_a_name_has_two_types(
    lake: Lake, spec: str
) -> None:
    lake.client.push("orders", ORDERS[0])
    lake.client.push("refunds", {"total": 3, "why": "late"})
    lake.client.push("odd", {"total": "3"})
    found = read(lake, "orders,refunds", spec=spec, columns="queue,seq,total,why,tags").sort_by("queue").to_pylist()
    assert [tuple(row.values()) for row in found] == [
        ("orders", 1, 1.5, None, ["none"]), ("refunds", 1, 3.0, "late", None),
    ]  # fmt: skip
    with pytest.raises(SkepError, match="the column total is string in odd, and total is double in orders"):
        read(lake, "odd,orders", spec=spec)
    assert set(read(lake, "", subscribePattern="o.*s|refunds", spec=spec)["queue"].to_pylist()) == {"orders", "refunds"}


def test_columns_may_be_chosen_and_the_payload_is_one(lake: Lake, spec: str) -> None:
    push(lake)
    found = read(lake, "orders", spec=spec, columns="seq,total,payload")
    assert found.column_names == ["seq", "total", "payload"]
    assert json.loads(found["payload"][0].as_py()) == ORDERS[0]
    source = SkepDataSource({**lake.connection, "subscribe": "orders", "spec": spec})
    chosen = source.reader(schema_of("tags array<string>"))
    batches = [batch for part in chosen.partitions() for batch in chosen.read(part)]
    assert pa.Table.from_batches(batches).to_pydict() == {"tags": [["none"], []]}
    with pytest.raises(SkepError, match="the column total is double, not bigint"):
        source.reader(schema_of("total bigint"))


def test_a_stream_takes_the_same_options(lake: Lake, spec: str) -> None:
    push(lake)
    for options in ({"spec": spec}, {"spec": spec, "rejects": "only"}):
        source = SkepDataSource({**lake.connection, "subscribe": "orders", **options})
        stream = source.streamReader(schema_of(source.schema()))
        parts = stream.partitions(
            stream.initialOffset(), stream.latestOffset(stream.initialOffset(), ReadAllAvailable())
        )
        batches = [batch for part in parts for batch in stream.read(part)]
        assert pa.Table.from_batches(batches).sort_by("seq").equals(read(lake, "orders", **options))


@pytest.mark.slow
def test_a_stream_has_the_rows_of_a_read(lake: Lake, spec: str) -> None:
    push(lake)
    for options in ({}, {"rejects": "only"}):
        name = f"typed_{len(options)}_{lake.tenant.replace('-', '_')}"
        stream = lake.stream("orders", spec=spec, **options)
        query = stream.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        assert in_order(lake.spark.table(name)) == in_order(lake.read("orders", spec=spec, **options))


def test_the_applied_spec_is_taken_by_default(lake: Lake) -> None:
    """Apps belong to the tenant `default`, unless a webhook takes the tenant."""
    name = f"applied-{lake.tenant}"
    text = f'app {name.replace("-", "_")} {{ queue "{name}" {{ message_type {{ total: float }} }} }}'
    with skep.Client(lake.url) as client:
        client.apply(load(text, "applied.skep"))
        client.push(name, [{"total": 1}, {"total": 2.5}])
    assert read(lake, name, typed="true", tenant="default")["total"].to_pylist() == [1.0, 2.5]
    lake.client.push(name, {"total": 1})
    with pytest.raises(SkepError, match=f"no applied spec declares the queue '{name}' for the tenant '{lake.tenant}'"):
        read(lake, name, typed="true")


@pytest.mark.parametrize(
    ("queue", "said"),
    [("plain", "the queue 'plain' of Shop has no message_type"), ("other", "declares no queue 'other'")],
)
def test_a_queue_without_a_type_is_refused(lake: Lake, spec: str, queue: str, said: str) -> None:
    lake.client.push(queue, {"n": 1})
    with pytest.raises(SkepError, match=said):
        read(lake, queue, spec=spec)


def test_a_spec_that_cannot_be_read_is_refused_with_its_place(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(SkepError, match=r"nowhere\.skep cannot be read in .*: No such file"):
        read(lake, "orders", spec=str(tmp_path / "nowhere.skep"))
    (tmp_path / "wrong.skep").write_text(
        "app Shop { queue orders { message_type { total: money } } }", encoding="utf-8"
    )
    with pytest.raises(SkepError, match="there is no type 'money'"):
        read(lake, "orders", spec=str(tmp_path / "wrong.skep"))


def test_a_queue_that_is_made_while_a_stream_runs_is_no_table_of_nulls(spark: SparkSession) -> None:
    rows = TypedRows({"orders": typed_queue(SHOP, "orders")}, rejects=False)
    batch = pa.record_batch({"queue": ["new"], "payload": ["{}"]})
    with pytest.raises(SkepError, match="the queue 'new' was made after the query began"):
        list(rows.batches([batch], rows.offered(())))
