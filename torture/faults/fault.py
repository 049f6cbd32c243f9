"""What every fault has."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from torture.queues import LEASE_SECONDS
from torture.site import Site, StoreName

BOTH: tuple[StoreName, ...] = ("sqlite", "postgres")


class Fault(Protocol):
    """One way to treat a server badly."""

    @property
    def name(self) -> str:
        """As `--faults` names it."""

    @property
    def description(self) -> str:
        """What it does, in one line."""

    @property
    def stores(self) -> tuple[StoreName, ...]:
        """The stores that it applies to."""

    @property
    def is_outage(self) -> bool:
        """Whether nothing works while it lasts: then only calls that run at its beginning meet it, and the next ones wait."""

    @property
    def takes_pushes(self) -> bool:
        """Whether pushes are taken during the outage all the same."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers (`torture.layers`) that processes must have been started with for it; `spare` is a second PostgreSQL, `wire` a proxy before PostgreSQL."""

    async def inject(self, site: Site, chance: random.Random) -> str:
        """Do it, undo it, and say what was done."""


@runtime_checkable
class Prepared(Protocol):
    """A fault for which something is made ready before its point of the plan, while the load goes on."""

    async def prepare(self, site: Site) -> None:
        """Make it ready."""


async def stop_past_lease(send: Callable[[signal.Signals], object], chance: random.Random) -> float:
    """Suspend a process, by the signals it is sent, for longer than a lease; for how many seconds."""
    seconds = LEASE_SECONDS * chance.uniform(1.1, 2.0)
    send(signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        send(signal.SIGCONT)
    return seconds
