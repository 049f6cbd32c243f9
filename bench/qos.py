"""`skep bench qos`: single pushes that are answered at once (QoS 0), beside those that wait for the disk (QoS 1), in the same run.

The ratio is that of one caller who waits for each answer before the next push, one message a request: what a producer feels. For
64 connections QoS 1 pushes are put together by the engine, so the ratio is smaller there. It ends when all is stored.
"""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import scripts
from bench.http import SIZE, Subject, driven, fresh, latency, serving
from bench.loader import Driven, Load
from bench.report import Report, machine, middle
from skep.testing.postgres import running_postgres

TARGETS = {"qos0_over_qos1_single": ">= 5.00"}
CONNECTIONS = (1, 64)
BUFFER_MS, BUFFER_MAX = 100, 100
ROUNDS, SECONDS = 5, 4.0
QUICK_ROUNDS, QUICK_SECONDS = 3, 1.5


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the servers of the stores, one after the other."""
    report = Report("qos", machine())
    report.notes["load"] = (
        f"one message of {SIZE} bytes a request, fsync on; QoS 0 with bufferMs={BUFFER_MS}, bufferMax={BUFFER_MAX}"
    )
    with TemporaryDirectory(prefix="skep-bench-") as folder:
        if "sqlite" in stores:
            with serving(f"{folder}/served.db", Path(folder)) as (port, pid):
                await measure(Subject("sqlite", port, pid, ""), quick, report)
        if "postgres" in stores:
            with running_postgres() as server, serving(server.create_database(), Path(folder)) as (port, pid):
                await measure(Subject("postgres", port, pid, ""), quick, report)
    return report


async def measure(subject: Subject, quick: bool, report: Report) -> None:
    """Both kinds of pushes in turn, from one connection and from many."""
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    await driven(subject, Load(scripts.cycle, (fresh(), 100, SIZE), 4, messages=2_000))
    for connections in CONNECTIONS:
        stored, answered = [], []
        for _ in range(rounds):
            waited = await driven(subject, Load(scripts.push, (fresh(), 1, SIZE), connections, seconds=seconds))
            at_once = Load(scripts.push_buffered, (fresh(), SIZE, BUFFER_MS, BUFFER_MAX), connections, seconds=seconds)
            held = await driven(subject, at_once)
            stored.append(waited.requests_per_second)
            answered.append(stored_rate(subject, held))
            report.notes[f"{subject.name}.c{connections}.qos1"] = latency(waited)
            report.notes[f"{subject.name}.c{connections}.qos0"] = latency(held)
        name = "single" if connections == 1 else f"c{connections}"
        report.rates[f"{subject.name}.qos1_{name}"] = middle(stored)
        report.rates[f"{subject.name}.qos0_{name}"] = middle(answered)
        ratio = middle([a / b for a, b in zip(answered, stored, strict=True)])
        report.ratios[f"{subject.name}.qos0_over_qos1_{name}"] = ratio


def stored_rate(subject: Subject, held: Driven) -> float:
    """Messages per second until all of them are stored: what is only taken and not yet stored does not count."""
    started = time.perf_counter()
    while (figures := _buffers(subject))["pending"]:
        time.sleep(0.01)
    if figures["lost"]:
        raise RuntimeError(f"{figures['lost']} messages were lost")
    return held.messages / (held.messages / held.messages_per_second + time.perf_counter() - started)


def _buffers(subject: Subject) -> dict[str, int]:
    with urllib.request.urlopen(f"http://127.0.0.1:{subject.port}/api/v1/status/buffers", timeout=10) as answer:
        return dict(json.loads(answer.read())["qos0"])
