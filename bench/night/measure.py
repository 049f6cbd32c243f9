"""What the parts of a night cost on this machine: processor time of executors, server and database, and the driver's own seconds.

Processor time, since it says the same on a busy machine, and is what many machines share out. Each load is measured alone: few large
messages, many small ones, and many queues; the differences between them are the costs of a message, a byte and a queue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import structlog
from msgspec import Struct
from pyspark.sql import SparkSession

from bench import scripts
from bench.http import serving
from bench.loader import Load, drive
from bench.night.model import Figures, Work
from bench.report import middle
from bench.rounds import cpu_seconds
from bench.spark import PAYLOAD_BYTES, drain, quiet_session, stream
from skep.client import Client
from skep.model import DEFAULT_TENANT
from skep.spark.lake.files import LakeFile
from skep.spark.lake.opening import open_lake
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import MESSAGES, LakeChange, append
from skep.spark.options import ServerConnection
from skep.spark.pipelines.archive import COMPARED
from skep.spark.running.inputs import Inputs
from skep.testing.postgres import running_postgres

log = structlog.get_logger("bench")
PUSHED_BYTES = 4_000_000
"""About the size of one push."""


class Scale(Struct, frozen=True, kw_only=True):
    """How much is measured."""

    small: int
    """Messages of 300 bytes."""
    large: int
    """Messages of 10,000 bytes."""
    queues: int
    """Queues with some messages each."""
    rounds: int
    tasks: int = 64
    files: int = 256
    """Files of a large commit."""


QUICK = Scale(small=400_000, large=40_000, queues=200, rounds=2)
FULL = Scale(small=1_000_000, large=100_000, queues=1_000, rounds=5)
LARGE_BYTES = 10_000
OF_A_QUEUE = 20
"""Messages of each of many queues."""


class Spent(Struct):
    """The processor time of a piece of work, in seconds."""

    executor: float
    server: float
    database: float


class Subject(Struct, frozen=True):
    """A Spark, a server and its database."""

    spark: SparkSession
    port: int
    server: int
    database: int | None
    scale: Scale
    folder: Path
    lakes: count[int]

    @property
    def connection(self) -> ServerConnection:
        return ServerConnection((f"http://127.0.0.1:{self.port}",), DEFAULT_TENANT, None, retry_seconds=60.0)

    def inputs(self, queues: Sequence[str]) -> Inputs:
        return Inputs(self.spark, self.connection, queues)

    def spent(self, work: Callable[[], object]) -> Spent:
        """The least that a round took, after one that does not count: other work on the machine only adds to it."""
        work()
        found = [self._spent(work) for _ in range(self.scale.rounds)]
        return min(found, key=lambda one: one.executor + one.server + one.database)

    def _spent(self, work: Callable[[], object]) -> Spent:
        before = self._used()
        work()
        return Spent(*(max(0.0, after - mine) for after, mine in zip(self._used(), before, strict=True)))

    def _used(self) -> tuple[float, float, float]:
        server, database = _family(self.server), 0.0 if self.database is None else _family(self.database)
        others = server if self.database is None else server + database
        return (
            cpu_seconds((self.server, *([] if self.database is None else [self.database]))) - others,
            server,
            database,
        )


def _family(pid: int) -> float:
    from psutil import Process

    processes = [Process(pid), *Process(pid).children(recursive=True)]
    return float(sum(sum(one.cpu_times()[:4]) for one in processes))


def measured(store: str, scale: Scale) -> Figures:
    """The figures of this machine."""
    with TemporaryDirectory(prefix="skep-bench-") as temporary, ExitStack() as stack:
        folder = Path(temporary)
        address, database = f"{folder}/served.db", None
        if store == "postgres":
            running = stack.enter_context(running_postgres())
            address, database = running.create_database(), running.pid
        spark = quiet_session(folder / "spark.log", {"spark.driver.memory": "2g"})
        stack.callback(spark.stop)
        port, pid = stack.enter_context(serving(address, folder, {"SKEP_LOG_CACHE_BYTES": "0"}))
        return _figures(Subject(spark, port, pid, database, scale, folder, count(1)))


def _figures(subject: Subject) -> Figures:
    scale = subject.scale
    pushed(subject, "small", scale.small, PAYLOAD_BYTES)
    pushed(subject, "large", scale.large, LARGE_BYTES)
    many = [f"many-{number}" for number in range(scale.queues)]
    pushed_to_many(subject, many)
    small, large, queues = (subject.spent(partial(archived, subject, names)) for names in (["small"], ["large"], many))
    verified = subject.spent(lambda: compared(subject, "small"))
    parts = {
        name: _work(scale, *(getattr(one, name) for one in (small, large, queues)))
        for name in ("executor", "server", "database")
    }
    commit, file = committed(subject)
    return Figures(
        **parts, verify=Work(message=verified.executor / scale.small),
        verify_server=Work(message=(verified.server + verified.database) / scale.small),
        task_seconds=tasks(subject), commit_seconds=commit, file_seconds=file, bounds_seconds=looked(subject, many),
        lake_byte=share_of_files(subject, "large", scale.large * LARGE_BYTES),
    )  # fmt: skip


def _work(scale: Scale, small: float, large: float, queues: float) -> Work:
    """The cost of a message, a byte and a queue that explains what three loads took."""
    # large = large_count * (message + 10,000 byte), small = small_count * (message + 300 byte)
    of_small, of_large = small / scale.small, large / scale.large
    byte = max(0.0, (of_large - of_small) / (LARGE_BYTES - PAYLOAD_BYTES))
    message = max(0.0, of_small - PAYLOAD_BYTES * byte)
    return Work(max(0.0, queues / scale.queues - OF_A_QUEUE * of_small), message, byte)


def pushed(subject: Subject, queue: str, messages: int, payload_bytes: int) -> None:
    """Fill a queue."""
    batch = min(messages, PUSHED_BYTES // payload_bytes)
    body = stream(batch, payload_bytes=payload_bytes)
    drive(subject.port, Load(scripts.push_stream, (queue, batch, body), 1, messages=messages))


def pushed_to_many(subject: Subject, queues: Sequence[str]) -> None:
    """Some messages into each of many queues."""
    payloads = ["x" * (PAYLOAD_BYTES - 2)] * OF_A_QUEUE
    with Client(subject.connection.urls) as client:
        for queue in queues:
            client.push(queue, payloads)


def archived(subject: Subject, queues: Sequence[str]) -> list[LakeFile]:
    """The queues into a new lake of Delta."""
    inputs = subject.inputs(queues)
    bounds = inputs.bounds()
    logs, end = {one: bounds[one].log for one in queues}, {one: bounds[one].last_seq for one in queues}
    sources = inputs.log_rows(dict.fromkeys(queues, 0), end, logs, {})
    with open_lake(str(subject.folder / f"lake-{next(subject.lakes)}"), DEFAULT_TENANT, "delta") as lake:
        return append(subject.spark, lake, sources, end)


def compared(subject: Subject, queue: str) -> None:
    """Seqs and ids of log and lake, as verification reads them."""
    files = archived_before(subject, queue)
    drain(subject.inputs([queue]).messages(COMPARED))
    drain(frame_of(subject.spark, files, COMPARED))


def archived_before(subject: Subject, queue: str) -> list[LakeFile]:
    kept = subject.folder / f"{queue}.json"
    if not kept.exists():
        kept.write_bytes(msgspec.json.encode(archived(subject, [queue])))
    return msgspec.json.decode(kept.read_bytes(), type=list[LakeFile])


def tasks(subject: Subject) -> float:
    """Seconds of a core for a task of Python that does nothing."""
    number, cores = subject.scale.tasks, 2
    frame = subject.spark.range(0, number, 1, number).mapInArrow(lambda batches: batches, "id bigint")
    return middle([_seconds(lambda: drain(frame)) for _ in range(subject.scale.rounds + 1)][1:]) * cores / number


def committed(subject: Subject) -> tuple[float, float]:
    """Seconds of a commit of one file, and of each further one."""
    [file] = archived_before(subject, "large")[:1]
    number = subject.scale.files
    few: list[float] = []
    many: list[float] = []
    with open_lake(str(subject.folder / "commits"), DEFAULT_TENANT, "delta") as lake:
        for place in range(2 * (subject.scale.rounds + 1)):
            took, size = (few, 1) if place % 2 else (many, number)
            uris = [(lake.root / MESSAGES / f"{place}-{one}.parquet").uri for one in range(size)]
            change = LakeChange(added=[msgspec.structs.replace(file, uri=uri) for uri in uris], through={"q": place})
            lake.through("q")
            took.append(_seconds(partial(lake.commit, change)))
    one = middle(few[1:])
    return one, max(0.0, (middle(many[1:]) - one) / (number - 1))


def looked(subject: Subject, queues: Sequence[str]) -> float:
    """Seconds of the driver for the bounds of one more queue."""
    inputs = subject.inputs(queues)
    return middle([_seconds(inputs.bounds) for _ in range(subject.scale.rounds)]) / len(queues)


def share_of_files(subject: Subject, queue: str, payload_bytes: int) -> float:
    files = archived_before(subject, queue)
    return sum(file.bytes for file in files) / payload_bytes


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
