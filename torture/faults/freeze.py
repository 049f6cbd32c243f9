"""PostgreSQL stands still below the server."""

import asyncio
import random
from contextlib import suppress

import psutil

from torture.site import Site, StoreName


class FreezePostgres:
    """Suspends every process of PostgreSQL, for longer than the server waits for it or not; then its statements go on."""

    name = "freeze"
    description = (
        "SIGSTOP of PostgreSQL for 1 to 7 seconds, then SIGCONT: old statements go on after the server gave them up"
    )
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = True
    takes_pushes = True
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        assert site.postgres is not None
        assert site.postgres.pid is not None
        seconds = chance.uniform(1.0, 7.0)
        postmaster = psutil.Process(site.postgres.pid)
        frozen = [postmaster, *postmaster.children(recursive=True)]
        try:
            for process in frozen:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            await asyncio.sleep(seconds)
        finally:
            for process in reversed(frozen):
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        return f"froze PostgreSQL for {seconds:.1f} s"
