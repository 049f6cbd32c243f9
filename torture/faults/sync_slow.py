"""The disk is slow."""

import random

from torture.faults.fault import BOTH
from torture.site import Site

LEAST_MS, MOST_MS = 100, 900
MOST_SYNCS = 8


class SyncSlow:
    """Lets the next few syncs of the store's files take long: leases run out while their settlements wait for the disk."""

    name = "sync-slow"
    description = "the next 1 to 8 fsyncs of the store's files take 100 to 900 ms longer"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("disk",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        delay_ms = chance.randint(LEAST_MS, MOST_MS)
        with site.disk.slow_syncs(delay_ms):
            delayed = await site.disk.met("delayed", chance.randint(1, MOST_SYNCS))
        return f"delayed {delayed} syncs by {delay_ms} ms"
