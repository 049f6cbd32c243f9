"""How often a system syncs the disk: counted by strace where it is, and told as unknown where it is not."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from msgspec import Struct

CALLS = "fsync,fdatasync,sync_file_range,msync"
DETACH_SECONDS = 60.0


class Count(Struct):
    """The syncs that were counted; None when nobody could count them."""

    syncs: int | None = None
    why_not: str = ""


@contextmanager
def counted(pids: Sequence[int], folder: Path) -> Iterator[Count]:
    """Count the syncs of these processes and their children while the block runs."""
    count = Count()
    program = shutil.which("strace")
    if program is None:
        count.why_not = "not counted: apt-get install strace"
        yield count
        return
    trace = folder / "syncs.txt"
    family = {
        child.pid for pid in pids for child in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    }
    command = [program, "-f", "-c", "-e", f"trace={CALLS}", "-o", str(trace)]
    for pid in sorted(family):
        command += ["-p", str(pid)]
    tracer = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert tracer.stderr is not None
    try:
        attached = [tracer.stderr.readline() for _ in family]  # a line once it watches a process; empty when it gave up
        yield count
    finally:
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate(timeout=DETACH_SECONDS)
    if not any("attached" in line for line in attached):  # who ended meanwhile is not missed
        count.why_not = f"not counted: {''.join(attached)}{errors}".strip()[:200]
    else:
        count.syncs = total(trace.read_text(encoding="utf-8"))


def total(table: str) -> int:
    """The calls of all lines of strace's table."""
    found = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(?!total)\w+$", table, re.MULTILINE)
    return sum(int(calls) for calls in found)
