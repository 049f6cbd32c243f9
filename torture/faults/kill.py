"""The server dies."""

import random

from torture.faults.fault import BOTH
from torture.site import Site


class Kill:
    """Ends the server in the midst of whatever it does, and starts it again on the same store."""

    name = "kill"
    description = "kill -9 of the server, and a restart on the same store"
    stores = BOTH
    is_outage = True
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        server = chance.choice(site.servers)
        server.kill()
        await server.start()
        return "killed the server"
