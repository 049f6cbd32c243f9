"""`skep pipeline run --every`: pass after pass by the real command line, until Ctrl-C ends it in order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

import skep
from skep.spark.options import ServerConnection
from skep.spark.running.context import Wishes
from skep.spark.running.inputs import Inputs
from skep.spark.running.record import Run, Stage
from skep.spark.running.runner import RunPlan, run_pipelines
from tests.spark.conftest import Lake

ROOT = Path(__file__).parents[2]
END_SECONDS = 120


@pytest.fixture
def running(lake: Lake) -> Iterator[subprocess.Popen[str]]:
    arguments = ["--url", lake.url, "--tenant", lake.tenant, "--lake", str(lake.folder / "lake"), "--queue", "orders"]
    arguments += ["--master", "local[1]", "--every", "100ms", "-o", "table"]
    lake.client.push("orders", [{"n": 1}, {"n": 2}])
    process = subprocess.Popen(
        [sys.executable, "-m", "skep", "pipeline", "run", "archive", *arguments], stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    with process:
        yield process
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def heard(process: subprocess.Popen[str], pattern: str) -> str:
    """The first line of its progress that fits."""
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        if re.search(pattern, line):
            return line
    raise AssertionError(f"it ended without {pattern}: {''.join(told)}")


def written(folder: Path) -> Run:
    [file] = folder.glob("runs/*/run.json")
    return msgspec.json.decode(file.read_bytes(), type=Run)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_passes_go_on_until_ctrl_c_or_a_polite_kill_ends_them_in_order(
    lake: Lake, running: subprocess.Popen[str], number: signal.Signals
) -> None:
    heard(running, r"archive .*\b2 rows in, 2 out")
    lake.client.push("orders", [{"n": number} for number in range(3, 6)])
    heard(running, r"archive .*\b5 rows in, 5 out")

    os.killpg(running.pid, number)  # as a terminal and systemd do: all that belong to it hear of it
    out, err = running.communicate(timeout=END_SECONDS)

    assert running.returncode == 0, err
    assert "1 stage: 1 ok; 1 of 1 checks held" in out
    run = written(lake.folder / "lake")
    assert (run.status, run.error, run.ended_at is not None) == ("ok", None, True)
    assert [(stage.name, stage.status, stage.rows_out) for stage in run.stages] == [("archive", "ok", 5)]
    assert lake.client.pipeline_run(run.id).report.status == "ok"
    assert "Traceback" not in err


class Interrupting:
    """Presses Ctrl-C when a stage begins for the second time."""

    def __init__(self) -> None:
        self._begun = 0

    def stage(self, stage: Stage) -> None:
        if stage.status == "running":
            self._begun += stage.batches == stage.rows_in  # once when it begins, as long as each batch has one row
            if self._begun == 3:
                raise KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize(("every", "status"), [(0.001, "ok"), (None, "failed")])
def test_ctrl_c_amid_a_pass_is_the_end_of_passes_and_a_failure_of_a_single_run(
    lake: Lake, every: float | None, status: str
) -> None:
    lake.client.push("orders", {"n": 1})
    names = ("archive",) if every is not None else ("archive", "archive")
    plan = RunPlan(
        names=names, connection=ServerConnection((lake.url,), lake.tenant, None, 20.0), queues=("orders",),
        lake=str(lake.folder / "lake"), master="local[2]", wishes=Wishes(every_seconds=every, compact=False, verify=False),
    )  # fmt: skip
    with nullcontext() if every is not None else pytest.raises(KeyboardInterrupt):
        run_pipelines(plan, Interrupting(), spark=lake.spark)
    run = written(lake.folder / "lake")
    assert (run.status, run.error) == (status, None if every is not None else "interrupted")
    assert [(stage.rows_out, stage.note) for stage in run.stages] == [(1, "interrupted")]
    assert run.ended_at is not None


class Deleting:
    """Deletes a queue, when a pass has ended or amid the next one, and presses Ctrl-C in the pass after that."""

    def __init__(self, client: skep.Client, when: str) -> None:
        self._client = client
        self._when = when
        self._passes = 0

    def stage(self, stage: Stage) -> None:
        self._passes += stage.status == "ok"
        there = {queue.name for queue in self._client.queues(stats=False)}
        if self._passes == 1 and stage.status == self._when and "gone" in there:
            self._client.delete_queue("gone")
            self._client.push("orders", {"n": 2})
        elif self._passes == 2 and stage.status == "running":
            raise KeyboardInterrupt


def passing(lake: Lake, *queues: str) -> RunPlan:
    return RunPlan(
        names=("archive",), connection=ServerConnection((lake.url,), lake.tenant, None, 20.0), queues=queues,
        lake=str(lake.folder / "lake"), master="local[2]", wishes=Wishes(every_seconds=0.001, compact=False, verify=False),
    )  # fmt: skip


@pytest.mark.parametrize(("queues", "when"), [(("orders", "gone"), "ok"), ((), "running")])
def test_passes_go_on_without_a_queue_that_was_deleted(lake: Lake, queues: tuple[str, ...], when: str) -> None:
    for queue in ("gone", "orders"):
        lake.client.push(queue, {"n": 1})

    run = run_pipelines(passing(lake, *queues), Deleting(lake.client, when), spark=lake.spark).run

    assert (run.error, run.status) == (None, "warn")
    assert [(check.name, check.held) for check in run.checks] == [("gone: it is still there", False)]
    assert [(stage.rows_out, stage.note) for stage in run.stages] == [(3, "interrupted")]


def test_a_queue_that_is_made_anew_is_left_out_as_the_one_that_was_deleted(lake: Lake) -> None:
    for queue in ("gone", "orders"):
        lake.client.push(queue, {"n": 1})
    inputs = Inputs(lake.spark, ServerConnection((lake.url,), lake.tenant, None, 20.0))
    lake.client.delete_queue("gone")
    assert inputs.refresh(()) == ["gone"]
    lake.client.push("gone", {"n": 2})

    assert inputs.refresh(()) == []
    assert (inputs.queues, inputs.gone) == (["orders"], {"gone"})


def test_a_queue_that_never_was_ends_passes_before_they_begin(lake: Lake) -> None:
    lake.client.push("orders", {"n": 1})
    run = run_pipelines(passing(lake, "orders", "oders"), spark=lake.spark).run
    assert "oders" in (run.error or "")
