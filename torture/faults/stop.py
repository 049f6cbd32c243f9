"""The server stands still."""

import asyncio
import random
import signal

from torture.faults.fault import BOTH
from torture.queues import LEASE_SECONDS
from torture.site import Site


class Stop:
    """Suspends the server for longer than a lease: what it had begun goes on with an old view of the time."""

    name = "stop"
    description = "SIGSTOP of the server past a lease, then SIGCONT"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        seconds = LEASE_SECONDS * chance.uniform(1.1, 1.5)
        server = chance.choice(site.servers)
        server.send(signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            server.send(signal.SIGCONT)
        return f"stopped the server for {seconds:.1f} s"
