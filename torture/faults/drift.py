"""Clocks go at different rates."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.site import Site


class Drift:
    """Lets the wall clock that the server follows go too fast, too slowly, or not at all, and then sets it right.

    With PostgreSQL that is the database's; those of the servers are off by seconds meanwhile, each by others.
    """

    name = "drift"
    description = "the wall clock that the server follows goes up to twice as fast, slower, or stands still for 2 to 6 seconds; with PostgreSQL those of the servers are off by seconds, too"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("clock",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        rate = chance.choice((0.0, chance.uniform(0.2, 0.98), chance.uniform(1.02, 2.0)))
        seconds = chance.randint(2, 6)
        for process, clock in site.clocks.items():
            if process != site.followed:
                clock.put(chance.uniform(-8.0, 8.0))
        site.clocks[site.followed].drift(rate)
        for _ in range(seconds):
            site.time.goes(rate - 1)
            await asyncio.sleep(1.0)
        site.time.goes(1 - rate)
        for clock in site.clocks.values():
            clock.set_right()
        return f"let the clock of {site.followed} go at {rate:.2f} of its rate for {seconds} s"
