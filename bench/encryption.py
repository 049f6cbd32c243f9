"""`skep bench encryption`: messages through an encrypted queue, beside the same through a plain one, in the same run.

One server, a process of its own on a fresh store with fsync on; the loader is another one, kept to one core. A message counts
when it has been pushed, popped and acked. Rounds alternate, and the median round counts.
"""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import structlog
from msgspec import Struct

from bench import scripts
from bench.http import ALL_IT_CAN, CALLERS, SIZE, Subject, driven, fresh, serving
from bench.loader import Load
from bench.report import Report, machine, middle
from skep.crypto.master import new_master_line
from skep.testing.postgres import running_postgres

TARGETS = {"encrypted_of_plain": ">= 0.80"}
BATCH = 100
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rounds: int
    messages: int


QUICK = Scale(rounds=3, messages=30_000)
FULL = Scale(rounds=7, messages=150_000)


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the servers of the stores, one after the other."""
    scale = QUICK if quick else FULL
    report = Report("encryption", machine())
    report.notes["load"] = f"payloads of {SIZE} bytes in batches of {BATCH} over {CALLERS} connections, fsync on"
    keys = {"BENCH_MASTER_KEY": new_master_line("bench"), "SKEP_ENCRYPTION_MASTER_KEYS": "env:BENCH_MASTER_KEY"}
    environment = {**ALL_IT_CAN, **keys}
    with TemporaryDirectory(prefix="skep-bench-") as folder:
        if "sqlite" in stores:
            with serving(f"{folder}/served.db", Path(folder), environment) as at:
                await measure(Subject("sqlite", *at, ""), scale, report)
        if "postgres" in stores:
            with running_postgres() as server, serving(server.create_database(), Path(folder), environment) as at:
                await measure(Subject("postgres", *at, ""), scale, report)
    return report


async def measure(subject: Subject, scale: Scale, report: Report) -> None:
    """Pushing alone, and pushing, popping and acking at once, encrypted and not."""
    started = time.perf_counter()
    for name, script in (("push", scripts.push), ("cycle", scripts.cycle)):
        rates: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(scale.rounds):
            for is_encrypted, found in rates.items():
                queue = fresh()
                configure(subject.port, queue, is_encrypted)
                load = Load(script, (queue, BATCH, SIZE), CALLERS, messages=scale.messages)
                found.append((await driven(subject, load)).messages_per_second)
        plain, encrypted = rates.values()
        report.rates[f"{subject.name}.plain_{name}"] = middle(plain)
        report.rates[f"{subject.name}.encrypted_{name}"] = middle(encrypted)
        ratio = middle([a / b for a, b in zip(encrypted, plain, strict=True)])
        label = "encrypted_of_plain" if name == "cycle" else "encrypted_of_plain_push"
        report.ratios[f"{subject.name}.{label}"] = ratio
    log.info("measured", store=subject.name, seconds=round(time.perf_counter() - started, 1))


def configure(port: int, queue: str, is_encrypted: bool) -> None:
    """Make the queue."""
    body = msgspec.json.encode({"queue": queue, "settings": {"encryption_enabled": is_encrypted}})
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/configure", body, headers)
    with urllib.request.urlopen(request, timeout=10):  # noqa: S310 - it is our own
        pass
