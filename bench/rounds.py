"""Rounds of work that is compared: what each did in a second, and in a second of processor time of everybody who took part."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import psutil
from msgspec import Struct

from bench.report import middle


class Rounds(Struct):
    """What the rounds that counted took."""

    seconds: list[float] = []
    cpu_seconds: list[float] = []

    def rate(self, rows: int) -> float:
        """Rows a second, of the median round."""
        return rows / middle(self.seconds)

    def cpu_rate(self, rows: int) -> float:
        """Rows for each second of processor time, of the median round."""
        return rows / max(middle(self.cpu_seconds), 0.01)

    def over(self, others: Rounds) -> float:
        """How many times as fast as the others: the median of what pairs of rounds say, which ran side by side."""
        return middle([other / mine for mine, other in zip(self.seconds, others.seconds, strict=True)])


def alternating(
    pids: Sequence[int], warm_rounds: int, rounds: int, works: Sequence[Callable[[], float | None]]
) -> list[Rounds]:
    """Do each in turn, again and again. A work that times itself says how many seconds it took."""
    found = [Rounds() for _ in works]
    for number in range(warm_rounds + rounds):
        for work, mine in zip(works, found, strict=True):
            spent, started = cpu_seconds(pids), time.perf_counter()
            own = work()
            taken = time.perf_counter() - started if own is None else own
            if number >= warm_rounds:
                mine.seconds.append(taken)
                mine.cpu_seconds.append(cpu_seconds(pids) - spent)
    return found


def cpu_seconds(pids: Sequence[int] = ()) -> float:
    """What this process and these have used so far, with all that they started, also what has ended since."""
    seen: dict[int, float] = {}
    for pid in (psutil.Process().pid, *pids):
        try:
            family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
        for process in family:
            try:
                seen[process.pid] = sum(process.cpu_times()[:4])  # its own, and that of children it has waited for
            except psutil.NoSuchProcess:
                continue
    return sum(seen.values())
