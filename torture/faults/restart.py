"""The server is restarted in order."""

import random
import signal

from torture.faults.fault import BOTH
from torture.site import Site


class Restart:
    """Asks the server to stop, as an upgrade does: it finishes what it has begun, and is started again on the same store."""

    name = "restart"
    description = "SIGTERM of the server, as an upgrade does, and a start on the same store"
    stores = BOTH
    is_outage = True
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        server = chance.choice(site.servers)
        server.send(signal.SIGTERM)
        await server.ended()
        await server.start()
        return "restarted the server"
