"""What server and torture weigh while a run goes on: a run for hours must not grow."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

import psutil

from torture.result import Memory, Weight
from torture.site import Site

LOOK_SECONDS = 0.5
MEBIBYTE = 1024 * 1024


class Scale:
    """Weighs processes at the end of each round, when nothing is under way, and from time to time for the most that they take."""

    def __init__(self) -> None:
        self._server: list[float] = []
        self._torture: list[float] = []
        self._largest_server = 0.0
        self._largest_torture = 0.0

    async def watch(self, site: Site) -> None:
        """Look for the most until cancelled."""
        while True:
            self._look(site)
            await asyncio.sleep(LOOK_SECONDS)

    def round_ended(self, site: Site) -> None:
        server, torture = self._look(site)
        self._server.append(server)
        self._torture.append(torture)

    def _look(self, site: Site) -> tuple[float, float]:
        server = 0.0 if site.server.pid is None else weigh(site.server.pid)
        torture = weigh(os.getpid(), with_children=False)
        self._largest_server = max(self._largest_server, server)
        self._largest_torture = max(self._largest_torture, torture)
        return server, torture

    def result(self) -> Memory:
        return Memory(_weight(self._server, self._largest_server), _weight(self._torture, self._largest_torture))


def _weight(at_rest: list[float], largest: float) -> Weight:
    known = at_rest or [0.0]
    return Weight(known[0], known[len(known) // 2], known[-1], largest)


def weigh(pid: int, *, with_children: bool = True) -> float:
    """The memory of a process and its children in MiB, without pages of files, which the system takes back when it needs them."""
    size = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [process, *(process.children(recursive=True) if with_children else ())]:
            with suppress(psutil.NoSuchProcess):
                found = one.memory_info()
                size += found.rss - getattr(found, "shared", 0)
    return round(size / MEBIBYTE, 1)
