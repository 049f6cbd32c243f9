"""`skep bench night`: the simulation adds up, and the bench measures what it says."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from bench.night import run as bench
from bench.night.model import Figures, Machines, Night, Work, enough_servers, estimate
from bench.report import Report

FIGURES = Figures(
    executor=Work(queue=0.01, message=4e-6, byte=4e-9), server=Work(queue=0.001, message=1e-6, byte=1e-9),
    database=Work(message=1e-6, byte=5e-10), verify=Work(message=1e-6), verify_server=Work(message=5e-7),
    task_seconds=0.05, commit_seconds=0.05, file_seconds=0.0005, bounds_seconds=0.0005, lake_byte=0.5,
)  # fmt: skip
NIGHT = Night(queues=200, messages=20_000_000, payload_bytes=20_000_000_000)


def test_each_message_is_archived_once_whatever_the_machines() -> None:
    for executors in (1, 7, 50):
        made = estimate(NIGHT, Machines(executors=executors), FIGURES)
        assert made.lake_bytes == pytest.approx(NIGHT.payload_bytes * FIGURES.lake_byte)
        assert made.batches == 20
        assert made.files >= NIGHT.queues
        least = NIGHT.messages * (FIGURES.executor.message + FIGURES.verify.message)
        least += NIGHT.payload_bytes * FIGURES.executor.byte
        assert made.executor_seconds >= least
        assert made.seconds == pytest.approx(sum(made.waited.values()))
        assert made.seconds >= made.executor_seconds / (executors * 4)


def test_one_executor_takes_as_long_as_its_cores_need() -> None:
    made = estimate(NIGHT, Machines(executors=1, store_seconds=0.0), FIGURES)
    assert made.bound_by == "executors"
    assert made.seconds == pytest.approx(made.executor_seconds / 4 + made.driver_seconds, rel=0.15)


def test_more_executors_are_never_slower_and_end_at_what_they_share() -> None:
    hours = [estimate(NIGHT, Machines(executors=number), FIGURES).hours for number in (1, 2, 10, 100, 1_000)]
    assert all(more <= fewer * 1.01 for fewer, more in pairwise(hours))  # they make a few more files
    network = NIGHT.payload_bytes / Machines(executors=1).network_bytes / 3_600
    assert hours[-1] >= network
    assert estimate(NIGHT, Machines(executors=100), FIGURES).bound_by == "network"


def test_servers_are_added_until_others_are_waited_for() -> None:
    machines = Machines(executors=100)
    servers = enough_servers(NIGHT, machines, FIGURES)
    assert 1 < servers <= 100
    with_enough = estimate(NIGHT, msgspec.structs.replace(machines, servers=servers), FIGURES)
    assert with_enough.hours < estimate(NIGHT, machines, FIGURES).hours
    assert enough_servers(NIGHT, Machines(executors=1), FIGURES) == 1


def test_queues_have_all_messages_whatever_their_sizes() -> None:
    for skew in (0.0, 1.0, 2.0):
        bounds = Night(queues=1_000, messages=1_000_000, payload_bytes=1, skew=skew).bounds()
        assert sum(one.last_seq for one in bounds.values()) == 1_000_000
        assert min(one.last_seq for one in bounds.values()) >= 1


def test_the_report_has_a_row_for_each_number_of_executors() -> None:
    report = bench.simulated(NIGHT, FIGURES)
    assert {f"{executors}.{name}" for executors in bench.EXECUTORS for name in bench.COLUMNS} <= set(report.rates)
    assert report.ratios["speedup_10_over_1"] > 3
    assert msgspec.json.decode(report.notes["figures"], type=Figures) == FIGURES
    assert bench.table_of_nights(report).row_count == len(bench.EXECUTORS)


PROGRAM = """
import msgspec
from bench.night import measure
from bench.night.model import Night
from bench.night.run import simulated

if __name__ == "__main__":
    tiny = measure.Scale(small=50_000, large=5_000, queues=20, rounds=1, tasks=8, files=16)
    print(simulated(Night(queues=100, messages=10**6, payload_bytes=10**9), measure.measured("postgres", tiny)).json())
"""


@pytest.mark.slow
def test_the_parts_of_a_night_are_measured() -> None:
    import subprocess
    import sys

    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=True)
    report = msgspec.json.decode(run.stdout.splitlines()[-1], type=Report)
    figures = msgspec.json.decode(report.notes["figures"], type=Figures)
    assert min(figures.executor.message, figures.executor.byte, figures.executor.queue) > 0
    assert min(figures.server.message + figures.server.byte, figures.commit_seconds, figures.task_seconds) > 0
    assert 0.1 < figures.lake_byte < 1.5
    assert report.rates["1.hours"] > report.rates["100.hours"] > 0
