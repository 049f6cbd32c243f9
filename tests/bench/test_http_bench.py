"""`skep bench http` runs, measures what it says, and prints one object."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from skep.bench import http as bench
from skep.bench import scripts
from skep.bench.loader import Load, drive
from skep.bench.null_server import ANSWER
from skep.bench.report import Report, machine
from skep.errors import Code, SkepError
from skep.http.errors import error_answer

RATIOS = ("http_of_engine_push_b100", "single_push_64_of_null_route", "arrow_over_json_push")
TINY = msgspec.structs.replace(bench.QUICK, rounds=1, seconds=0.2, messages=400, arrow_messages=1_000, connections=(2,))


async def test_what_an_overloaded_server_refuses_is_asked_once_more() -> None:
    refusal = error_answer(SkepError(Code.OVERLOADED, "not now", retry_after_seconds=0)).body
    assert isinstance(refusal, bytes)
    head = b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: %d\r\n\r\n" % len(refusal)
    asked: list[bytes] = []

    async def refuse_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.read(10_000):
            asked.append(request)
            writer.write(head + refusal if len(asked) == 1 else ANSWER)
        writer.close()

    server = await asyncio.start_server(refuse_first, "127.0.0.1", 0)
    async with server:
        load = Load(scripts.push, ("orders", 1, 100), connections=1, messages=2)
        driven = await asyncio.to_thread(drive, server.sockets[0].getsockname()[1], load)

    assert (driven.messages, driven.requests, len(driven.latencies)) == (2, 2, 2)
    assert asked[0] == asked[1]
    assert len(asked) > driven.requests


@pytest.mark.slow
async def test_every_step_reports_its_rates_and_ratios(tmp_path: Path) -> None:
    report = Report("http", machine())

    with bench.serving(str(tmp_path / "served.db"), tmp_path) as (port, pid):
        await bench.measure(bench.Subject("sqlite", port, pid, str(tmp_path / "engine.db")), TINY, report)

    assert set(report.ratios) == {f"sqlite.{name}" for name in RATIOS}
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
    assert {"sqlite.idle_memory_mib", "sqlite.b100.c2.cycle"} <= set(report.rates)
    assert "p99" in report.notes["sqlite.b100.c2.push"]


@pytest.mark.slow
def test_quick_json_is_one_object_with_every_ratio() -> None:
    command = [sys.executable, "-m", "skep", "bench", "http", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)

    (line,) = done.stdout.splitlines()
    assert set(json.loads(line)["ratios"]) == {f"{store}.{name}" for store in ("sqlite", "postgres") for name in RATIOS}
