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

from tests.spark.conftest import Lake

ROOT = Path(__file__).parents[2]
MESSAGES = int(os.environ.get("SKEP_ARCHIVE_MESSAGES", "1000000"))
KILLS = int(os.environ.get("SKEP_ARCHIVE_KILLS", "10"))
PUSHED_AT_ONCE = 1_000
RUN_SECONDS = 900.0
SEED = 7

pytestmark = pytest.mark.slow


def started(lake: Lake, log: Path) -> subprocess.Popen[bytes]:
    arguments = [
        "--url", lake.url, "--tenant", lake.tenant, "--queue", "orders", "--lake", str(lake.folder / "lake"),
        "--master", "local[2]", "--max-rows", str(MESSAGES // 20), "--group", "archive",
    ]  # fmt: skip
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "skep", "pipeline", "run", "archive", *arguments], stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True,
        )  # fmt: skip


def through(lake: Lake) -> int:
    try:
        state = json.loads((lake.folder / "lake" / "_skep" / "state.json").read_bytes())
    except FileNotFoundError:
        return 0
    return int(state["through"].get("orders", 0))


def test_an_archive_that_is_killed_again_and_again_has_each_message_once(lake: Lake) -> None:
    chance = random.Random(SEED)
    for first in range(0, MESSAGES, PUSHED_AT_ONCE):
        lake.client.push("orders", [{"n": number} for number in range(first, first + PUSHED_AT_ONCE)])
    log, killed = lake.folder / "runs.log", 0
    while killed < KILLS and through(lake) < MESSAGES:
        process, before = started(lake, log), through(lake)
        deadline = time.monotonic() + RUN_SECONDS
        while process.poll() is None and through(lake) == before and time.monotonic() < deadline:
            time.sleep(0.05)  # until it has committed something, then a little more
        time.sleep(chance.uniform(0, 1.5))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        killed += 1
    process = started(lake, log)
    assert process.wait(timeout=RUN_SECONDS) == 0, log.read_text(encoding="utf-8")[-3000:]
    assert killed > 0
    rows = lake.spark.read.parquet(str(lake.folder / "lake" / "messages"))
    assert rows.count() == MESSAGES
    assert sorted(row["seq"] for row in rows.select("seq").distinct().collect()) == list(range(1, MESSAGES + 1))
    assert [one.lag for one in lake.client.group("archive").queues] == [0]
