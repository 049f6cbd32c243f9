"""Clocks are set wrong, and right again."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.site import Site

LEAST_SECONDS = 0.3
MOST_SECONDS = 10_000.0


class MoveClock:
    """Puts the wall clock of the server ahead or back, that of PostgreSQL, or both, and later right again.

    The server follows PostgreSQL's where there is one: then nothing may come of its own.
    """

    name = "clock"
    description = "the wall clock of the server, of PostgreSQL, or of both jumps ahead or back by up to hours, and later comes back"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("clock",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        # As many jumps by less than a second as by minutes or hours.
        by = chance.choice((1, -1)) * LEAST_SECONDS * (MOST_SECONDS / LEAST_SECONDS) ** chance.random()
        moved = chance.choice((("server",), ("postgres",), tuple(site.clocks)))
        if site.store == "sqlite":
            moved = ("server",)
        is_followed = site.followed in moved
        if is_followed:
            site.time.goes(by)
        for process in moved:
            site.clocks[process].put(by)
        await asyncio.sleep(chance.uniform(0.1, 5.0))
        if is_followed:
            site.time.goes(-by)
        for process in moved:
            site.clocks[process].set_right()
        return f"put the clock of {' and '.join(moved)} {'ahead' if by > 0 else 'back'} by {abs(by):.1f} s for a while"
