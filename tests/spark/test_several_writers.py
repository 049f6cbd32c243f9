"""Several processes write to one table of an object store: each message is there once, and what does not concern another does not hinder it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from skep.errors import SkepError
from skep.spark.lake import table
from skep.spark.lake.files import FilePlan
from skep.spark.lake.forgetting import forget_rows
from skep.spark.lake.opening import Format, lake_of
from skep.spark.lake.place import place_of
from skep.spark.lake.table import Lake, compact
from skep.spark.lake.tombstones import Seqs
from tests.spark.lake_rows import Rows, add, seqs

KINDS: tuple[Format, ...] = ("delta", "iceberg")
BATCHES = 12
WRITES = {
    "delta": ("deltalake", "DeltaTable", "create_write_transaction"),
    "iceberg": ("pyiceberg.table", "Transaction", "commit_transaction"),
}
"""Where a commit of each kind is written."""
both = pytest.mark.parametrize("kind", KINDS)


def overtake(monkeypatch: pytest.MonkeyPatch, kind: Format, others: Callable[[], Any], times: int = 1) -> None:
    """Let others commit after a process has looked at the table, and before its commit is written."""
    module, of, name = WRITES[kind]
    written = getattr(pytest.importorskip(module), of)
    write = getattr(written, name)
    left = [times]

    def overtaken(self: Any, *arguments: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            before, left[0] = left[0], 0
            others()
            left[0] = before
        return write(self, *arguments, **named)

    monkeypatch.setattr(written, name, overtaken)


@both
def test_messages_are_forgotten_while_others_are_archived_at_the_same_moment(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format
) -> None:
    root = place_of(str(tmp_path))
    archive = lake_of(root, "default", kind)
    add(spark, archive, Rows("orders", 1, 3))
    forgetting = lake_of(root, "default", kind)
    later = iter((4, 5, 6))
    overtake(monkeypatch, kind, lambda: add(spark, archive, Rows("orders", at := next(later), at)), 3)
    assert forget_rows(spark, forgetting, {"orders": [Seqs(1, 2, 2)]}) == 1
    assert seqs(spark, lake_of(root, "default", kind)) == [1, 3, 4, 5, 6]
    overtake(monkeypatch, kind, lambda: forget_rows(spark, forgetting, {"orders": [Seqs(1, 3, 3)]}))
    add(spark, archive, Rows("orders", 7, 7))  # who archives is not hindered either
    assert seqs(spark, lake_of(root, "default", kind)) == [1, 4, 5, 6, 7]


@pytest.mark.slow
@both
def test_an_archive_that_never_rests_and_one_who_forgets_both_come_to_their_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    root = place_of(str(tmp_path))
    archive = lake_of(root, "default", kind)
    add(spark, archive, Rows("orders", 1, 10))
    failed: list[Exception] = []

    def archived() -> None:
        try:
            for batch in range(1, BATCHES):
                add(spark, archive, Rows("orders", 10 * batch + 1, 10 * batch + 10))
                compact(spark, archive)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=archived)
    thread.start()
    rounds = 0
    gone: set[int] = set()
    while thread.is_alive() or not rounds:
        seq = 3 + rounds % 10
        gone.add(seq)
        forget_rows(spark, lake_of(root, "default", kind), {"orders": [Seqs(1, one, one) for one in sorted(gone)]})
        rounds += 1
    thread.join()
    assert not failed
    forget_rows(spark, lake_of(root, "default", kind), {"orders": [Seqs(1, one, one) for one in sorted(gone)]})
    assert seqs(spark, lake_of(root, "default", kind)) == sorted(set(range(1, 10 * BATCHES + 1)) - gone)


@both
def test_who_archives_queues_of_which_another_has_archived_one_is_refused(
    spark: SparkSession, tmp_path: Path, kind: Format
) -> None:
    root = place_of(str(tmp_path))
    first = lake_of(root, "default", kind)
    add(spark, first, Rows("orders", 1, 1), Rows("others", 1, 1))
    second = lake_of(root, "default", kind)
    add(spark, second, Rows("others", 2, 2))
    add(spark, first, Rows("orders", 2, 2))  # of another queue
    with pytest.raises(SkepError, match="another run is writing"):
        add(spark, first, Rows("others", 2, 2))
    first.refresh()
    assert first.through("others") == 2
    add(spark, first, Rows("others", 3, 3))
    third = lake_of(root, "default", kind)
    assert (seqs(spark, third), seqs(spark, third, "others")) == ([1, 2], [1, 2, 3])


@pytest.mark.slow
@both
def test_files_that_another_has_replaced_are_left_to_a_later_compaction_and_forgotten_in_their_new_ones(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    root = place_of(str(tmp_path))

    def late(others: Callable[[], Any]) -> Lake:
        """A process that is overtaken between its look and its commit."""
        lake = lake_of(root, "default", kind)
        plan = lake.plan
        done: list[Any] = []

        def overtaken() -> FilePlan:
            if not done:
                done.append(others())
            return plan()

        monkeypatch.setattr(lake, "plan", overtaken)
        return lake

    first = lake_of(root, "default", kind)
    for seq in (1, 2, 3):
        add(spark, first, Rows("orders", seq, seq))
    assert compact(spark, late(lambda: forget_rows(spark, first, {"orders": [Seqs(1, 2, 2)]}))) == 0
    assert seqs(spark, lake_of(root, "default", kind)) == [1, 3]
    assert forget_rows(spark, late(lambda: compact(spark, first)), {"orders": [Seqs(1, 3, 3)]}) == 1
    assert seqs(spark, lake_of(root, "default", kind)) == [1]


@both
def test_a_commit_that_is_overtaken_again_and_again_is_refused_in_the_end(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format
) -> None:
    import importlib

    module = importlib.import_module(f"skep.spark.lake.{kind}")
    monkeypatch.setattr(module, "COMMIT_TRIES", 2)
    root = place_of(str(tmp_path))
    first = lake_of(root, "default", kind)
    add(spark, first, Rows("orders", 1, 2), Rows("others", 1, 1))
    late = lake_of(root, "default", kind)
    numbers = iter(range(2, 10))
    overtake(monkeypatch, kind, lambda: add(spark, first, Rows("others", at := next(numbers), at)), 2)
    with pytest.raises(SkepError, match="another run is writing"):
        add(spark, late, Rows("orders", 3, 3))
    third = lake_of(root, "default", kind)
    assert (seqs(spark, third), seqs(spark, third, "others")) == ([1, 2], [1, 2, 3])


def test_a_commit_and_a_vacuum_may_let_the_same_snapshots_expire(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg = pytest.importorskip("skep.spark.lake.iceberg")
    monkeypatch.setattr(iceberg, "SNAPSHOTS_KEPT", 2)
    root = place_of(str(tmp_path))
    archive: Any = lake_of(root, "default", "iceberg")

    def expired() -> None:
        """What a vacuum does first."""
        found = lake_of(root, "default", "iceberg")._catalog.load_table(archive._name)  # type: ignore[attr-defined]
        found.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
        found.catalog.close()

    for seq in (1, 2, 3, 4):
        add(spark, archive, Rows("orders", seq, seq))
    overtake(monkeypatch, "iceberg", expired)
    add(spark, archive, Rows("orders", 5, 5))
    assert seqs(spark, lake_of(root, "default", "iceberg")) == [1, 2, 3, 4, 5]
    for seq in (6, 7):
        add(spark, archive, Rows("orders", seq, seq))
    overtake(monkeypatch, "iceberg", lambda: add(spark, archive, Rows("orders", 8, 8)))
    assert lake_of(root, "default", "iceberg").vacuum(0) > 0
    assert seqs(spark, lake_of(root, "default", "iceberg")) == [1, 2, 3, 4, 5, 6, 7, 8]
