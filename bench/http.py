"""`skep bench http`: a running server under load, beside the same engine without HTTP in the same run.

The server is a process of its own on a fresh store with fsync on; the loader is another one, kept to one core. Rounds of what
is compared alternate, and the median round counts.
"""

from __future__ import annotations

import asyncio
import io
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import structlog
from msgspec import Struct

from bench import load, scripts
from bench.loader import Driven, Load, drive
from bench.report import Report, machine, middle, percentile
from skep.server.compose import open_engine
from skep.testing.postgres import running_postgres

TARGETS = {
    "http_of_engine_push_b100": ">= 0.60",
    "single_push_64_of_null_route": "",
    "arrow_over_json_push": ">= 5.00",
}
CALLERS = 8
SINGLE_CONNECTIONS = 64
SIZE = 300
START_SECONDS = 30
STREAM_MESSAGES = 50_000
MEBIBYTE = 1024 * 1024
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rounds: int
    seconds: float
    messages: int
    arrow_messages: int
    batches: tuple[int, ...]
    connections: tuple[int, ...]


QUICK = Scale(rounds=2, seconds=1.5, messages=40_000, arrow_messages=200_000, batches=(100,), connections=(64,))
FULL = Scale(
    rounds=3, seconds=5, messages=200_000, arrow_messages=1_000_000, batches=(1, 10, 100, 1000),
    connections=(1, 8, 64, 256),
)  # fmt: skip


ALL_IT_CAN = {"SKEP_ADMISSION_ENABLED": "false"}
"""A loader that asks for all that a server can do is not to be refused or put off: what it does with more, `skep bench overload` tells."""


class Subject(Struct, frozen=True):
    """A server under test, and a second store of the same kind for the engine alone."""

    name: str
    port: int
    pid: int
    engine_store: str


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the servers of the stores, one after the other."""
    scale = QUICK if quick else FULL
    report = Report("http", machine())
    report.notes["load"] = f"payloads of {SIZE} bytes, fsync on; the loader is one process on one core"
    with TemporaryDirectory(prefix="skep-bench-") as folder:
        if "sqlite" in stores:
            with serving(f"{folder}/served.db", Path(folder), ALL_IT_CAN) as (port, pid):
                await measure(Subject("sqlite", port, pid, f"{folder}/engine.db"), scale, report)
        if "postgres" in stores:
            with (
                running_postgres() as server,
                serving(server.create_database(), Path(folder), ALL_IT_CAN) as (port, pid),
            ):
                await measure(Subject("postgres", port, pid, server.create_database()), scale, report)
    return report


@contextmanager
def serving(store: str, folder: Path, environment: Mapping[str, str] | None = None) -> Iterator[tuple[int, int]]:
    """`skep serve` as a process of its own, with these variables too: its port and its pid."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "skep", "serve", "--store", store, "--port", str(port)]
    with (folder / "server.log").open("ab") as output:
        env = {**os.environ, **(environment or {})}
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=output, stderr=output)
    try:
        wait_until_ready(process, port, folder / "server.log")
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], port: int, output: Path) -> None:
    """Return once the server answers; raise with its own words when it does not."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1):
                return
        except OSError:
            if process.poll() is not None:
                break
            time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {output.read_text(errors='replace')[-2000:]}")


async def measure(subject: Subject, scale: Scale, report: Report) -> None:
    """All that is measured of one server."""
    report.rates[f"{subject.name}.idle_memory_mib"] = memory_mib(subject)
    for step in STEPS:
        started = time.perf_counter()
        await step(subject, scale, report)
        log.info("measured", store=subject.name, step=step.__name__, seconds=round(time.perf_counter() - started, 1))


async def warm_up(subject: Subject, scale: Scale, report: Report) -> None:  # noqa: ARG001 - a step like the others
    """Connections, plans and caches, before anything is timed."""
    await driven(subject, Load(scripts.cycle, (fresh(), 100, SIZE), CALLERS, messages=2_000))


async def push_of_engine(subject: Subject, scale: Scale, report: Report) -> None:
    """Pushing in batches of 100 through HTTP, beside the engine alone."""
    through, alone = [], []
    async with open_engine(subject.engine_store) as engine:
        for _ in range(scale.rounds):
            items = load.messages(load.fresh_queue(), scale.messages, 16, SIZE)
            alone.append(len(items) / await load.push_all(engine, items, 100, CALLERS))
            pushed = await driven(subject, Load(scripts.push, (fresh(), 100, SIZE), CALLERS, messages=scale.messages))
            through.append(pushed.messages_per_second)
    report.rates[f"{subject.name}.engine_push_b100"] = middle(alone)
    report.rates[f"{subject.name}.http_push_b100"] = middle(through)
    ratio = middle([a / b for a, b in zip(through, alone, strict=True)])
    report.ratios[f"{subject.name}.http_of_engine_push_b100"] = ratio


async def single_of_null(subject: Subject, scale: Scale, report: Report) -> None:
    """Single pushes from 64 connections, beside a route that does nothing."""
    single, null = [], []
    for _ in range(scale.rounds):
        nothing = await driven(subject, Load(scripts.nothing, (), SINGLE_CONNECTIONS, seconds=scale.seconds))
        pushed = await driven(
            subject, Load(scripts.push, (fresh(), 1, SIZE), SINGLE_CONNECTIONS, seconds=scale.seconds)
        )
        null.append(nothing.requests_per_second)
        single.append(pushed.requests_per_second)
        report.notes[f"{subject.name}.single_push_64"] = latency(pushed)
    report.rates[f"{subject.name}.null_route_64"] = middle(null)
    report.rates[f"{subject.name}.single_push_64"] = middle(single)
    ratio = middle([a / b for a, b in zip(single, null, strict=True)])
    report.ratios[f"{subject.name}.single_push_64_of_null_route"] = ratio


async def arrow_over_json(subject: Subject, scale: Scale, report: Report) -> None:
    """Very many messages as Arrow streams, beside the same as JSON in batches of 100; two connections each."""
    as_arrow, as_json = [], []
    stream = arrow_stream(STREAM_MESSAGES)
    for _ in range(scale.rounds):
        text = await driven(subject, Load(scripts.push, (fresh(), 100, SIZE), 2, messages=scale.arrow_messages // 5))
        columns = Load(scripts.push_stream, (fresh(), STREAM_MESSAGES, stream), 2, messages=scale.arrow_messages)
        as_json.append(text.messages_per_second)
        as_arrow.append((await driven(subject, columns)).messages_per_second)
    report.rates[f"{subject.name}.json_push"] = middle(as_json)
    report.rates[f"{subject.name}.arrow_push"] = middle(as_arrow)
    ratio = middle([a / b for a, b in zip(as_arrow, as_json, strict=True)])
    report.ratios[f"{subject.name}.arrow_over_json_push"] = ratio


async def matrix(subject: Subject, scale: Scale, report: Report) -> None:
    """Push, pop+ack, and all together, by batch and connections."""
    for connections in scale.connections:
        for batch in scale.batches:
            label = f"{subject.name}.b{batch}.c{connections}"
            queue = fresh()
            goal = min(scale.messages, max(2_000, batch * connections * 20))
            pushed = await driven(subject, Load(scripts.push, (queue, batch, SIZE), connections, messages=goal))
            popped = await driven(subject, Load(scripts.pop_and_ack, (queue, batch), connections, messages=goal))
            both = Load(scripts.cycle, (fresh(), batch, SIZE), max(2, connections), messages=goal)
            cycled = await driven(subject, both)
            for verb, figures in (("push", pushed), ("pop_ack", popped), ("cycle", cycled)):
                report.rates[f"{label}.{verb}"] = figures.messages_per_second
                report.notes[f"{label}.{verb}"] = latency(figures)


STEPS = (warm_up, push_of_engine, single_of_null, arrow_over_json, matrix)


async def driven(subject: Subject, wanted: Load) -> Driven:
    """Run a load without standing in the way of this loop."""
    return await asyncio.to_thread(drive, subject.port, wanted)


def fresh() -> str:
    """A queue nobody has used."""
    return load.fresh_queue().name


def memory_mib(subject: Subject) -> float:
    """The server's resident memory."""
    pages = int(Path(f"/proc/{subject.pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


def latency(figures: Driven) -> str:
    """Requests per second, and how long they took."""
    shares = [f"p{share * 100:g} {percentile(figures.latencies, share) * 1e3:.2f} ms" for share in (0.5, 0.99, 0.999)]
    return f"{figures.requests_per_second:,.0f} requests/s, {', '.join(shares)}"


def arrow_stream(count: int) -> bytes:
    """An Arrow stream of so many messages."""
    body = load.payload(SIZE).decode()
    batch = pa.record_batch(
        {"payload": pa.array([body] * count), "partition": pa.array([f"customer-{n % 16:06d}" for n in range(count)])}
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
