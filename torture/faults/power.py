"""The power fails."""

import asyncio
import random

from torture.faults.fault import BOTH
from torture.site import Site

FOREVER_MS = 600_000
SYNC_SECONDS = 1.0
"""How long the cut waits for a sync to be under way."""


class Power:
    """Ends the store's processes, takes back writes that were not synced, and starts them again.

    On PostgreSQL the machine of the database loses its power, with the server on it or without.
    """

    name = "power"
    description = (
        "a power cut: writes since the last fsync of a file are lost, all, from a moment on, or torn at sectors"
    )
    stores = BOTH
    is_outage = False
    takes_pushes = False
    layers = ("disk",)

    async def inject(self, site: Site, chance: random.Random) -> str:
        has_server = site.postgres is None or chance.random() < 0.5
        disks = [disk for disk in site.disks.values() if has_server or disk is site.disk]
        for disk in disks:
            disk.begin_journal()
        await site.disk.noted(int(2 ** chance.uniform(2, 9)))
        # Mostly in the midst of a sync: at any other moment there is little that is not synced.
        in_sync = chance.random() < 0.8
        with site.disk.slow_syncs(FOREVER_MS if in_sync else 0):
            if in_sync:
                await site.disk.met("delayed", 1, SYNC_SECONDS)
            site.well.clear()
            if has_server:
                site.server.kill()
            if site.postgres is not None:
                await asyncio.to_thread(site.postgres.kill)
        losses = [await asyncio.to_thread(disk.cut_power, chance) for disk in disks]
        await site.recover()
        return f"power cut: {'; '.join(loss.told() for loss in losses if loss.files) or 'nothing was unsynced'}"
