"""A lake in an object store: a real S3 interface on this machine, whose requests are lost, refused, delayed and doubled."""

from __future__ import annotations

import json
from typing import Any

import pytest

import skep
from skep.errors import SkepError
from skep.spark.lake.opening import Format, lake_of, open_lake
from skep.spark.lake.place import Place
from skep.spark.lake.reading import frame_of
from skep.spark.options import ServerConnection
from skep.spark.running.context import Wishes
from skep.spark.running.runner import Ended, RunPlan, run_pipelines
from tests.spark.conftest import Lake
from tests.spark.lake_rows import Rows, add, seqs
from tests.spark.test_running import BAD, ORDERS, SHOP, trade
from tests.support.s3 import BUCKET, CATALOG, Store

pytestmark = pytest.mark.slow

KINDS: tuple[Format, ...] = ("delta", "iceberg")
SHARE = 0.1
"""How large a share of all requests goes wrong."""


@pytest.fixture(autouse=True)
def no_faults(object_store: Store) -> None:
    object_store.set_faults(0)


def catalog_of(kind: Format, root: Place) -> str | None:
    return f"{CATALOG}.{root.name.replace('-', '_')}" if kind == "iceberg" else None


def place(lake: Lake, kind: Format) -> Place:
    return Place(f"s3://{BUCKET}/{lake.tenant}-{kind}")


def ran(lake: Lake, root: Place, kind: Format, *names: str, **wishes: Any) -> Ended:
    plan = RunPlan(
        names=names, connection=ServerConnection((lake.url,), lake.tenant, None, 20.0), lake=root.uri, format=kind,
        catalog=catalog_of(kind, root), master="local[2]", wishes=Wishes(**wishes),
    )  # fmt: skip
    return run_pipelines(plan, spark=lake.spark)


@pytest.mark.parametrize("kind", KINDS)
def test_pipelines_run_on_an_object_store_that_fails_and_leave_all_of_it_there(
    lake: Lake, kind: Format, object_store: Store
) -> None:
    root = place(lake, kind)
    trade(lake)
    lake.client.push("Placed", [{"number": 1, "cents": 5}, {"number": 2, "cents": -5}])
    object_store.set_faults(SHARE)

    ended = ran(lake, root, kind, "archive", "metrics", "journeys", "dead-letters", "quality", app=SHOP)
    lake.client.push("orders", {"number": 0, "amount": "1.00"})
    again = ran(lake, root, kind, "archive", "metrics", "journeys", audit=True)
    replayed = ran(lake, root, kind, "replay", to="again", where="queue == 'orders' && message.number <= 3")

    went_wrong = object_store.faults()
    object_store.set_faults(0)
    assert went_wrong > 10
    assert [one.run.error for one in (ended, again, replayed)] == [None] * 3
    assert not again.run.failed_checks()
    assert again.run.stages[0].rows_out == 1
    opened = lake_of(root, lake.tenant, kind, catalog_of(kind, root))
    assert seqs(lake.spark, opened, "orders") == list(range(1, ORDERS + 2))
    assert sorted(json.loads(bytes(one.payload))["number"] for one in lake.client.messages("again")) == [0, 1, 2, 3]
    assert {"messages", "metrics", "journeys", "dead_letters", "quarantine", "runs"} <= set(root.folders())
    assert json.loads((ended.folder / "run.json").read_bytes())["id"] == ended.run.id
    assert ended.report.read_text().startswith("<!")
    [letters] = [one for one in ended.run.tables if one.title == "Dead letters"]
    assert letters.rows[0][2] == BAD


@pytest.mark.parametrize("kind", KINDS)
def test_two_who_write_to_one_lake_do_not_both_commit(lake: Lake, kind: Format) -> None:
    root = place(lake, kind)
    first = lake_of(root, lake.tenant, kind, catalog_of(kind, root))
    add(lake.spark, first, Rows("orders", 1, 3))
    second = lake_of(root, lake.tenant, kind, catalog_of(kind, root))
    assert first.through("orders") == second.through("orders") == 3
    add(lake.spark, first, Rows("orders", 4, 5))
    with pytest.raises(SkepError, match="another run is writing"):
        add(lake.spark, second, Rows("orders", 4, 5))
    again = lake_of(root, lake.tenant, kind, catalog_of(kind, root))
    assert (again.through("orders"), seqs(lake.spark, again)) == (5, [1, 2, 3, 4, 5])


def test_a_store_that_refuses_is_told_with_the_cure(lake: Lake) -> None:
    with pytest.raises(SkepError, match="Look at the name of the bucket"), open_lake("s3://nobody/lake", lake.tenant):
        pass
    with pytest.raises(SkepError, match="needs a catalog"), open_lake(f"s3://{BUCKET}/x", lake.tenant, "iceberg"):
        pass
    with pytest.raises(SkepError, match="knows no catalog 'unheard'"):
        lake_of(Place(f"s3://{BUCKET}/y"), lake.tenant, "iceberg", "unheard")


def test_all_columns_of_messages_come_back_from_an_object_store(lake: Lake) -> None:
    root = place(lake, "delta")
    image = skep.NewMessage(b"\xff\x00", content_type="image/png")
    lake.client.push(
        "orders", [skep.NewMessage({"ü": 1}, partition="p", transaction_id="t", headers={"a": "b"}), image]
    )
    assert ran(lake, root, "delta", "archive").run.error is None

    rows = frame_of(lake.spark, lake_of(root, lake.tenant, "delta").files()).orderBy("seq")
    whole = rows.withColumn("payload", rows["payload"].cast("binary")).collect()

    assert [bytes(row["payload"]) for row in whole] == ['{"ü":1}'.encode(), b"\xff\x00"]
    assert (whole[0]["partition"], whole[0]["transaction_id"], whole[0]["headers"]["a"]) == ("p", "t", "b")
    assert [row["queue"] for row in whole] == ["orders"] * 2
    logged = lake.read("orders").orderBy("seq").select("message_id", "created_at", "trace_id").collect()
    assert [(row["message_id"], row["created_at"], row["trace_id"]) for row in whole] == [tuple(row) for row in logged]
