"""The network is slow."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.proxy import Proxy
from torture.site import Site

MOST_PAUSE_SECONDS = 0.4


class Slow:
    """Delays all bytes between clients and server, each piece by a time of its own. What one side sends on a connection stays in order."""

    name = "slow"
    description = "requests and answers come in pieces, each delayed at will, for 2 to 6 seconds"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        return f"delayed requests and answers {await slow_for_a_while(chance.choice(site.proxies), chance)}"


async def slow_for_a_while(proxy: Proxy, chance: random.Random) -> str:
    """Slow the connections down for some seconds; for how many, and by how much."""
    most, seconds = chance.uniform(0.02, MOST_PAUSE_SECONDS), chance.uniform(2.0, 6.0)
    proxy.slow_down(chance, most)
    try:
        await asyncio.sleep(seconds)
    finally:
        proxy.speed_up()
    return f"by up to {most * 1000:.0f} ms for {seconds:.1f} s"
