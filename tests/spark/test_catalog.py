"""The catalog: queues and the server's tables in SQL, without a line of Python."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC
from typing import Any, get_args

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row

import skep
from skep.spark.answers import COMMENTS
from skep.spark.jvm import CATALOG_CLASS
from skep.spark.options import Table
from skep.spark.schema import MESSAGES
from tests.spark.conftest import Lake
from tests.spark.frames import shop_spec
from tests.spark.test_push_down import leaves, sent


@pytest.fixture
def shop(lake: Lake) -> Iterator[Lake]:
    """A catalog of the test's own, since Spark keeps the options of one; with two queues, one of them in a namespace."""
    name = lake.tenant.replace("-", "_")
    settings = {f"spark.sql.catalog.{name}": CATALOG_CLASS}
    settings |= {f"spark.sql.catalog.{name}.{option}": value for option, value in lake.connection.items()}
    for setting, value in settings.items():
        lake.spark.conf.set(setting, value)
    lake.client.push("orders", list(range(10)), partition="a")
    lake.client.push("orders", list(range(10, 20)), partition="b")
    lake.client.configure("a,b", namespace="billing")
    lake.client.push("a,b", [1, 2, 3])
    yield lake
    lake.spark.sql("USE spark_catalog")
    for setting in settings:
        lake.spark.conf.unset(setting)


def sql(shop: Lake, text: str) -> list[Row]:
    """The rows of a statement, in which `skep` is the catalog of the test."""
    return shop.spark.sql(named(shop, text)).collect()


def named(shop: Lake, text: str) -> str:
    name = shop.tenant.replace("-", "_")
    return text.replace("skep.", f"{name}.").replace("skep_typed.", f"{name}_typed.").replace("IN skep", f"IN {name}")


def column(rows: list[Row], name: str) -> list[Any]:
    return [row[name] for row in rows]


def test_queues_are_listed_described_and_read(shop: Lake) -> None:
    assert column(sql(shop, "SHOW NAMESPACES IN skep"), "namespace") == ["billing", "server"]
    assert column(sql(shop, "SHOW TABLES IN skep"), "tableName") == ["a,b", "orders"]
    assert column(sql(shop, "SHOW TABLES IN skep.billing"), "tableName") == ["a,b"]

    described = {row.col_name: (row.data_type, row.comment) for row in sql(shop, "DESCRIBE skep.orders")}
    assert list(described) == MESSAGES.names
    assert (described["seq"], described["queue"]) == (("bigint", COMMENTS["seq"]), ("string", COMMENTS["queue"]))

    counted = sql(
        shop, "SELECT partition, count(*) AS n, max(seq) AS last FROM skep.orders GROUP BY partition ORDER BY 1"
    )
    assert [tuple(row) for row in counted] == [("a", 10, 10), ("b", 10, 20)]
    assert len(sql(shop, "SELECT * FROM skep.billing.`a,b`")) == len(sql(shop, "SELECT * FROM skep.`a,b`")) == 3


def test_tables_of_the_server_are_in_a_namespace_of_their_own(shop: Lake) -> None:
    shop.client.ack(*shop.client.pop("orders", group="workers", batch=4))

    assert column(sql(shop, "SHOW TABLES IN skep.server"), "tableName") == list(get_args(Table))
    queues = sql(shop, "SELECT queue, last_seq FROM skep.server.queues ORDER BY queue")
    assert [tuple(row) for row in queues] == [("a,b", 3), ("orders", 20)]
    assert column(sql(shop, "SELECT completed FROM skep.server.groups WHERE queue = 'orders'"), "completed") == [4]
    assert column(sql(shop, "SELECT messages FROM skep.server.leases WHERE queue = 'orders'"), "messages") == [4]
    assert sql(shop, "SELECT * FROM skep.server.dead_letters") == []


def test_insert_writes_rows_of_a_query(shop: Lake) -> None:
    sql(shop, "INSERT INTO skep.`a,b` SELECT payload, partition FROM skep.orders WHERE seq <= 3")

    written = [(one.partition, bytes(one.payload)) for one in shop.client.messages("a,b") if one.seq > 3]
    assert written == [("a", b"0"), ("a", b"1"), ("a", b"2")]


@pytest.mark.slow
def test_insert_writes_values_and_a_repeat_once(shop: Lake) -> None:
    sql(shop, "INSERT INTO skep.`a,b` (partition, payload) VALUES ('x', '{}')")
    for _ in range(2):
        sql(shop, "INSERT INTO skep.`a,b` WITH (writeId = 'once') SELECT 'null' AS payload")

    found = sql(shop, "SELECT partition, payload FROM skep.`a,b` WHERE seq > 3 ORDER BY seq")
    assert [tuple(row) for row in found] == [("x", "{}"), ("Default", "null")]


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        (
            "SELECT * FROM skep.nope",
            r"no queue nope in \w+\. SHOW TABLES IN \w+ lists what is there; skep queue create nope",
        ),
        ("INSERT INTO skep.nope SELECT '1' AS payload", "skep queue create nope makes a queue"),
        ("SELECT * FROM skep.server.nope", "are in .*server: leases, dead_letters, queues, groups"),
        ("SELECT * FROM skep.billing.orders", r"no queue orders in \w+\.billing"),
        ("INSERT INTO skep.orders VALUES ('1')", r"no column payload among col1\. Name the columns: INSERT INTO"),
        ("INSERT INTO skep.orders SELECT * FROM skep.orders", "leave out the column queue"),
        ("INSERT INTO skep.orders WITH (queue = 'b') VALUES ('{}')", "leave out the option queue"),
        ("SELECT * FROM skep.orders WITH (Subscribe = 'b')", "leave out the option subscribe, or name it in a view"),
        ("SELECT * FROM skep.orders WITH (typed = 'true')", "leave out the option typed"),
        (
            "SELECT * FROM skep.orders VERSION AS OF 5 WITH (endingoffsets = 'latest')",
            "leave out the option endingOffsets",
        ),
        (
            "SELECT * FROM skep.orders TIMESTAMP AS OF '2020-01-01' WITH (endingTimestamp = '2030-01-01T00:00:00Z')",
            "says where the read ends",
        ),
        ("SELECT * FROM skep.orders VERSION AS OF 'x'", "the version of a queue is a seq"),
        ("CREATE TABLE skep.x (payload string)", "with: skep queue create x"),
        ("CREATE TABLE skep.x AS SELECT '1' AS payload", "with: skep queue create x"),
        ("DROP TABLE skep.orders", "with: skep queue delete orders"),
        ("ALTER TABLE skep.orders ADD COLUMN x int", "with: skep queue update orders"),
        ("ALTER TABLE skep.orders RENAME TO skep.x", "a queue keeps its name"),
        ("CREATE NAMESPACE skep.x", "skep queue update QUEUE --namespace x"),
        ("DROP NAMESPACE skep.billing", "skep queue update QUEUE --reset namespace"),
    ],
)
def test_what_cannot_be_done_is_told_with_its_cure(shop: Lake, text: str, cure: str) -> None:
    with pytest.raises(PySparkException, match=cure):
        sql(shop, text)


def test_tools_find_out_whether_a_table_is_there(shop: Lake) -> None:
    exists = shop.spark.catalog.tableExists
    assert [exists(named(shop, f"skep.{table}")) for table in ("orders", "nope", "server.leases", "server.nope")] == [
        True, False, True, False,
    ]  # fmt: skip
    with pytest.raises(AnalysisException) as told:
        sql(shop, "SELECT * FROM skep.nope")
    assert told.value.getCondition() == "TABLE_OR_VIEW_NOT_FOUND"
    sql(shop, "DROP TABLE IF EXISTS skep.nope")
    with pytest.raises(AnalysisException, match="SCHEMA_NOT_FOUND"):
        sql(shop, "SHOW TABLES IN skep.nope")


def test_a_statement_sees_one_range_and_the_next_one_what_was_pushed_since(shop: Lake) -> None:
    text = "SELECT seq FROM skep.orders WHERE partition = 'b' UNION ALL SELECT seq FROM skep.orders WHERE seq > 18"
    before = shop.spark.sql(named(shop, text))
    shop.client.push("orders", [20], partition="b")

    rows, counts = sent(before)
    assert (len(rows), counts) == (12, [10, 2])
    assert len(sql(shop, text)) == 14


@pytest.mark.slow
def test_a_queue_is_read_as_it_was_and_with_options(shop: Lake) -> None:
    assert [len(sql(shop, f"SELECT seq FROM skep.orders VERSION AS OF {seq}")) for seq in (5, 20)] == [5, 20]
    assert sql(shop, "SELECT seq FROM skep.orders TIMESTAMP AS OF '2020-01-01'") == []
    newest = sql(shop, "SELECT max(created_at) AS at FROM skep.orders")[0]["at"]
    assert len(sql(shop, f"SELECT seq FROM skep.orders TIMESTAMP AS OF '{newest.astimezone(UTC).isoformat()}'")) == 20
    assert column(sql(shop, "SELECT max(seq) AS m FROM skep.orders WITH (endingOffsets = '{\"orders\": 7}')"), "m") == [
        7
    ]


def test_filters_and_columns_of_sql_are_pushed_down(shop: Lake) -> None:
    view = shop.spark.sql(named(shop, "SELECT payload FROM skep.orders WHERE partition = 'b' AND seq > 15"))

    rows, counts = sent(view)

    assert (len(rows), counts) == (5, [5])
    told = leaves(view)[0].simpleString(1_000)
    assert (
        "PushedFilters: [partition IN ('b'), seq >= 16], ReadSchema: struct<partition:string,seq:bigint,payload:string>"
        in told
    )


@pytest.mark.slow
def test_a_cached_table_is_read_anew_when_it_is_refreshed_or_written_to(shop: Lake) -> None:
    def count() -> int:
        return len(sql(shop, "SELECT seq FROM skep.orders WHERE partition = 'a'"))

    sql(shop, "CACHE TABLE skep.orders")
    shop.client.push("orders", 20, partition="a")
    assert count() == 10
    sql(shop, "REFRESH TABLE skep.orders")
    assert count() == 11
    sql(shop, "INSERT INTO skep.orders SELECT '21' AS payload, 'a' AS partition")
    assert count() == 12
    sql(shop, "UNCACHE TABLE skep.orders")
    shop.client.push("orders", 22, partition="a")
    assert count() == 13


@pytest.mark.slow
def test_the_options_of_a_catalog_are_those_of_its_reads(shop: Lake) -> None:
    spec = shop.folder / "shop.skep"
    spec.write_text(shop_spec(), encoding="utf-8")
    shop.client.push("Placed", [{"number": 1, "cents": 5}, {"number": 2, "cents": 7}, {"number": "no"}])
    name = shop.tenant.replace("-", "_")
    shop.spark.conf.set(f"spark.sql.catalog.{name}_typed", CATALOG_CLASS)
    for option, value in {**shop.connection, "spec": str(spec)}.items():
        shop.spark.conf.set(f"spark.sql.catalog.{name}_typed.{option}", value)

    assert [tuple(row) for row in sql(shop, "SELECT number, cents FROM skep_typed.Placed WHERE cents > 5")] == [(2, 7)]
    sql(shop, 'INSERT INTO skep_typed.Placed SELECT \'{"number":3,"cents":9}\' AS payload')
    assert column(sql(shop, "SELECT sum(cents) AS sum FROM skep_typed.Placed"), "sum") == [21]
    assert column(sql(shop, "SELECT last_seq FROM skep_typed.server.queues WHERE queue = 'Placed'"), "last_seq") == [4]


@pytest.mark.slow
def test_streams_read_and_write_tables_of_the_catalog(shop: Lake) -> None:
    stream = shop.spark.readStream.option("maxOffsetsPerTrigger", 8).table(named(shop, "skep.orders"))
    writer = stream.select("payload", "partition").writeStream.option("checkpointLocation", str(shop.folder / "copied"))
    for _ in range(2):
        writer.trigger(availableNow=True).toTable(named(shop, "skep.`a,b`")).awaitTermination()

    assert len(sql(shop, "SELECT seq FROM skep.`a,b` WHERE partition IN ('a', 'b')")) == 20


@pytest.mark.slow
def test_a_catalog_is_the_current_one_and_views_are_made_over_it(shop: Lake) -> None:
    sql(shop, named(shop, "USE skep.billing"))
    assert len(sql(shop, "SELECT * FROM `a,b`")) == 3
    sql(shop, "CREATE OR REPLACE TEMPORARY VIEW of_b AS SELECT seq, payload FROM skep.orders WHERE partition = 'b'")
    shop.client.push("orders", 20, partition="b")
    assert len(sql(shop, "SELECT * FROM of_b")) == 11
    shop.spark.createDataFrame([("1",)], "payload string").writeTo(named(shop, "skep.orders")).append()
    assert len(sql(shop, "SELECT * FROM skep.orders")) == 22


def test_a_server_that_is_away_and_a_wrong_token_are_told(lake: Lake) -> None:
    settings = {"": CATALOG_CLASS, ".url": "http://127.0.0.1:1", ".retrySeconds": "0"}
    for name, value in settings.items():
        lake.spark.conf.set(f"spark.sql.catalog.away{name}", value)

    with pytest.raises(PySparkException, match=r"UNREACHABLE.*Is the server running"):
        lake.spark.sql("SHOW TABLES IN away").collect()
    for name in settings:
        lake.spark.conf.unset(f"spark.sql.catalog.away{name}")


def test_the_clients_are_of_the_tenant_of_the_catalog(shop: Lake) -> None:
    with skep.Client(shop.url, tenant="another") as other:
        other.push("elsewhere", 1)

    assert "elsewhere" not in column(sql(shop, "SHOW TABLES IN skep"), "tableName")
