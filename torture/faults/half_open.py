"""Connections are gone, and nobody is told."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.site import Site


class HalfOpen:
    """Loses the connections that are open, and tells neither side: calls on them wait until their callers give up. New connections work."""

    name = "half-open"
    description = "open connections carry nothing any more, and neither side is told; new ones work"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        times = chance.randint(1, 3)
        proxy = chance.choice(site.proxies)
        for _ in range(times):
            proxy.abandon()
            await asyncio.sleep(chance.uniform(0.0, 0.5))
        return f"lost all connections without a word, {times} times"
