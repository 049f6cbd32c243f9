"""Memory runs out."""

import asyncio
import random
import resource

import psutil

from skep.client import AsyncClient
from skep.client.outgoing import NewMessage
from skep.errors import SkepError
from torture.faults.fault import BOTH
from torture.site import Site

LARGE_BYTES = 3_000_000
LARGE_PUSHES = 4
HEADROOM_BYTES = 4_000_000
SCRATCH = "torture-memory"
TIMEOUT_SECONDS = 10.0


class Memory:
    """Lets the server's processes have next to no more memory than they have, and sends requests that need more.

    What it refuses it refuses, and it may die of it: then it is started again.
    """

    name = "memory"
    description = "the server gets no more memory for a while (RLIMIT_AS), and requests come that need it; if it dies, it is started again"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        server = psutil.Process(site.server.pid)
        headroom = chance.randrange(HEADROOM_BYTES)
        before = [
            (process, process.rlimit(resource.RLIMIT_AS)) for process in (server, *server.children(recursive=True))
        ]
        for process, (_, most) in before:
            process.rlimit(resource.RLIMIT_AS, (process.memory_info().vms + headroom, most))
        try:
            stored = sum(await asyncio.gather(*(self._push(site) for _ in range(LARGE_PUSHES))))
            await asyncio.sleep(chance.uniform(0.2, 1.0))
        finally:
            is_dead = site.server.has_ended
            for process, limits in before:
                if process.is_running() and not is_dead:
                    process.rlimit(resource.RLIMIT_AS, limits)
        if is_dead:
            await site.server.start()
        outcome = "and it died" if is_dead else f"{stored} of {LARGE_PUSHES} large pushes were stored"
        return f"gave the server {headroom / 1e6:.1f} MB more, {outcome}"

    async def _push(self, site: Site) -> bool:
        """Push a large message to a queue that is not judged, straight to the server; whether it was stored."""
        async with AsyncClient(site.server.url, attempts=1, timeout_seconds=TIMEOUT_SECONDS) as client:
            try:
                await client.push(SCRATCH, [NewMessage("x" * LARGE_BYTES)])
            except SkepError:
                return False
        return True
