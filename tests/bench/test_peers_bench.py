"""`skep bench peers` measures every system that is installed, says how to get the others, and finds what is lost."""

from __future__ import annotations

import asyncio
import shutil
from importlib.util import find_spec
from typing import get_args

import msgspec
import pytest

from bench import app
from bench.peers import run as bench
from bench.peers import syncs
from bench.peers.loads import Numbers, Outcome
from bench.peers.systems import STARTERS
from bench.size.cases import CASES

TINY = msgspec.structs.replace(bench.QUICK, rounds=1, seconds=0.2, messages=300, steady_seconds=0.3, synced_pushes=3)
FIGURES = (
    "single", "batch", "cycle", "cycle_32", "latency_p50_ms", "latency_p99_ms", "cpu_s_per_100k", "cpu_percent_at_500",
)  # fmt: skip


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.mark.parametrize(
    ("system", "setting"),
    [
        ("table", "synchronous_commit=on"),
        pytest.param("redis", "appendfsync always", marks=[needs("redis-server"), pytest.mark.slow]),
        pytest.param("nats", "sync_interval always", marks=[needs("nats-server"), pytest.mark.slow]),
        pytest.param("rabbitmq", "publisher confirms", marks=[needs("rabbitmq-server"), pytest.mark.slow]),
        pytest.param(
            "pgmq",
            "synchronous_commit=on",
            marks=[pytest.mark.skipif(find_spec("pgmq") is None, reason="no pgmq"), pytest.mark.slow],
        ),
    ],
)
async def test_a_peer_takes_every_load_durably_and_loses_nothing(system: str, setting: str) -> None:
    report = await asyncio.to_thread(bench.measure, [system], TINY)
    if system == "nats" and "missing.nats" in report.notes:
        pytest.skip("the NATS of this machine is too old to sync every message")

    assert {f"{figure}.{system}" for figure in FIGURES} <= set(report.rates)
    assert report.rates[f"lost.{system}"] == 0
    assert setting in report.notes[f"durable.{system}"]
    assert report.rates.get(f"syncs_per_push.{system}", 1.0) >= 1
    assert bench.table_of_systems(report).row_count == 1


@pytest.mark.slow
@needs("redis-server")
async def test_skep_stands_beside_redis_with_the_ratios_of_the_two() -> None:
    report = await asyncio.to_thread(bench.measure, ["sqlite", "redis"], TINY)

    assert set(report.ratios) == {"cycle_sqlite_over_redis", "cycle_32_sqlite_over_redis"}
    assert report.rates["lost.sqlite"] == report.rates["lost.redis"] == 0


async def test_a_system_that_is_not_installed_is_left_out_and_the_report_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    report = await asyncio.to_thread(bench.measure, ["sqlite", "redis"], TINY)

    assert "apt-get install redis-server" in report.notes["missing.redis"]
    assert "apt-get install strace" in report.notes["durable.sqlite"]
    assert report.rates["cycle.sqlite"] > 0
    assert report.rates["disk.sync_ms"] > 0
    assert "the data of all systems is on" in report.notes["disk"]
    assert report.ratios == {}


@pytest.mark.parametrize(("option", "known"), [(app.Systems, STARTERS), (app.Cases, CASES)])
def test_the_command_offers_all_that_the_bench_knows(option: object, known: dict[str, object]) -> None:
    names, _ = get_args(get_args(option)[0])
    assert set(get_args(names)) == set(known)


def test_messages_that_do_not_come_back_and_those_that_come_twice_are_counted() -> None:
    numbers = Numbers()
    first = numbers.take(3)
    numbers.pushed = 3
    numbers.came([first, first + 1, first + 1])

    told = numbers.tell(Outcome())

    assert not numbers.all_came
    assert (told.pushed, told.lost, told.repeated) == (3, 1, 1)


def test_syncs_are_added_up_over_the_calls_that_strace_counted() -> None:
    table = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 90.00    0.000048          48        30           fdatasync
 10.00    0.000005           5         2         1 fsync
------ ----------- ----------- --------- --------- ----------------
100.00    0.000053          48        32         1 total
"""
    assert syncs.total(table) == 32
