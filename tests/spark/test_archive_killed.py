"""`skep pipeline run archive` as a process that is killed with -9 again and again, or whose workers are: the lake has each message once.
In a folder, and in an object store whose requests are lost, refused, delayed and doubled.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from msgspec import Struct
from pyspark.sql import DataFrame

from skep.spark.lake import place as uri
from skep.spark.lake.opening import Format, lake_of
from skep.spark.lake.place import place_of
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import Lake
from tests.spark.conftest import Lake as Served
from tests.support.s3 import BUCKET, CATALOG, Store
from tests.support.waiting import let_run

ROOT = Path(__file__).parents[2]
MESSAGES = int(os.environ.get("SKEP_ARCHIVE_MESSAGES", "1000000"))
KILLS = int(os.environ.get("SKEP_ARCHIVE_KILLS", "10"))
PUSHED_AT_ONCE = 1_000
MOST_RUNS = 20
WORKERS_SHARE = 0.5
RUN_SECONDS = 900.0
SEED = 7

LONGEST_LIFE = 1.5
"""So many seconds after its first commit a run is killed at the latest."""

pytestmark = pytest.mark.slow


FAULTS = 0.03
"""How large a share of the requests to the object store goes wrong."""


class Place(Struct, frozen=True):
    """A lake of some format, where it is, and how often a run that writes to it is killed."""

    kind: Format
    root: uri.Place
    catalog: str | None = None
    kills: int = KILLS

    @property
    def batches(self) -> int:
        """So many that no life of a run, however quick, gets through all that is left before it is killed."""
        return 10 * self.kills

    def open(self, tenant: str) -> Lake:
        return lake_of(self.root, tenant, self.kind, self.catalog)


@pytest.fixture(params=["parquet", "delta", "iceberg", "delta in a store", "iceberg in a store"])
def place(request: pytest.FixtureRequest, lake: Served) -> Iterator[Place]:
    kind, _, store = request.param.partition(" ")
    if not store:
        yield Place(kind, place_of(str(lake.folder / "lake")))
        return
    running: Store = request.getfixturevalue("object_store")
    running.set_faults(FAULTS)
    root = uri.Place(f"s3://{BUCKET}/killed-{lake.tenant}-{kind}")
    yield Place(kind, root, f"{CATALOG}.{root.name.replace('-', '_')}" if kind == "iceberg" else None, KILLS // 2)
    running.set_faults(0)


def started(lake: Served, log: Path, place: Place) -> subprocess.Popen[bytes]:
    arguments = [
        "--url", lake.url, "--tenant", lake.tenant, "--queue", "orders", "--lake", place.root.uri, "--master", "local[2]",
        "--max-rows", str(MESSAGES // place.batches), "--group", "archive", "--format", place.kind,
        *([] if place.catalog is None else ["--catalog", place.catalog]),
    ]  # fmt: skip
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "skep", "pipeline", "run", "archive", *arguments], stdin=subprocess.DEVNULL, cwd=away(lake),
            stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True,
        )  # fmt: skip


def away(lake: Served) -> Path:
    """The working folder of runs."""
    folder = lake.folder / "away"
    folder.mkdir(exist_ok=True)
    return folder


def through(lake: Served, place: Place) -> int:
    """The last seq that is committed."""
    if place.kind == "parquet":
        try:
            return int(json.loads((place.root.local / "_skep" / "state.json").read_bytes())["through"].get("orders", 0))
        except FileNotFoundError:
            return 0
    return place.open(lake.tenant).through("orders") or 0


def killed_amid_writing(lake: Served, log: Path, place: Place, chance: random.Random) -> bool:
    """Start a run, and kill it at some time after its first commit; whether it had more to write then."""
    process, before = started(lake, log, place), through(lake, place)
    deadline = time.monotonic() + RUN_SECONDS
    while process.poll() is None and through(lake, place) == before and time.monotonic() < deadline:
        let_run(0.05 if place.root.is_local else 0.5)  # until it has committed something, then a little more
    let_run(chance.uniform(0, LONGEST_LIFE))
    was_running = process.poll() is None
    if chance.random() < WORKERS_SHARE:  # an executor's work ends first, and the driver hears of it
        kill_a_worker(process, chance)
        let_run(chance.uniform(0, LONGEST_LIFE))
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return was_running and before < through(lake, place) < MESSAGES


def kill_a_worker(process: subprocess.Popen[bytes], chance: random.Random) -> None:
    with suppress(psutil.Error):
        below = psutil.Process(process.pid).children(recursive=True)
        workers = [one for one in below if "pyspark.daemon" in " ".join(one.cmdline())]
        if workers:
            chance.choice(workers).kill()


def seqs(lake: Served, place: Place) -> DataFrame:
    return frame_of(lake.spark, place.open(lake.tenant).files(), ("seq",))


def test_an_archive_that_is_killed_again_and_again_has_each_message_once(lake: Served, place: Place) -> None:
    chance = random.Random(SEED)
    for first in range(0, MESSAGES, PUSHED_AT_ONCE):
        lake.client.push("orders", [{"n": number} for number in range(first, first + PUSHED_AT_ONCE)])
    log = lake.folder / "runs.log"
    hits = [killed_amid_writing(lake, log, place, chance) for _ in range(place.kills)]
    process = started(lake, log, place)
    while process.wait(timeout=RUN_SECONDS) and not place.root.is_local and len(hits) < MOST_RUNS:
        hits.append(True)  # too many requests in a row went wrong: as its scheduler would, start it again
        process = started(lake, log, place)
    assert process.returncode == 0, log.read_text(encoding="utf-8")[-3000:]
    assert all(hits), log.read_text(encoding="utf-8")[-3000:]
    counted = seqs(lake, place).selectExpr("count(*)", "count(distinct seq)", "min(seq)", "max(seq)")
    assert tuple(counted.collect()[0]) == (MESSAGES, MESSAGES, 1, MESSAGES)
    assert [one.lag for one in lake.client.group("archive").queues] == [0]
    assert list(away(lake).iterdir()) == []
