"""Lake and log are read as one table by a stream, while an archive fills the lake and compacts it, retention empties the log, and server, archive,
driver and workers are killed: each message is read once, and what was forgotten is not.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import skep
from skep.spark.lake.opening import open_lake
from skep.spark.lake.reading import rows_of_file
from skep.spark.options import source_options
from skep.spark.schema import schema_of
from skep.spark.source import MessageReader
from tests.spark.killing import (
    MESSAGES,
    ROOT,
    RUN_SECONDS,
    Driver,
    Kept,
    expected_kills,
    fill,
    kept,
    numbers_of,
)
from tests.support.spark_driver import Job
from tests.support.waiting import let_run

QUEUE, COPY = "orders", "copies"
BATCHES = 50
FORGOTTEN = 500
VICTIMS = ("server", "archive", "driver", "worker", "archive", "server")

pytestmark = pytest.mark.slow


class Archive:
    """An archive that runs all the time, each second anew. It can be killed, and is started again."""

    def __init__(self, url: str, lake: Path, log: Path) -> None:
        self._arguments = [
            "--url", url, "--queue", QUEUE, "--lake", str(lake), "--master", "local[1]", "--max-rows", str(MESSAGES // BATCHES),
            "--group", "archive", "--no-verify",
        ]  # fmt: skip
        self._lake, self._log = lake, log
        self._process = self._started("--every", "1s")

    def _started(self, *more: str) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "skep", "pipeline", "run", "archive", *self._arguments, *more], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, start_new_session=True,
            )  # fmt: skip

    def through(self) -> int:
        """The last seq that is committed."""
        try:
            return int(json.loads((self._lake / "_skep" / "state.json").read_bytes())["through"].get(QUEUE, 0))
        except FileNotFoundError:
            return 0

    def kill(self) -> bool:
        self.end()
        self._process = self._started("--every", "1s")
        return True

    def end(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def revive(self) -> None:
        """Start it again if it has ended: a server that was away for long ends it, too."""
        if self._process.poll() is not None:
            self._process = self._started("--every", "1s")

    def finish(self) -> None:
        """Archive the rest."""
        self.end()
        assert self._started().wait(RUN_SECONDS) == 0, self._log.read_text(encoding="utf-8")[-3000:]


def copied(job: Job, server: Kept, archive: Archive, folder: Path) -> dict[str, int]:
    """Run the stream until it has all, and kill something every now and then; how often what was killed."""
    driver = Driver(job, folder, random.Random(3))
    strikes = {
        "driver": driver.kill, "worker": driver.kill_worker, "server": lambda: server.kill(0), "archive": archive.kill,
    }  # fmt: skip
    return driver.finish(strikes, lambda kills: VICTIMS[kills % len(VICTIMS)], archive.revive)


def test_lake_and_log_are_one_table_whatever_is_killed(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with kept((str(tmp_path / "store.db"), 1), tmp_path) as server:
        [url] = server.urls
        with skep.Client(url) as client:
            client.configure(
                QUEUE, retention_seconds=1.0, retention_requires_archive=True, retention_ignores_groups=True
            )
            fill(server.urls, QUEUE)
            archive = Archive(url, lake, tmp_path / "archive.log")
            try:
                let_run_until(lambda: archive.through() > 0)
                # The first of them are in the lake by now, the last ones are not.
                gone = [(1, FORGOTTEN), (MESSAGES - FORGOTTEN + 1, MESSAGES)]
                client.forget(QUEUE, gone)
                job = Job(url, QUEUE, str(tmp_path / "checkpoint"), None, COPY, MESSAGES // BATCHES, str(lake))
                killed = copied(job, server, archive, tmp_path)
                archive.finish()
            finally:
                archive.end()
        with skep.Client(url) as client:
            keys, numbers = numbers_of(client, COPY)
            left = client.log_bounds(QUEUE)
            read = both(url, lake)
    wanted = np.arange(FORGOTTEN, MESSAGES - FORGOTTEN)
    assert sum(killed.values()) >= expected_kills()
    assert left.first_seq > 1  # retention has taken from the log what the stream read
    for found in (numbers, read, archived(lake)):
        assert np.array_equal(np.sort(found), wanted)
    for key in set(keys):
        mine = numbers[[one == key for one in keys]]
        assert (np.diff(mine) > 0).all()


def let_run_until(is_so: object) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    assert callable(is_so)
    while not is_so():
        assert time.monotonic() < deadline
        let_run(0.2)


def both(url: str, lake: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of a batch read of lake and log."""
    reader = MessageReader(source_options({"url": url, "subscribe": QUEUE, "lake": str(lake)}), schema_of(("payload",)))
    batches = [rows for portion in reader.partitions() for rows in reader.read(portion)]
    return np.array([int(one) for rows in batches for one in rows.column("payload").to_pylist()], np.int64)


def archived(lake: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of all rows of the lake's files."""
    with open_lake(str(lake), "default") as opened:
        batches = [rows for file in opened.files() for rows in rows_of_file(file, ("payload",))]
    return np.array([int(one) for rows in batches for one in rows.column("payload").to_pylist()], np.int64)
