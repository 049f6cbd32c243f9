"""`skep bench soak`: very many messages through one server, and what it weighs after each tenth of them.

Messages come as Arrow streams and leave as JSON. What is settled is deleted a second later, so the store does not grow with
what went through, and neither may the server: its memory after the last tenth is compared with that after the first. Pages
of the store's file that are mapped into it are counted apart: the system takes them back when it needs them.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import structlog
from msgspec import Struct

from bench import scripts
from bench.http import arrow_stream, fresh, serving
from bench.loader import Driven, Load, Script, drive
from bench.report import Report, machine
from skep.testing.postgres import running_postgres
from skep.wire.log import ARROW

TARGETS = {"memory_last_over_first": "<= 1.10"}
MESSAGES = 5_000_000
QUICK_MESSAGES = 200_000
TENTHS = 10
CONNECTIONS = 4
STREAM_MESSAGES = 5_000
POP_MESSAGES = 500
KEPT_SECONDS = 1.0
LOOK_SECONDS = 0.5
MEBIBYTE = 1024 * 1024
KIBIBYTES_PER_MEBIBYTE = 1024
log = structlog.get_logger("bench")


class Weight(Struct, frozen=True):
    """What a server weighs: memory of its own, pages of files mapped into it, both at their highest, and the files."""

    memory_mib: float
    mapped_mib: float
    highest_mib: float
    files_mib: float


async def run(stores: list[str], messages: int) -> Report:
    """Soak a server on each of the stores."""
    report = Report("soak", machine())
    report.notes["load"] = (
        f"{messages:,} messages of 300 bytes, pushed by Arrow, popped and acked as JSON in batches of {POP_MESSAGES}"
    )
    with TemporaryDirectory(prefix="skep-bench-") as name:
        folder = Path(name)
        if "sqlite" in stores:
            with serving(f"{folder}/served.db", folder) as (port, pid):
                await soak("sqlite", port, pid, folder, messages, report)
        if "postgres" in stores:
            with running_postgres() as server, serving(server.create_database(), folder) as (port, pid):
                await soak("postgres", port, pid, folder, messages, report)
    return report


async def soak(store: str, port: int, pid: int, folder: Path, messages: int, report: Report) -> None:
    """Push, pop and ack so many messages, and weigh the server at each tenth."""
    queue = fresh()
    stream = arrow_stream(STREAM_MESSAGES)
    report.rates[f"{store}.idle_memory_mib"] = weigh(pid, folder).memory_mib
    found: list[Weight] = []
    started = time.perf_counter()
    load = Load(through, (queue, stream, STREAM_MESSAGES), CONNECTIONS, messages=messages)
    driving = asyncio.create_task(asyncio.to_thread(drive, port, load))
    while not driving.done():
        await asyncio.wait([driving], timeout=LOOK_SECONDS)
        done = messages if driving.done() else await asyncio.to_thread(completed, port, queue)
        while len(found) < done * TENTHS // messages:
            found.append(weigh(pid, folder))
            report.rates[f"{store}.memory_mib.tenth_{len(found):02d}"] = found[-1].memory_mib
            log.info("soaked", store=store, messages=done, **msgspec.structs.asdict(found[-1]))
    await driving
    report.rates[f"{store}.messages_per_second"] = messages / (time.perf_counter() - started)
    report.ratios[f"{store}.memory_last_over_first"] = found[-1].memory_mib / found[0].memory_mib
    for name in ("mapped_mib", "highest_mib", "files_mib"):
        report.notes[f"{store}.{name}"] = ", ".join(f"{getattr(one, name):.0f}" for one in found)


def through(number: int, driven: Driven, queue: str, stream: bytes, pushed: int) -> Script:  # noqa: ARG001 - as all scripts
    """Push a stream, pop and ack as many messages, and so on: what waits in between is bounded."""
    settings = {"completed_retention_seconds": KEPT_SECONDS}
    configure = msgspec.json.encode({"queue": queue, "settings": settings})
    scripts.expect(200, *(yield scripts.request("POST", "/api/v1/configure", configure)))
    push = scripts.request("POST", f"/api/v1/push?queue={queue}", stream, ARROW)
    while True:
        scripts.expect(201, *(yield push))
        owed = pushed
        while owed > 0:
            batch = min(owed, POP_MESSAGES)
            status, body = yield scripts.request("GET", f"/api/v1/pop/queue/{queue}?batch={batch}&wait=true&timeout=5")
            if status == 204:  # the others have them all just now
                continue
            scripts.expect(200, status, body)
            acks = scripts.acks_of(body)
            scripts.expect(200, *(yield scripts.ack(acks)))
            owed -= len(acks)
            driven.messages += len(acks)


def completed(port: int, queue: str) -> int:
    """How many messages went through so far."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/resources/queues/{queue}", timeout=30) as answer:
            groups = msgspec.json.decode(answer.read())["groups"]
    except OSError:  # it is not made yet, or the server is busy
        return 0
    return sum(group["completed"] for group in groups)


def weigh(pid: int, folder: Path) -> Weight:
    """The server's memory, and the files beside it."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    own, mapped, highest = (_mib(status, name) for name in ("RssAnon", "RssFile", "VmHWM"))
    files = sum(path.stat().st_size for path in folder.glob("served.db*"))
    return Weight(own, mapped, highest, round(files / MEBIBYTE, 1))


def _mib(status: str, name: str) -> float:
    return round(int(status.partition(f"{name}:")[2].split()[0]) / KIBIBYTES_PER_MEBIBYTE, 1)
