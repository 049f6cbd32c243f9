"""One of the server's processes dies, or stands still."""

import random
from contextlib import suppress

import psutil

from torture.faults.fault import BOTH, stop_past_lease
from torture.site import Site


class HitProcess:
    """Ends a worker of the server, or the owner of its SQLite file, which the server replaces; or suspends it past a lease."""

    name = "process"
    description = "kill -9 of one of the server's processes, which the server replaces, or SIGSTOP past a lease"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        found = [process for server in site.servers for process in server.processes]
        process = chance.choice(sorted(found, key=lambda one: one.pid))
        with suppress(psutil.NoSuchProcess):
            if chance.random() < 0.5:
                process.kill()
                return "killed a process of the server"
            seconds = await stop_past_lease(process.send_signal, chance)
            return f"stopped a process of the server for {seconds:.1f} s"
        return "found a process of the server dead"
