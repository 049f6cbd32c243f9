"""Thousands of queues: few tasks, and a comparison whose plan does not grow with them."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skep
from skep.spark.lake.place import place_of
from skep.spark.offsets import ROWS_OF_A_TASK, QueueStretch, packed, split
from skep.spark.options import source_options
from skep.spark.pipelines.archive import archive, compared
from skep.spark.running.archiving import RANGES
from skep.spark.running.context import MOST_ROWS_SHOWN
from skep.spark.running.inputs import named_by
from skep.spark.running.runner import write_down
from skep.spark.running.said import told, write_whole_error
from skep.spark.running.stretches import Stretch, merged
from skep.spark.schema import schema_of
from skep.spark.source import MessageReader
from skep.spark.tables import TABLES, TASKS_PER_CORE, TableReader
from tests.spark.conftest import Lake
from tests.spark.frames import message, messages_of
from tests.spark.test_running import ran
from tests.unit.spark.test_pipeline_runs import example

FEW = 60
QUEUES = 1_000
MANY = 950


def names(count: int) -> list[str]:
    return [f"queue-{number:04d}" for number in range(count)]


def push_to_each(client: skep.Client, count: int) -> None:
    """One message to each of so many queues, many in a call."""
    queues = names(count)
    for first in range(0, count, 100):
        with client.transaction() as tx:
            for queue in queues[first : first + 100]:
                tx.push(queue, {"queue": queue})


def test_small_queues_share_tasks_and_every_row_is_read_once(lake: Lake) -> None:
    push_to_each(lake.client, FEW)
    options = source_options({**lake.connection, "subscribePattern": "queue-.*"})
    reader = MessageReader(options, schema_of(("queue", "seq")))

    portions = reader.partitions()

    assert len(portions) <= 6
    rows = [row for portion in portions for batch in reader.read(portion) for row in batch.to_pylist()]
    assert rows == [{"queue": queue, "seq": 1} for queue in names(FEW)]
    leases = TableReader("leases", options, TABLES["leases"]).partitions()
    assert sorted(queue for task in leases for queue in task.value) == names(FEW)
    assert len(leases) <= TASKS_PER_CORE * (os.cpu_count() or 1)


def test_large_queues_are_divided_as_before_and_small_ones_beside_them_are_together() -> None:
    small = [QueueStretch(name, 1, 3) for name in names(500)]
    large = QueueStretch("large", 1, 5 * ROWS_OF_A_TASK)

    tasks = packed(split([large, *small], None, cores=4), None, cores=4)

    assert sum(task[0].queue == "large" for task in tasks) >= 5
    assert len(tasks) <= 8
    assert [part.queue for task in tasks for part in task if part.queue != "large"] == names(500)
    assert [len(task) for task in packed(split([large], 7), 7)] == [1] * 7


def test_the_comparison_of_a_thousand_queues_is_no_larger_a_plan_than_that_of_one(spark: SparkSession) -> None:
    rows = messages_of(spark, *(message(queue, 1, 0) for queue in names(QUEUES)))
    missing, doubled = "queue-0007", "queue-0500"
    kept = rows.where(rows["queue"] != missing)
    kept = archive(kept.unionByName(rows.where(rows["queue"] == doubled)))
    of_another_log = archive(messages_of(spark, message("queue-0001", 1, 0)), {"queue-0001": 2})

    ranges = spark.createDataFrame([(queue, 1, 0, 1) for queue in names(QUEUES)], RANGES)
    found = compared(rows, kept.unionByName(of_another_log), ranges)

    wrong = {row["queue"]: (row["missing"], row["doubled"]) for row in found.collect() if row["log"] != row["lake"]}
    assert wrong == {missing: (1, 0), doubled: (0, 1)}


def test_of_thousands_of_leases_a_few_stretches_of_each_queue_come_to_the_driver(spark: SparkSession) -> None:
    # Gaps that grow, in one queue; none in the other.
    firsts = [2_000 * number * number + 1 for number in range(1, 40)]
    apart = [Stretch(first, first + 9) for first in firsts]
    close = [Stretch(first, first + 99) for first in range(1, 3_000, 100)]
    leases = spark.createDataFrame(
        [("apart", *one) for one in apart] + [("close", *one) for one in close],
        "queue string, first_seq bigint, last_seq bigint",
    )

    found = named_by(leases, 8).collect()

    stretches = {
        queue: [Stretch(row["first"], row["last"]) for row in found if row["queue"] == queue]
        for queue in ("apart", "close")
    }
    assert sorted(stretches["apart"]) == merged(apart, Stretch(1, firsts[-1] + 9), 8)
    assert stretches["close"] == [Stretch(1, 3_000)]


JAVA = """An error occurred while calling o165.filter.
: java.lang.StackOverflowError: too deep
\tat org.apache.spark.sql.catalyst.trees.TreeNode.foreach(TreeNode.scala:1)
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.write(Native Method)
"""


def test_the_report_and_the_log_have_the_real_error_and_its_cause(tmp_path: Path) -> None:
    run = example()
    try:
        raise RuntimeError(JAVA)
    except RuntimeError as error:
        run.error = told(error)
        write_whole_error(error, tmp_path / "spark.log")
    write_down(run, place_of(str(tmp_path)))

    said = "java.lang.StackOverflowError: too deep (caused by java.io.IOException: No space left on device)"
    assert run.error == said
    assert said in (tmp_path / "report.html").read_text(encoding="utf-8")
    written = (tmp_path / "spark.log").read_text(encoding="utf-8")
    assert "o165.filter" in written
    assert "FileOutputStream.write" in written
    assert re.search(r"test_many_queues.py.*in test_the_report", written)


PYTHON = """
  An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "tables.py", line 12, in <module>
    from skep.spark import offset_ranges
ImportError: cannot import name 'offset_ranges'
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1097)
"""


def test_of_an_error_in_a_python_of_sparks_the_error_is_told_and_not_that_there_was_one() -> None:
    assert told(RuntimeError(PYTHON)) == "ImportError: cannot import name 'offset_ranges'"


@pytest.mark.slow
def test_hundreds_of_queues_are_archived_and_audited(lake: Lake) -> None:
    push_to_each(lake.client, MANY)
    run = ran(lake, "archive").run
    assert (run.error, run.status, run.stages[0].rows_out) == (None, "ok", MANY)
    assert [check.figures for check in run.checks] == [f"{MANY} messages of {MANY} queues were compared"]
    lake.client.push("queue-0001", {"n": 2})
    fresh = ran(lake, "archive").run
    assert [check.figures for check in fresh.checks] == ["1 messages of 1 queues were compared"]
    audited = ran(lake, "archive", audit=True).run
    assert (audited.status, audited.stages[0].rows_out) == ("ok", 0)
    assert [check.figures for check in audited.checks] == [f"{MANY + 1} messages of {MANY} queues were compared"]


@pytest.mark.slow
def test_of_many_queues_those_with_most_messages_are_shown_and_only_these_come_to_the_driver(lake: Lake) -> None:
    push_to_each(lake.client, FEW)
    lake.client.push("queue-0059", [1, 2])
    run = ran(lake, "metrics").run
    [shown] = [one for one in run.tables if one.title == "Queues and groups"]
    assert (run.error, len(shown.rows)) == (None, MOST_ROWS_SHOWN)
    assert [row[0] for row in shown.rows] == [*names(FEW)[: MOST_ROWS_SHOWN - 1], "queue-0059"]
    assert shown.rows[-1][2] == 3
    assert "with most messages" in shown.note
