"""PostgreSQL dies below the server."""

import asyncio
import random

from torture.site import Site, StoreName


class KillPostgres:
    """Ends every process of PostgreSQL at once, and starts it again, or restarts it in order."""

    name = "postgres"
    description = "kill -9 or a restart of PostgreSQL under the running server"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = True
    takes_pushes = True
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        postgres = site.postgres
        assert postgres is not None
        if chance.random() < 0.5:
            await asyncio.to_thread(postgres.restart)
            return "restarted PostgreSQL"
        await asyncio.to_thread(postgres.kill)
        await asyncio.to_thread(postgres.start)
        return "killed PostgreSQL"
