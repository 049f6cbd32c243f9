"""A lake of Iceberg in catalogs of each kind: its own, and named ones (SQL, REST, Glue), as pyiceberg is configured."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skep.errors import SkepError
from skep.spark.lake import table
from skep.spark.lake.forgetting import forget_rows
from skep.spark.lake.opening import lake_of, open_lake, view_of
from skep.spark.lake.place import Place, place_of
from skep.spark.lake.table import compact
from skep.spark.lake.tombstones import Seqs
from tests.spark.lake_rows import Rows, add, seqs
from tests.support.s3 import BUCKET, CATALOG, REST, Store

pytestmark = pytest.mark.slow
pytest.importorskip("pyiceberg")

KINDS = ("own", "sql", "rest", "glue")
TIMES = "2026-01-31"


class Where:
    """A lake, and the catalog that it is in."""

    def __init__(self, root: Place, catalog: str | None) -> None:
        self.root, self.catalog = root, catalog

    def open(self) -> Any:
        return lake_of(self.root, "default", "iceberg", self.catalog)


@pytest.fixture(params=KINDS)
def where(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, object_store: Store
) -> Iterator[Where]:
    namespace = f"n{abs(hash(str(tmp_path)))}"
    match request.param:
        case "own":
            yield Where(place_of(str(tmp_path)), None)
        case "sql":
            named_sql(monkeypatch, tmp_path)
            yield Where(place_of(str(tmp_path / "lake")), f"shared.{namespace}")
        case "rest":
            catalog = request.getfixturevalue("rest_catalog")
            catalog.set_faults(0)
            yield Where(Place(f"s3://{BUCKET}/{namespace}"), f"{REST}.{namespace}")
        case "glue":
            object_store.set_faults(0)
            yield Where(Place(f"s3://{BUCKET}/{namespace}"), f"{CATALOG}.{namespace}")


def named_sql(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Name an SQL catalog. pyiceberg has read the environment already, so its configuration is told."""
    from pyiceberg import catalog
    from pyiceberg.utils.config import Config

    monkeypatch.setenv("PYICEBERG_CATALOG__SHARED__URI", f"sqlite:///{folder / 'shared.db'}")
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())


def test_messages_are_added_compacted_forgotten_and_vacuumed(
    spark: SparkSession, where: Where, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    with open_lake(where.root, "default", "iceberg", where.catalog) as lake:
        for seq in (1, 2, 3):
            add(spark, lake, Rows("orders", seq, seq), Rows("others", seq, seq))
        assert compact(spark, lake) == 4
        assert forget_rows(spark, lake, {"orders": [Seqs(1, 2, 2)], "others": [Seqs(1, 1, 3)]}) == 4
    with open_lake(where.root, "default") as lake:  # format and catalog are known from now on
        assert (lake.through("orders"), seqs(spark, lake), seqs(spark, lake, "others")) == (3, [1, 3], [])
        add(spark, lake, Rows("orders", 4, 4))
        assert lake.vacuum(0) > 0
        assert seqs(spark, lake) == [1, 3, 4]
        kept = {file.uri for file in lake.files()}
    assert {one.place.uri for one in (where.root / "messages" / "data").below_it(".parquet")} == kept
    view = view_of(where.root, "default")
    assert view.archived("orders") is None  # rows of tests are of no log
    assert {file.uri for file in view.files()} == kept


def test_of_two_writers_of_the_same_queue_one_is_refused(spark: SparkSession, where: Where) -> None:
    first, second = where.open(), where.open()  # both find no table, and both make it
    add(spark, first, Rows("orders", 1, 2), Rows("others", 1, 1))
    with pytest.raises(SkepError, match="another run is writing"):
        add(spark, second, Rows("orders", 1, 2))
    add(spark, first, Rows("orders", 3, 3))
    late = where.open()
    add(spark, first, Rows("orders", 4, 4))
    for _ in range(2):  # a refusal does not make it a newer one
        with pytest.raises(SkepError, match="another run is writing"):
            add(spark, late, Rows("orders", 4, 4))
    assert forget_rows(spark, late, {"others": [Seqs(1, 1, 1)]}) == 1  # what the other did not touch
    there = where.open()
    assert seqs(spark, there) == list(range(1, there.through("orders") + 1))
    assert seqs(spark, there, "others") == []


def test_a_run_that_is_killed_between_making_the_table_and_its_first_commit_is_followed_by_another(
    spark: SparkSession, where: Where
) -> None:
    where.open()._made()
    lake = where.open()
    assert lake.through("orders") is None
    add(spark, lake, Rows("orders", 1, 2))
    assert seqs(spark, where.open()) == [1, 2]
    loaded = lake._catalog.load_table(lake._name)
    lake._catalog.close()
    assert loaded.scan(selected_fields=("seq",)).to_arrow().column("seq").to_pylist() == [
        1,
        2,
    ]  # as other readers read it


@pytest.mark.parametrize("kind", ["lost", "doubled"])
def test_a_commit_whose_answer_is_lost_or_that_comes_twice_counts_once(
    spark: SparkSession, rest_catalog: Store, tmp_path: Path, kind: str
) -> None:
    where = Where(place_of(str(tmp_path)), f"{REST}.{kind}{abs(hash(str(tmp_path)))}")
    rest_catalog.set_faults(0)
    lake = where.open()
    add(spark, lake, Rows("orders", 1, 2))
    failed = 0
    for seq in range(3, 15):
        rest_catalog.set_faults(0.4, [kind], seed=seq)
        try:
            lake = where.open()
            if (lake.through("orders") or 0) < seq:
                add(spark, lake, *(Rows("orders", one, one) for one in range(lake.through("orders") + 1, seq + 1)))
        except Exception:
            failed += 1  # the next one does what is left
    rest_catalog.set_faults(0)
    lake = where.open()
    assert seqs(spark, lake) == list(range(1, lake.through("orders") + 1))
    assert lake.through("orders") >= 3
    assert failed < 12


def test_a_lake_stays_in_its_catalog(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named_sql(monkeypatch, tmp_path)
    mine, other = tmp_path / "mine", tmp_path / "other"
    with open_lake(str(mine), "default", "iceberg", "shared.sales") as lake:
        add(spark, lake, Rows("orders", 1, 1))
    with (
        pytest.raises(SkepError, match=r"is in the catalog shared\.sales"),
        open_lake(str(mine), "default", None, "shared.others"),
    ):
        pass
    with (
        pytest.raises(SkepError, match=r"belongs to the lake .*mine, not to .*other"),
        open_lake(str(other), "default", None, "shared.sales"),
    ):
        pass
    with open_lake(str(other), "default", "iceberg") as lake:
        add(spark, lake, Rows("orders", 1, 1))
    with (
        pytest.raises(SkepError, match="has a catalog of its own"),
        open_lake(str(other), "default", None, "shared.news"),
    ):
        pass
    with open_lake(str(mine), "default") as lake:
        assert seqs(spark, lake) == [1]
    (mine / "_skep" / "catalog.json").write_text("{", encoding="utf-8")
    with pytest.raises(SkepError, match=r"catalog\.json is damaged"):
        view_of(place_of(str(mine)), "default")


def test_catalogs_keep_nothing_open(spark: SparkSession, tmp_path: Path) -> None:
    def opened() -> list[str]:
        found = [str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists()]
        return [one for one in found if one.endswith("catalog.db")]

    with open_lake(str(tmp_path), "default", "iceberg") as lake:
        add(spark, lake, Rows("orders", 1, 1))
        assert opened() == []
        lake.vacuum(0)
        assert opened() == []
    view = view_of(place_of(str(tmp_path)), "default")
    assert view.files()
    assert opened() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        del lake, view
        gc.collect()


def test_partitions_may_change_as_long_as_a_file_is_in_one_of_them(spark: SparkSession, tmp_path: Path) -> None:
    from pyiceberg.transforms import HourTransform, MonthTransform

    with open_lake(str(tmp_path), "default", "iceberg") as lake:
        add(spark, lake, Rows("orders", 1, 2))
        changed = lake._catalog.load_table(lake._name)  # type: ignore[attr-defined]
        with changed.update_spec() as spec:
            spec.remove_field("date")
            spec.add_field("created_at", MonthTransform(), "month")
    with open_lake(str(tmp_path), "default") as lake:
        add(spark, lake, Rows("orders", 3, 4))
        assert forget_rows(spark, lake, {"orders": [Seqs(1, 1, 1)]}) == 1  # of a file of the old partitions
        assert (seqs(spark, lake), {file.date for file in lake.files()}) == ([2, 3, 4], {TIMES})
        changed = lake._catalog.load_table(lake._name)  # type: ignore[attr-defined]
        with changed.update_spec() as spec:
            spec.add_field("created_at", HourTransform(), "hour")
        changed.catalog.close()
    with open_lake(str(tmp_path), "default") as lake:
        with pytest.raises(SkepError, match=r"partitions by hour\(created_at\)"):
            add(spark, lake, Rows("orders", 5, 5))
        assert seqs(spark, lake) == [2, 3, 4]


def test_many_batches_leave_few_manifests(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.spark.lake.iceberg import PROPERTIES  # pyiceberg reads the environment when it is imported

    monkeypatch.setitem(PROPERTIES, "commit.manifest.min-count-to-merge", "4")
    with open_lake(str(tmp_path), "default", "iceberg") as lake:
        for seq in range(1, 10):
            add(spark, lake, Rows("orders", seq, seq))
        found = lake._catalog.load_table(lake._name)  # type: ignore[attr-defined]
        found.catalog.close()
        snapshot = found.current_snapshot()
        assert snapshot is not None
        assert len(snapshot.manifests(found.io)) <= 4
        assert seqs(spark, lake) == list(range(1, 10))


def test_columns_of_ours_come_and_those_of_others_stay(spark: SparkSession, tmp_path: Path) -> None:
    from pyiceberg.types import StringType

    with open_lake(str(tmp_path), "default", "iceberg") as lake:
        add(spark, lake, Rows("orders", 1, 2))
        changed = lake._catalog.load_table(lake._name)  # type: ignore[attr-defined]
        with changed.update_schema() as schema:
            schema.delete_column("data_key")  # as in a table of an earlier version
            schema.add_column("region", StringType())
        changed.catalog.close()
    with open_lake(str(tmp_path), "default") as lake:
        add(spark, lake, Rows("orders", 3, 3))
        assert seqs(spark, lake) == [1, 2, 3]
        found = lake._catalog.load_table(lake._name)  # type: ignore[attr-defined]
        rows = found.scan().to_arrow()
        found.catalog.close()
    assert {"data_key", "region"} <= set(rows.column_names)
    assert rows.column("region").null_count == 3


def test_old_snapshots_expire_by_themselves(spark: SparkSession, where: Where, monkeypatch: pytest.MonkeyPatch) -> None:
    from skep.spark.lake import iceberg  # pyiceberg reads the environment when it is imported

    def kept() -> int:
        found = lake._catalog.load_table(lake._name)
        found.catalog.close()
        return len(found.snapshots())

    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", 2)
    lake = where.open()
    counts = []
    for seq in range(1, 8):
        add(spark, lake, Rows("orders", seq, seq))
        counts.append(kept())
    assert counts == [1, 2, 3, 4, 3, 4, 3]
    assert (seqs(spark, where.open()), where.open().through("orders")) == (list(range(1, 8)), 7)
    named = lake._catalog.load_table(lake._name)
    with named.transaction() as change:
        change.set_properties({iceberg.SNAPSHOTS: "3"})
    first = named.refresh().snapshots()[0].snapshot_id
    named.manage_snapshots().create_tag(first, "audit").commit()
    named.catalog.close()
    for seq in range(8, 13):
        add(spark, lake, Rows("orders", seq, seq))
        counts.append(kept())
    assert counts[7:] == [4, 5, 6, 5, 6]  # the tagged one stays
    assert lake.vacuum(0) > 0
    assert seqs(spark, where.open()) == list(range(1, 13))
