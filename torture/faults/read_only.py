"""PostgreSQL takes no writes."""

from __future__ import annotations

import asyncio
import random

from torture.site import Site, StoreName

LOOK_SECONDS = 0.02


class ReadOnly:
    """Makes PostgreSQL read-only as a managed service does whose disk is full: for all sessions, or only for those that come."""

    name = "read-only"
    description = "PostgreSQL takes no writes for 1 to 5 seconds: in no session, or in none that is opened meanwhile"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = True
    takes_pushes = True
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        seconds = chance.uniform(1.0, 5.0)
        is_for_all = chance.random() < 0.7
        target = "SYSTEM" if is_for_all else f'DATABASE "{site.database}"'
        try:
            await change(site, f"ALTER {target} SET default_transaction_read_only = on", "on")
            await asyncio.sleep(seconds)
        finally:
            await change(site, f"ALTER {target} RESET default_transaction_read_only", "off")
        return f"PostgreSQL read-only {'' if is_for_all else 'in new sessions '}for {seconds:.1f} s"


async def change(site: Site, statement: str, state: str) -> None:
    """Change the default, and wait until sessions that are opened have it."""
    await site.execute(statement, database="postgres")  # in which a change of a database is always taken
    await site.execute("SELECT pg_reload_conf()", database="postgres")
    while await site.execute("SHOW transaction_read_only") != state:  # noqa: ASYNC110 - nobody tells us
        await asyncio.sleep(LOOK_SECONDS)
