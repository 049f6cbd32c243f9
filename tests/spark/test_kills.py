"""Driver, Python workers and server killed at random while messages are copied: none is lost, none is there twice, each partition
keeps its order. On both stores, and with two servers of one store; into a lake and into another queue.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import skep
from skep.client.exchange import ApiCall, Request
from skep.testing.postgres import free_port
from skep.wire.log import ARROW
from tests.support.serving import ServeProcess
from tests.support.spark_driver import Job

ROOT = Path(__file__).parents[2]
FULL_SIZE = 1_000_000
MESSAGES = int(os.environ.get("SKEP_KILL_MESSAGES", FULL_SIZE))
"""Fewer make a run of some minutes while something is worked on."""
KILLS = int(os.environ.get("SKEP_KILLS", "10"))
STREAM_MESSAGES = 50_000
BATCHES = 200
"""So many leave time for all kills."""
KEYS = 97
RUN_SECONDS = 3_000
LONGEST_PAUSE = 12.0
VICTIMS = ("driver", "worker", "server", "worker", "driver")


class Kept:
    """Servers of a store. Each can be killed, and comes back at the same port with the same store."""

    def __init__(self, store: str, servers: int, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._ports = [free_port() for _ in range(servers)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._serves = [self._started(port) for port in self._ports]

    def _started(self, port: int) -> ServeProcess:
        serve = ServeProcess("--store", self._store, "--port", str(port), folder=self._folder)
        serve.listening()
        return serve

    def kill(self, which: int) -> None:
        """Kill one, and start it again."""
        self._end(self._serves[which])
        self._serves[which] = self._started(self._ports[which])

    def close(self) -> None:
        for serve in self._serves:
            self._end(serve)

    def _end(self, serve: ServeProcess) -> None:
        serve.process.kill()
        serve.ended()
        assert serve.process.stderr is not None
        serve.process.stderr.close()


@contextmanager
def kept(store: tuple[str, int], folder: Path) -> Iterator[Kept]:
    server = Kept(*store, folder)
    try:
        yield server
    finally:
        server.close()


def started(job: Job, folder: Path) -> psutil.Popen:
    with (folder / "driver.log").open("ab") as output:
        return psutil.Popen(
            [sys.executable, "-m", "tests.support.spark_driver", msgspec.json.encode(job).decode()],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}, stdout=output, stderr=output,
        )  # fmt: skip


def family(driver: psutil.Popen) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """The processes of a driver: its own with its Java, and the Python workers of that Java."""
    try:
        below = driver.children(recursive=True)
        java = [process for process in below if process.name() == "java"]
        python = [process for process in below if process.name().startswith("python")]
    except psutil.Error:
        return [], []
    return java, python


def copied(job: Job, server: Kept, folder: Path, seed: int) -> dict[str, int]:
    """Run the driver until it has done all, and kill something every now and then; how often what was killed."""
    chance = random.Random(seed)
    killed = dict.fromkeys(VICTIMS, 0)
    driver = started(job, folder)
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        try:
            code = driver.wait(timeout=chance.uniform(1.0, LONGEST_PAUSE))
        except psutil.TimeoutExpired:
            if sum(killed.values()) < KILLS:
                driver = kill(chance.choice(VICTIMS), driver, job, server, folder, chance, killed)
            continue
        if code == 0:
            return killed
        driver = started(job, folder)  # a killed worker may have been that of the query itself
    raise TimeoutError((folder / "driver.log").read_text(errors="replace")[-4000:])


def kill(
    victim: str,
    driver: psutil.Popen,
    job: Job,
    server: Kept,
    folder: Path,
    chance: random.Random,
    killed: dict[str, int],
) -> psutil.Popen:
    java, python = family(driver)
    if victim == "server":
        server.kill(chance.randrange(len(server.urls)))
    elif victim == "worker" and python:
        dead(chance.choice(python))
    elif victim == "driver" and java:
        # Its Python workers live on for a moment, and may still be sending rows.
        dead(*java, driver)
        driver.wait()
        driver = started(job, folder)
    else:
        return driver
    killed[victim] += 1
    return driver


def dead(*processes: psutil.Process) -> None:
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def fill(urls: list[str], queue: str) -> None:
    """Push messages that each name their partition and their number."""
    with skep.Client(urls) as client:
        for first in range(0, MESSAGES, STREAM_MESSAGES):
            numbers = range(first, min(MESSAGES, first + STREAM_MESSAGES))
            batch = pa.record_batch(
                {
                    "partition": pa.array([f"k{number % KEYS}" for number in numbers]),
                    "payload": pa.array([str(number) for number in numbers]),
                }
            )
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            request = Request(
                "POST", "/api/v1/push", bytes(sink.getvalue()), {"queue": queue}, headers={"Content-Type": ARROW}
            )
            client.run(ApiCall(request, lambda answer: answer.status))


def numbers_of(client: skep.Client, queue: str) -> tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Partitions and payloads of a queue's log, in its order."""
    keys: list[str] = []
    payloads: list[str] = []
    last = client.log_bounds(queue).last_seq
    for first in range(1, last + 1, STREAM_MESSAGES):
        stream = client.read_log(queue, first, first + STREAM_MESSAGES - 1, columns=["seq", "partition", "payload"])
        table = pa.ipc.open_stream(stream).read_all()
        keys += table.column("partition").to_pylist()
        payloads += table.column("payload").to_pylist()
    return keys, np.array(payloads, np.int64)


def expected_kills() -> int:
    """A short run may be over before everything was killed that should have been."""
    return KILLS if MESSAGES >= FULL_SIZE else 1


@pytest.fixture(params=["sqlite", "postgres", "postgres with two servers"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, int]:
    """A store, and how many servers it has."""
    if request.param == "sqlite":
        return str(tmp_path / "store.db"), 1
    return str(request.getfixturevalue("postgres_dsn")), 1 if request.param == "postgres" else 2


@pytest.mark.slow
def test_from_queue_to_queue_nothing_is_lost_or_doubled_and_order_is_kept(
    store: tuple[str, int], tmp_path: Path
) -> None:
    with kept(store, tmp_path) as server:
        fill(server.urls, "orders")
        urls, checkpoint = ",".join(server.urls), str(tmp_path / "checkpoint")
        job = Job(urls, "orders", checkpoint, None, "copies", max(1_000, MESSAGES // BATCHES))
        killed = copied(job, server, tmp_path, seed=1)

        with skep.Client(server.urls) as client:
            keys, numbers = numbers_of(client, "copies")
            lag = client.group("copier", "orders").lag
    assert sum(killed.values()) >= expected_kills()
    assert lag == 0
    assert len(numbers) == MESSAGES
    assert len(np.unique(numbers)) == MESSAGES
    for key in set(keys):
        mine = numbers[[one == key for one in keys]]
        assert (np.diff(mine) > 0).all()


@pytest.mark.slow
def test_from_queue_to_lake_nothing_is_lost_or_doubled(
    spark: SparkSession, store: tuple[str, int], tmp_path: Path
) -> None:
    with kept(store, tmp_path) as server:
        fill(server.urls, "orders")
        urls, lake = ",".join(server.urls), str(tmp_path / "lake")
        job = Job(urls, "orders", str(tmp_path / "checkpoint"), lake, None, max(1_000, MESSAGES // BATCHES))
        killed = copied(job, server, tmp_path, seed=2)

    rows = spark.read.parquet(lake).selectExpr("count(*)", "count(distinct seq)", "max(seq)", "sum(bigint(payload))")
    assert sum(killed.values()) >= expected_kills()
    assert tuple(rows.collect()[0]) == (MESSAGES, MESSAGES, MESSAGES, MESSAGES * (MESSAGES - 1) // 2)
