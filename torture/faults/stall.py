"""The network stands still."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.queues import LEASE_SECONDS
from torture.site import Site


class Stall:
    """Holds back all bytes between clients and server for longer than a lease, without a word: answers arrive when their leases are over."""

    name = "stall"
    description = "nothing passes between clients and server for longer than a lease, then everything does"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        proxy = chance.choice(site.proxies)
        seconds = LEASE_SECONDS * chance.uniform(1.1, 2.0)
        proxy.stall()
        try:
            await asyncio.sleep(seconds)
        finally:
            proxy.resume()
        return f"held back all bytes for {seconds:.1f} s"
