"""The disk is full."""

import random

from torture.faults.fault import BOTH
from torture.layers.disk import NO_GROWTH, NO_WRITES
from torture.site import Site

MOST_ROOM_BYTES = 65_536
MOST_REFUSALS = 20


class Full:
    """Lets files of the store grow by a few bytes more, and then no further, until some writes were refused.

    Most file systems still take writes within a file. Those that copy on write do not.
    """

    name = "full"
    description = "the disk of the store is full (ENOSPC) until it has refused 1 to 20 writes; some are cut short"
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("disk",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        how = chance.choice((NO_GROWTH, NO_WRITES))
        times = chance.randint(1, MOST_REFUSALS)
        with site.disk.full(how, chance.randrange(MOST_ROOM_BYTES)):
            refused = await site.disk.met("refused", times)
        await site.recover()
        return f"refused {refused} writes {'beyond the end of files' if how == NO_GROWTH else 'of all kinds'}"
