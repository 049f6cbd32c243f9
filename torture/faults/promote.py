"""PostgreSQL dies for good, and its standby takes over."""

from __future__ import annotations

import asyncio
import random

from torture import standby
from torture.site import Site, StoreName


class Promote:
    """Kills the primary and promotes its synchronous standby, which the server finds by the two hosts of its address."""

    name = "promote"
    description = "kill -9 of PostgreSQL; its synchronous standby is promoted, and nothing answered may be lost"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = True
    takes_pushes = True
    layers = ("spare",)

    async def prepare(self, site: Site) -> None:
        """Make the spare server a standby, under the load."""
        assert site.postgres is not None
        assert site.spare is not None
        await asyncio.to_thread(standby.follow, site.postgres, site.spare)
        await asyncio.to_thread(standby.make_synchronous, site.postgres)

    async def inject(self, site: Site, chance: random.Random) -> str:  # noqa: ARG002 - the moment is the plan's
        assert site.postgres is not None
        assert site.spare is not None
        await asyncio.to_thread(site.postgres.kill)
        await asyncio.to_thread(site.spare.execute, "SELECT pg_promote()")
        site.take_over()
        return "killed PostgreSQL and promoted its synchronous standby"
