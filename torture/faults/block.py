"""The server's event loop hangs."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.queues import LEASE_SECONDS
from torture.site import LOOK_SECONDS, Site

PATIENCE_SECONDS = 60.0


class Block:
    """Blocks the main thread of the server, in which its event loop runs, for longer than a lease. Its other threads go on."""

    name = "block"
    description = "the server's event loop is blocked for longer than a lease, while its other threads go on"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("clock",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        seconds = LEASE_SECONDS * chance.uniform(1.1, 4.0)
        clock = site.clocks["server"]
        blocks = clock.blocks
        clock.block(seconds)
        async with asyncio.timeout(seconds + PATIENCE_SECONDS):
            while clock.blocks == blocks:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(LOOK_SECONDS)
        return f"blocked the server's event loop for {seconds:.1f} s"
