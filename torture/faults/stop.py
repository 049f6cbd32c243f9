"""The server stands still."""

import random

from torture.faults.fault import BOTH, stop_past_lease
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
        seconds = await stop_past_lease(chance.choice(site.servers).send, chance)
        return f"stopped the server for {seconds:.1f} s"
