"""`skep bench night`: measure, simulate, and tell what a night takes."""

from __future__ import annotations

import asyncio

import msgspec
from rich.table import Table

from bench.night.measure import FULL, QUICK, measured
from bench.night.model import Estimate, Figures, Machines, Night, enough_servers, estimate
from bench.report import Report, machine, shown

TARGETS = {"speedup_10_over_1": "-", "speedup_100_over_1": "-"}
EXECUTORS = (1, 10, 100)
COLUMNS = {
    "hours": "hours", "core_hours": "core hours", "rented_core_hours": "rented core hours", "servers": "servers",
    "files": "files", "tasks": "tasks", "driver_minutes": "driver, min", "lake_gigabytes": "lake, GB",
}  # fmt: skip


async def run(night: Night, quick: bool) -> Report:
    """Measure this machine, and simulate the night."""
    figures = await asyncio.to_thread(measured, "postgres", QUICK if quick else FULL)
    return simulated(night, figures)


def simulated(night: Night, figures: Figures) -> Report:
    """The report of a night."""
    report = Report("night", machine())
    for name, value in measured_rates(figures).items():
        report.rates[f"measured.{name}"] = value
    hours = {}
    for executors in EXECUTORS:
        machines = Machines(executors=executors, servers=enough_servers(night, Machines(executors=executors), figures))
        made = estimate(night, machines, figures)
        hours[executors] = made.hours
        for name, value in _told(made, machines).items():
            report.rates[f"{executors}.{name}"] = value
        report.notes[f"{executors} executors"] = f"most of the time is spent waiting for: {made.bound_by}"
    for executors in EXECUTORS[1:]:
        report.ratios[f"speedup_{executors}_over_1"] = hours[1] / hours[executors]
    about = Machines(executors=1)
    report.notes["night"] = (
        f"{night.queues:,} queues, {night.messages:,} messages, {night.payload_bytes / 1e9:,.0f} GB of payloads"
    )
    report.notes["assumed"] = (
        f"executors and servers of {about.cores} cores, a database of {about.database_cores} "
        f"whose disks read {about.database_bytes / 1e9:.0f} GB/s, "
        f"{about.network_bytes * 8 / 1e9:.0f} Gbit/s for each machine, {about.store_seconds} s for a file in the object store, "
        f"--max-rows {about.rows_of_a_batch:,}, sizes of queues by Zipf's law"
    )
    report.notes["figures"] = msgspec.json.encode(figures).decode()
    return report


def measured_rates(figures: Figures) -> dict[str, float]:
    """What was measured, in microseconds of processor time, and for the driver in milliseconds."""
    found: dict[str, float] = {}
    for name in ("executor", "server", "database"):
        work = getattr(figures, name)
        found |= {
            f"{name}_us_a_message": work.message * 1e6, f"{name}_us_a_kilobyte": work.byte * 1e9,
            f"{name}_us_a_queue": work.queue * 1e6,
        }  # fmt: skip
    return found | {
        "verify_us_a_message": (figures.verify.message + figures.verify_server.message) * 1e6,
        "task_ms": figures.task_seconds * 1e3, "commit_ms": figures.commit_seconds * 1e3,
        "file_ms": figures.file_seconds * 1e3, "bounds_ms_a_queue": figures.bounds_seconds * 1e3,
        "lake_of_payload_bytes": figures.lake_byte,
    }  # fmt: skip


def _told(made: Estimate, machines: Machines) -> dict[str, float]:
    busy = made.executor_seconds + made.server_seconds + made.database_seconds + made.driver_seconds
    return {
        "hours": made.hours, "core_hours": busy / 3_600, "rented_core_hours": made.rented_core_hours(machines),
        "servers": machines.servers, "files": made.files, "tasks": made.tasks,
        "driver_minutes": made.driver_seconds / 60, "lake_gigabytes": made.lake_bytes / 1e9,
    }  # fmt: skip


def table_of_nights(report: Report) -> Table:
    """A line for each number of executors, below what was measured."""
    table = Table(title="skep bench night", title_justify="left")
    table.add_column("executors", justify="right")
    for title in COLUMNS.values():
        table.add_column(title, justify="right")
    for executors in EXECUTORS:
        table.add_row(str(executors), *(shown(report.rates[f"{executors}.{name}"]) for name in COLUMNS))
    return table
