"""A client dies, or stands still."""

import random
import signal

from torture.faults.fault import BOTH, stop_past_lease
from torture.site import Site


class HitClient:
    """Ends a process of the load in the midst of a call, after which another one takes its place, or suspends it past its leases."""

    name = "client"
    description = "kill -9 of a client in the midst of its calls, or SIGSTOP past a lease"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        client = chance.choice(site.clients)
        if chance.random() < 0.5:
            client.send(signal.SIGKILL)
            return "killed a client"
        seconds = await stop_past_lease(client.send, chance)
        return f"stopped a client for {seconds:.1f} s"
