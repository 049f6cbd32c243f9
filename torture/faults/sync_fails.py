"""The disk does not keep what was written, and says so."""

import random

from torture.faults.fault import BOTH
from torture.site import Site

MOST_FAILURES = 12


class SyncFails:
    """Lets the next few syncs of the store's files fail. PostgreSQL ends all sessions after the first, and recovers."""

    name = "sync-fails"
    description = "the next 1 to 12 fsyncs of the store's files fail with EIO"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("disk",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        times = chance.randint(1, MOST_FAILURES)
        with site.disk.failing_syncs(times):
            failed = await site.disk.met("failed", times)
        await site.recover()
        return f"failed {failed} syncs"
