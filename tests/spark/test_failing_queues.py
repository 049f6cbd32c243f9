"""A queue that fails fails alone: the others are archived, the exit code is 1, and a table says what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import skep
from skep.cli.app import run as command
from skep.spark.options import ServerConnection
from skep.spark.running.context import Wishes
from skep.spark.running.record import Stage
from skep.spark.running.runner import RunPlan, run_pipelines
from tests.spark.conftest import Lake
from tests.spark.test_running import ran


def lose_some(lake: Lake, queue: str) -> None:
    """Messages go before they are archived."""
    lake.client.push(queue, {"n": 2})
    lake.client.clear(queue, "all")
    lake.client.push(queue, {"n": 3})


def test_the_others_go_on_and_a_table_says_what_failed(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    for queue in ("bad", "good"):
        lake.client.push(queue, {"n": 1})
    ran(lake, "archive", verify=False)
    lose_some(lake, "bad")
    lake.client.push("good", {"n": 2})

    to = ["--url", lake.url, "--tenant", lake.tenant, "--lake", str(lake.folder / "lake"), "-o", "table"]
    assert command(["pipeline", "run", "archive", *to]) == 1

    printed = capsys.readouterr().out
    assert "Queues that failed" in printed
    assert "FAILED every queue was archived: 1 failed: bad" in printed
    newest = max((lake.folder / "lake" / "runs").iterdir(), key=lambda folder: folder.name)
    written = json.loads((newest / "run.json").read_text(encoding="utf-8"))
    [table] = [table for table in written["tables"] if table["title"] == "Queues that failed"]
    [[queue, code, error]] = table["rows"]
    assert (queue, code) == ("bad", "INVALID_REQUEST")
    assert "1 messages of bad (seqs 2 to 2) were deleted by retention" in error
    assert (written["status"], written["error"], written["stages"][0]["rows_out"]) == ("failed", None, 1)
    assert "were deleted by retention" in (newest / "report.html").read_text(encoding="utf-8")
    assert ran(lake, "archive", queues=("bad",), allow_loss=True, verify=False).run.stages[0].rows_out == 1


class DeletingAfterTheFirstBatch:
    """Deletes a queue when a batch is archived, before the next one that has it."""

    def __init__(self, client: skep.Client, queue: str) -> None:
        self._client = client
        self._queue = queue

    def stage(self, stage: Stage) -> None:
        if stage.batches == 1 and self._queue in {queue.name for queue in self._client.queues(stats=False)}:
            self._client.delete_queue(self._queue)


def test_a_queue_that_is_deleted_under_a_run_is_missed_and_the_rest_of_its_batch_is_archived(
    lake: Lake, tmp_path: Path
) -> None:
    lake.client.push("first", [{"n": 1}, {"n": 2}])
    for queue in ("gone", "left"):
        lake.client.push(queue, {"n": 1})
    plan = RunPlan(
        names=("archive",), connection=ServerConnection((lake.url,), lake.tenant, None, 20.0), lake=str(tmp_path / "lake"),
        master="local[2]", wishes=Wishes(max_rows=2),
    )  # fmt: skip

    run = run_pipelines(plan, DeletingAfterTheFirstBatch(lake.client, "gone"), spark=lake.spark).run

    assert (run.error, run.status, run.stages[0].rows_out) == (None, "warn", 3)
    assert [check.name for check in run.checks if not check.held] == ["gone: it is still there"]
