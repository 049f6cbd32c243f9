"""The machine sleeps."""

import random
import signal

from torture.faults.fault import BOTH
from torture.site import Site

LEAST_SECONDS = 2.0
MOST_SECONDS = 7_200.0


class Suspend:
    """Puts all clocks ahead at once, and leaves them there: what waited in the server finds that its time is over.

    With PostgreSQL both sleep, or the server alone.
    """

    name = "suspend"
    description = "wall and monotonic clocks jump ahead at once by up to hours, as after a laptop's sleep, of the server alone or with PostgreSQL"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("clock",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        seconds = LEAST_SECONDS * (MOST_SECONDS / LEAST_SECONDS) ** chance.random()
        asleep = chance.choice((("server",), tuple(site.clocks)))
        for server in site.servers:
            server.send(signal.SIGSTOP)
        try:
            site.time.goes(seconds)
            for process in asleep:
                site.clocks[process].suspend(seconds)
        finally:
            for server in site.servers:
                server.send(signal.SIGCONT)
        return f"let {' and '.join(asleep)} sleep for {seconds:.1f} s"
