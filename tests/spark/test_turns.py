"""Computed tables in an object store are written by one run at a time: of two, one is refused, and leaves no rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from skep.errors import SkepError
from skep.spark.lake.frames import write_frame
from skep.spark.lake.place import Place
from skep.spark.lake.turns import WriteTurns
from skep.spark.running import keeping
from skep.spark.running.keeping import KeptTable, TableReach
from tests.support.s3 import BUCKET, Store

pytestmark = pytest.mark.slow
ROWS = "hour string, number int"


class KilledError(Exception):
    """Stands for kill -9: nothing after it happens."""


@pytest.fixture
def root(object_store: Store, request: pytest.FixtureRequest) -> Place:
    object_store.set_faults(0)
    return Place(f"s3://{BUCKET}/turns-{abs(hash(request.node.nodeid))}")


def opened(spark: SparkSession, root: Place) -> KeptTable:
    return KeptTable(spark, root, "metrics", "hour")


def frame(spark: SparkSession, *numbers: int) -> DataFrame:
    return spark.createDataFrame([("h", number) for number in numbers], ROWS)


def replaced(table: KeptTable, spark: SparkSession, number: int) -> None:
    table.replace(frame(spark, number), ["h"], TableReach(made_with="", through={"q": number}))


def found(spark: SparkSession, root: Place) -> tuple[list[int], int]:
    """The rows that our own reads see, and the number of files."""
    table = opened(spark, root)
    rows = table.rows(frame(spark)).collect()
    return sorted(row["number"] for row in rows), len(table.place.below_it(".parquet"))


def overtake(monkeypatch: pytest.MonkeyPatch, others: Callable[[], Any]) -> None:
    """Do something else after the next pass has written its files, and before it commits."""
    write = write_frame

    def overtaken(*arguments: Any) -> Any:
        made = write(*arguments)
        monkeypatch.setattr(keeping, "write_frame", write)
        others()
        return made

    monkeypatch.setattr(keeping, "write_frame", overtaken)


def killed() -> None:
    raise KilledError


def test_the_second_of_two_runs_is_refused_before_it_writes(spark: SparkSession, root: Place) -> None:
    first, second = opened(spark, root), opened(spark, root)
    replaced(first, spark, 1)
    with pytest.raises(SkepError, match=r"another run is writing to s3://lake/turns-\d+/metrics; wait for it"):
        replaced(second, spark, 2)
    assert found(spark, root) == ([1], 1)
    again = opened(spark, root)
    reach = again.reach()
    assert reach is not None
    assert reach.through == {"q": 1}
    replaced(again, spark, 3)
    replaced(again, spark, 4)
    assert found(spark, root) == ([4], 1)
    notes = [one.place.name for one in again.place.below_it(".json")]
    assert len(notes) == 1


def test_a_run_that_is_overtaken_while_it_writes_is_refused_and_leaves_nothing(
    spark: SparkSession, root: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(opened(spark, root), spark, 1)
    slow = opened(spark, root)
    overtake(monkeypatch, lambda: replaced(opened(spark, root), spark, 2))
    with pytest.raises(SkepError, match="another run is writing"):
        replaced(slow, spark, 3)
    assert found(spark, root) == ([2], 1)


def test_what_a_killed_pass_wrote_is_not_read_and_the_next_one_deletes_it(
    spark: SparkSession, root: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(opened(spark, root), spark, 1)
    overtake(monkeypatch, killed)
    with pytest.raises(KilledError):
        replaced(opened(spark, root), spark, 2)
    assert found(spark, root) == ([1], 2)
    replaced(opened(spark, root), spark, 3)
    assert found(spark, root) == ([3], 1)


def test_a_pass_that_is_killed_after_its_commit_is_finished(
    spark: SparkSession, root: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(opened(spark, root), spark, 1)
    table = opened(spark, root)
    monkeypatch.setattr(table, "_recover", killed)
    with pytest.raises(KilledError):
        replaced(table, spark, 2)
    assert found(spark, root) == ([2], 1)


@pytest.mark.parametrize("kind", ["lost", "doubled"])
def test_a_turn_whose_answer_is_lost_counts_once(root: Place, object_store: Store, kind: str) -> None:
    turns = WriteTurns(root / "turns", root)
    for number in range(10):
        object_store.set_faults(0.3, [kind], seed=number)
        turns.take(str(number), "")
    object_store.set_faults(0)
    assert WriteTurns(root / "turns", root).last.began == "9"
