"""`skep pipeline run archive` as a process that is killed with -9 again and again: the lake has each message once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyspark.sql import DataFrame

from skep.spark.lake.opening import Format, lake_of
from skep.spark.lake.place import place_of
from skep.spark.lake.reading import frame_of
from tests.spark.conftest import Lake
from tests.support.waiting import let_run

ROOT = Path(__file__).parents[2]
MESSAGES = int(os.environ.get("SKEP_ARCHIVE_MESSAGES", "1000000"))
KILLS = int(os.environ.get("SKEP_ARCHIVE_KILLS", "10"))
PUSHED_AT_ONCE = 1_000
BATCHES = 10 * KILLS
"""So many batches that no life of a run, however quick, gets through all that is left before it is killed."""
RUN_SECONDS = 900.0
SEED = 7

LONGEST_LIFE = 1.5
"""So many seconds after its first commit a run is killed at the latest."""

pytestmark = pytest.mark.slow


def started(lake: Lake, log: Path, kind: str) -> subprocess.Popen[bytes]:
    arguments = [
        "--url", lake.url, "--tenant", lake.tenant, "--queue", "orders", "--lake", str(lake.folder / "lake"),
        "--master", "local[2]", "--max-rows", str(MESSAGES // BATCHES), "--group", "archive", "--format", kind,
    ]  # fmt: skip
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "skep", "pipeline", "run", "archive", *arguments], stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True,
        )  # fmt: skip


def through(lake: Lake, kind: str) -> int:
    """The last seq that is committed."""
    root = lake.folder / "lake"
    try:
        if kind == "delta":
            return DeltaTable(str(root / "messages")).transaction_version(f"skep/{lake.tenant}/orders") or 0
        if kind == "iceberg":
            return lake_of(place_of(str(root)), lake.tenant, "iceberg").through("orders") or 0
        return int(json.loads((root / "_skep" / "state.json").read_bytes())["through"].get("orders", 0))
    except (FileNotFoundError, TableNotFoundError):
        return 0


def killed_amid_writing(lake: Lake, log: Path, kind: str, chance: random.Random) -> bool:
    """Start a run, and kill it at some time after its first commit; whether it had more to write then."""
    process, before = started(lake, log, kind), through(lake, kind)
    deadline = time.monotonic() + RUN_SECONDS
    while process.poll() is None and through(lake, kind) == before and time.monotonic() < deadline:
        let_run(0.05)  # until it has committed something, then a little more
    let_run(chance.uniform(0, LONGEST_LIFE))
    was_running = process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return was_running and before < through(lake, kind) < MESSAGES


def seqs(lake: Lake, kind: Format) -> DataFrame:
    opened = lake_of(place_of(str(lake.folder / "lake")), lake.tenant, kind)
    return frame_of(lake.spark, opened.files(), ("seq",))


@pytest.mark.parametrize("kind", ["parquet", "delta", "iceberg"])
def test_an_archive_that_is_killed_again_and_again_has_each_message_once(lake: Lake, kind: Format) -> None:
    chance = random.Random(SEED)
    for first in range(0, MESSAGES, PUSHED_AT_ONCE):
        lake.client.push("orders", [{"n": number} for number in range(first, first + PUSHED_AT_ONCE)])
    log = lake.folder / "runs.log"
    hits = [killed_amid_writing(lake, log, kind, chance) for _ in range(KILLS)]
    process = started(lake, log, kind)
    assert process.wait(timeout=RUN_SECONDS) == 0, log.read_text(encoding="utf-8")[-3000:]
    assert hits == [True] * KILLS, log.read_text(encoding="utf-8")[-3000:]
    counted = seqs(lake, kind).selectExpr("count(*)", "count(distinct seq)", "min(seq)", "max(seq)")
    assert tuple(counted.collect()[0]) == (MESSAGES, MESSAGES, 1, MESSAGES)
    assert [one.lag for one in lake.client.group("archive").queues] == [0]
