"""Messages are forgotten while they are archived, and both are killed with -9 again and again: what is forgotten does not come back, and
nothing else goes. In a folder, and in an object store, where both run at once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec import Struct

from skep.errors import SkepError
from skep.spark.lake import place as uri
from skep.spark.lake.opening import Format, lake_of, open_lake, view_of
from skep.spark.lake.place import place_of
from skep.spark.lake.reading import frame_of
from tests.spark.conftest import Lake
from tests.support.s3 import BUCKET, CATALOG
from tests.support.waiting import let_run

ROOT = Path(__file__).parents[2]
MESSAGES = int(os.environ.get("SKEP_FORGET_MESSAGES", "1000000"))
KILLS = int(os.environ.get("SKEP_FORGET_KILLS", "4"))
PUSHED_AT_ONCE = 1_000
CUSTOMERS, GONE = 10, 3
"""One of these customers asks to be forgotten."""
STRETCHES = 20
"""So many stretches of messages are forgotten on the server beside that, in each round."""
LONGEST_STRETCH = 500
BATCHES = 20
RUN_SECONDS = 580.0
LONGEST_LIFE = 30.0
"""So many seconds after the first commit of a round its processes are killed at the latest."""
LOOK_SECONDS = 0.5
MOST_RUNS = 5
SEED = 11
Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]

pytestmark = pytest.mark.slow


class Where(Struct, frozen=True):
    """A lake, and its server."""

    lake: Lake
    kind: Format
    root: uri.Place
    catalog: str | None = None

    @property
    def log(self) -> Path:
        return self.lake.folder / "runs.log"

    def archive(self, *more: str) -> subprocess.Popen[bytes]:
        rows = str(MESSAGES // BATCHES)
        return self._started("pipeline", "run", "archive", "--max-rows", rows, "--format", self.kind, *more)

    def forget(self) -> subprocess.Popen[bytes]:
        return self._started("lake", "forget", "--where", f'message.customer == "c{GONE}"', "--yes")

    def _started(self, *command: str) -> subprocess.Popen[bytes]:
        arguments = [
            *command, "--url", self.lake.url, "--tenant", self.lake.tenant, "--queue", "orders", "--lake", self.root.uri,
            "--master", "local[2]", *([] if self.catalog is None else ["--catalog", self.catalog]),
        ]  # fmt: skip
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "skep", *arguments], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True,
            )  # fmt: skip


@pytest.fixture(params=["parquet", "delta in a store", "iceberg in a store"])
def where(request: pytest.FixtureRequest, lake: Lake) -> Iterator[Where]:
    kind, _, store = request.param.partition(" ")
    if not store:
        yield Where(lake, kind, place_of(str(lake.folder / "lake")))
        return
    request.getfixturevalue("object_store").set_faults(0)
    root = uri.Place(f"s3://{BUCKET}/forget-{lake.tenant}-{kind}")
    yield Where(lake, kind, root, f"{CATALOG}.{root.name.replace('-', '_')}" if kind == "iceberg" else None)


def push(lake: Lake) -> None:
    for first in range(1, MESSAGES + 1, PUSHED_AT_ONCE):
        seqs = range(first, first + PUSHED_AT_ONCE)
        lake.client.push("orders", [{"n": seq, "customer": f"c{seq % CUSTOMERS}"} for seq in seqs])


def forget_on_the_server(lake: Lake, kept: Mask, chance: random.Random) -> None:
    found = []
    for _ in range(STRETCHES):
        first = chance.randint(1, MESSAGES)
        found.append((first, min(MESSAGES, first + chance.randint(0, LONGEST_STRETCH))))
        kept[found[-1][0] : found[-1][1] + 1] = False
    lake.client.forget("orders", found)


def killed(processes: list[subprocess.Popen[bytes]]) -> int:
    """Kill what still runs; how many did."""
    running = [one for one in processes if one.poll() is None]
    for one in running:
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
    return len(running)


def ended(start: subprocess.Popen[bytes], where: Where) -> int:
    try:
        return start.wait(timeout=RUN_SECONDS)
    finally:
        killed([start])


def done(where: Where) -> None:
    """Archive and forget all, as a scheduler would: what was refused is started again."""
    for start in (where.archive, where.forget, lambda: where.archive("--audit")):
        for _ in range(MOST_RUNS):
            if ended(start(), where) == 0:
                break
        else:
            raise AssertionError(where.log.read_text(encoding="utf-8")[-3000:])


def archived(where: Where) -> int:
    """The last seq that is in the lake; 0 when there is no lake."""
    try:
        found = view_of(where.root, where.lake.tenant, where.catalog).archived("orders")
    except SkepError:
        return 0
    return 0 if found is None else found.through


def in_files(root: uri.Place) -> set[int]:
    """The seqs in all files below a place, whether a version names them or not."""
    found: set[int] = set()
    for one in root.below_it(".parquet"):
        with one.place.files.open_input_file(one.place.path) as source:
            table = pq.read_table(source)
        if "seq" in table.column_names:
            found |= set(table.column("seq").to_pylist())
    return found


def logged(lake: Lake) -> set[int]:
    stream = lake.client.read_log("orders", 1, MESSAGES, columns=["seq"])
    return set(pa.ipc.open_stream(stream).read_all().column("seq").to_pylist())


def test_what_is_forgotten_while_it_is_archived_does_not_come_back(where: Where) -> None:
    chance, lake = random.Random(SEED), where.lake
    push(lake)
    kept = np.ones(MESSAGES + 1, bool)
    kept[0] = False
    hits = 0
    for number in range(KILLS):
        turn = [where.archive] if number == 0 else [where.archive, where.forget]
        if where.root.is_local:  # a folder takes one run at a time
            turn = [turn[-1]] if number % 2 else turn[:1]
        before = archived(where)
        processes = [start() for start in turn]
        while where.archive in turn and archived(where) == before < MESSAGES and processes[0].poll() is None:
            let_run(LOOK_SECONDS)  # on a busy machine it takes long to start
        for _ in range(3):
            let_run(chance.uniform(0, LONGEST_LIFE / 3))
            forget_on_the_server(lake, kept, chance)
        hits += killed(processes)
    assert hits >= KILLS // 2, where.log.read_text(encoding="utf-8")[-3000:]
    done(where)
    kept[[seq for seq in range(MESSAGES + 1) if seq % CUSTOMERS == GONE]] = False
    expected = set(np.flatnonzero(kept).tolist())

    assert logged(lake) == expected
    opened = lake_of(where.root, lake.tenant, where.kind, where.catalog)
    rows = frame_of(lake.spark, opened.files(), ("seq",)).toArrow().column("seq").to_pylist()
    assert len(rows) == len(expected)
    assert set(rows) == expected
    with open_lake(where.root, lake.tenant) as writing:  # files that killed runs left
        writing.vacuum(0)
    assert in_files(where.root) == expected
