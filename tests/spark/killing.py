"""Drivers and servers that are killed with -9 at random and come back, and the messages that they copy meanwhile."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import psutil
import pyarrow as pa

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
KEYS = 97
RUN_SECONDS = 3_000
LONGEST_PAUSE = 12.0


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

    def kill(self, which: int) -> bool:
        """Kill one, and start it again."""
        self._end(self._serves[which])
        self._serves[which] = self._started(self._ports[which])
        return True

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


class Driver:
    """A driver of Spark with a job, that is started again when it has ended or was killed."""

    def __init__(self, job: Job, folder: Path, chance: random.Random) -> None:
        self._job = job
        self._log = folder / "driver.log"
        self._chance = chance
        self._process = self._started()

    def _started(self) -> psutil.Popen:
        with self._log.open("ab") as output:
            return psutil.Popen(
                [sys.executable, "-m", "tests.support.spark_driver", msgspec.json.encode(self._job).decode()],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}, stdout=output, stderr=output,
            )  # fmt: skip

    def kill(self) -> bool:
        """Kill it with its Java, if that runs, and start it again. Its Python workers live on for a moment, and may still be sending rows."""
        java, _ = family(self._process)
        if not java:
            return False
        dead(*java, self._process)
        self._process.wait()
        self._process = self._started()
        return True

    def kill_worker(self) -> bool:
        """Kill one of its Python workers, if it has any."""
        _, python = family(self._process)
        if python:
            dead(self._chance.choice(python))
        return bool(python)

    def finish(
        self,
        strikes: Mapping[str, Callable[[], bool]],
        victim: Callable[[int], str],
        beside: Callable[[], None] | None = None,
    ) -> dict[str, int]:
        """Let it do all of its job, and kill something every now and then; how often what was killed.

        ``victim`` names the next one, after so many kills. ``beside`` is done again and again.
        """
        killed = dict.fromkeys(strikes, 0)
        deadline = time.monotonic() + RUN_SECONDS
        while time.monotonic() < deadline:
            if beside is not None:
                beside()
            try:
                code = self._process.wait(timeout=self._chance.uniform(1.0, LONGEST_PAUSE))
            except psutil.TimeoutExpired:
                if sum(killed.values()) < KILLS:
                    name = victim(sum(killed.values()))
                    killed[name] += strikes[name]()
                continue
            if code == 0:
                return killed
            self._process = self._started()  # a killed worker may have been that of the query itself
        raise TimeoutError(self._log.read_text(errors="replace")[-4000:])


def family(driver: psutil.Popen) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """The processes of a driver: its own with its Java, and the Python workers of that Java."""
    try:
        below = driver.children(recursive=True)
        java = [process for process in below if process.name() == "java"]
        python = [process for process in below if process.name().startswith("python")]
    except psutil.Error:
        return [], []
    return java, python


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
