"""The disk that all systems write to: what a sync costs there, and whether it is a disk at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil

from bench.report import Report, middle

SYNCS = 100
WRITTEN = b"x" * 4096
IN_MEMORY = ("tmpfs", "ramfs")


def tell_disk(folder: Path, report: Report) -> None:
    """Say on what file system the run's data lies, and how long a sync of 4 KiB takes there."""
    report.rates["disk.sync_ms"] = sync_ms(folder)
    kind = file_system(folder)
    report.notes["disk"] = f"the data of all systems is on {kind}" + (
        ", which is memory: syncs cost nothing there; let TMPDIR name a folder on a disk" if kind in IN_MEMORY else ""
    )


def file_system(folder: Path) -> str:
    """The kind of file system that a folder is on."""
    mounts = [mount for mount in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(mount.mountpoint)]
    return max(mounts, key=lambda mount: len(mount.mountpoint)).fstype if mounts else "an unknown file system"


def sync_ms(folder: Path) -> float:
    """The median of some syncs, each after 4 KiB were appended, in milliseconds."""
    taken = []
    with (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(SYNCS):
            file.write(WRITTEN)
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - started) * 1e3)
    return middle(taken)
