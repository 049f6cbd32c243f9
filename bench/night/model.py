"""The simulation: the batches of the archive, planned as the archive plans them, on executors, servers and a network of some size.

A batch takes as long as whatever it waits for longest: the executors' cores, the servers, the database, or the network. Then the driver
commits it, and only then the next one begins. What a task, a message, a byte, a queue and a commit cost was measured.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping

from msgspec import Struct

from skep.spark.lake.files import TARGET_BYTES
from skep.spark.offsets import QueueStretch, packed, split, stretches
from skep.spark.running.archiving import next_end
from skep.wire.log import LogBoundsResponse as Bounds

SECONDS_OF_AN_HOUR = 3_600


class Work(Struct, frozen=True):
    """The processor time of one program, in seconds: for each queue of a task, each message, and each byte of payloads."""

    queue: float = 0.0
    message: float = 0.0
    byte: float = 0.0

    def seconds(self, queues: int, messages: int, payload_bytes: float) -> float:
        return queues * self.queue + messages * self.message + payload_bytes * self.byte


class Figures(Struct, frozen=True, kw_only=True):
    """What was measured on one machine."""

    executor: Work
    server: Work
    database: Work = Work()
    verify: Work = Work()
    """Of the executors, to compare lake and log."""
    verify_server: Work = Work()
    """Of the server, and of its database."""
    task_seconds: float = 0.0
    """A task that does nothing."""
    commit_seconds: float = 0.0
    file_seconds: float = 0.0
    """The commit of one more file."""
    bounds_seconds: float = 0.0
    """The driver's look at one more queue."""
    lake_byte: float = 0.5
    """Bytes of files for each byte of payloads."""


class Night(Struct, frozen=True):
    """What has come since the last night."""

    queues: int = 10_000
    messages: int = 1_000_000_000
    payload_bytes: int = 10_000_000_000_000
    skew: float = 1.0
    """The exponent of Zipf's law by which queues differ in size; with 0 all are alike."""

    @property
    def bytes_of_a_message(self) -> float:
        return self.payload_bytes / self.messages

    def bounds(self) -> dict[str, Bounds]:
        """The logs, the largest first."""
        shares = [1 / (place + 1) ** self.skew for place in range(self.queues)]
        scale = (self.messages - self.queues) / sum(shares)
        counts = [1 + int(scale * share) for share in shares]
        counts[0] += self.messages - sum(counts)
        return {f"q{place:06d}": Bounds(f"q{place:06d}", 1, count, None, place) for place, count in enumerate(counts)}


class Machines(Struct, frozen=True, kw_only=True):
    """Machines that are rented for the night. These sizes are assumptions."""

    executors: int
    servers: int = 1
    cores: int = 4
    """Of an executor, and of a server."""
    database_cores: int = 16
    database_bytes: float = 2e9
    """What its disks read in a second."""
    network_bytes: float = 1.25e9
    """The bytes that a machine sends or receives in a second: 10 Gbit/s."""
    store_seconds: float = 0.1
    """Until an object store has taken a file, besides the time of its bytes."""
    rows_of_a_batch: int = 1_000_000
    """`--max-rows`."""

    @property
    def all_cores(self) -> int:
        return self.executors * self.cores


class Estimate(Struct, kw_only=True):
    """What a night takes."""

    seconds: float = 0.0
    batches: int = 0
    tasks: int = 0
    files: int = 0
    executor_seconds: float = 0.0
    """Processor time."""
    server_seconds: float = 0.0
    database_seconds: float = 0.0
    driver_seconds: float = 0.0
    lake_bytes: float = 0.0
    waited: dict[str, float] = {}
    """By what the batches waited for longest: for how many seconds."""

    @property
    def hours(self) -> float:
        return self.seconds / SECONDS_OF_AN_HOUR

    @property
    def bound_by(self) -> str:
        return max(self.waited, key=lambda name: self.waited[name], default="driver")

    def rented_core_hours(self, machines: Machines) -> float:
        """Core hours of executors, servers and database, from the first batch to the last, used or not."""
        cores = machines.all_cores + machines.servers * machines.cores + machines.database_cores
        return self.hours * cores

    def wait(self, name: str, seconds: float) -> None:
        """The night goes on when something of this name is done."""
        self.seconds += seconds
        self.waited[name] = self.waited.get(name, 0.0) + seconds


def estimate(night: Night, machines: Machines, figures: Figures) -> Estimate:
    """Archive a night, and verify it."""
    made = Estimate()
    made.driver_seconds = night.queues * figures.bounds_seconds
    made.wait("driver", made.driver_seconds)
    for tasks in _batches(night, machines):
        _archive(made, tasks, night, machines, figures)
    _verify(made, night, machines, figures)
    return made


def _batches(night: Night, machines: Machines) -> Iterator[list[list[QueueStretch]]]:
    """The tasks of each batch."""
    bounds = night.bounds()
    start = dict.fromkeys(bounds, 0)
    while end := next_end(start, bounds, machines.rows_of_a_batch):
        cores = machines.all_cores
        yield packed(split(stretches({queue: start[queue] for queue in end}, end), None, cores), None, cores)
        for queue, last in end.items():
            if last == bounds[queue].last_seq:  # what is done need not be looked at again
                del bounds[queue], start[queue]
            else:
                start[queue] = last


def _archive(
    made: Estimate, tasks: list[list[QueueStretch]], night: Night, machines: Machines, figures: Figures
) -> None:
    size = night.bytes_of_a_message
    durations, files, queues, messages = [], 0, 0, 0
    for task in tasks:
        rows = sum(map(len, task))
        written = sum(max(1, math.ceil(len(part) * size * figures.lake_byte / TARGET_BYTES)) for part in task)
        busy = figures.task_seconds + figures.executor.seconds(len(task), rows, rows * size)
        durations.append(busy + written * machines.store_seconds)
        made.executor_seconds += busy
        files, queues, messages = files + written, queues + len(task), messages + rows
    payload = messages * size
    server = figures.server.seconds(queues, messages, payload)
    database = figures.database.seconds(queues, messages, payload)
    made.server_seconds += server
    made.database_seconds += database
    made.lake_bytes += payload * figures.lake_byte
    made.tasks, made.files, made.batches = made.tasks + len(tasks), made.files + files, made.batches + 1
    _wait(made, {
        "executors": _longest(durations, machines.all_cores),
        "servers": server / (machines.servers * machines.cores),
        "database": max(database / machines.database_cores, payload / machines.database_bytes),
        "network": _network(machines, payload, payload * figures.lake_byte),
    })  # fmt: skip
    commit = figures.commit_seconds + files * figures.file_seconds
    made.driver_seconds += commit
    made.wait("driver", commit)


def _verify(made: Estimate, night: Night, machines: Machines, figures: Figures) -> None:
    """Compare seqs and ids of lake and log, in one go."""
    mine = figures.verify.seconds(night.queues, night.messages, 0)
    server = figures.verify_server.seconds(night.queues, night.messages, 0)
    made.executor_seconds += mine
    made.server_seconds += server
    _wait(made, {
        "executors": mine / machines.all_cores, "servers": server / (machines.servers * machines.cores),
    })  # fmt: skip


def _wait(made: Estimate, waits: Mapping[str, float]) -> None:
    name = max(waits, key=lambda one: waits[one])
    made.wait(name, waits[name])


def _network(machines: Machines, taken: float, written: float) -> float:
    """What passes through the servers, and through the executors, which take and write at the same time."""
    return max(taken / machines.servers, max(taken, written) / machines.executors) / machines.network_bytes


def _longest(durations: list[float], cores: int) -> float:
    """Until the last task has ended, when each core takes the next one."""
    free = [0.0] * min(cores, len(durations))
    for one in durations:
        heapq.heapreplace(free, free[0] + one)
    return max(free, default=0.0)


def enough_servers(night: Night, machines: Machines, figures: Figures) -> int:
    """The fewest servers with which neither they nor their network are what a night waits for."""
    servers = 1
    while servers < machines.executors:
        made = estimate(night, Machines(executors=machines.executors, servers=servers), figures)
        if made.waited.get("servers", 0.0) + made.waited.get("network", 0.0) < made.seconds / 10:
            break
        servers *= 2
    return min(servers, machines.executors)
