"""PostgreSQL dies for good, and its asynchronous standby takes over without the last commits."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

from torture import standby
from torture.lost import Loss
from torture.site import Site, StoreName

LEAST_SECONDS, MOST_SECONDS = 0.05, 0.5


class PromoteAsync:
    """Lets the standby fall behind, kills the primary, and promotes the standby. It notes from when on answers were no promise."""

    name = "promote-async"
    description = (
        "kill -9 of PostgreSQL; its asynchronous standby is promoted, which lacks the last 0.05 to 0.5 seconds"
    )
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = False
    takes_pushes = True
    layers = ("spare",)

    async def prepare(self, site: Site) -> None:
        """Make the spare server a standby, under the load."""
        assert site.postgres is not None
        assert site.spare is not None
        await asyncio.to_thread(standby.follow, site.postgres, site.spare)

    async def inject(self, site: Site, chance: random.Random) -> str:
        assert site.postgres is not None
        assert site.spare is not None
        seconds = chance.uniform(LEAST_SECONDS, MOST_SECONDS)
        since = time.monotonic_ns()
        flushed = await site.execute("SELECT pg_current_wal_flush_lsn()")
        await asyncio.to_thread(standby.until, site.spare, f"SELECT pg_last_wal_receive_lsn() >= '{flushed}'", "t")
        os.kill(int(await site.execute("SELECT pid FROM pg_stat_replication")), signal.SIGSTOP)
        try:
            await asyncio.sleep(seconds)
        finally:
            site.well.clear()  # from now on it is an outage
            await asyncio.to_thread(site.postgres.kill)
            site.losses.append(Loss(since, time.monotonic_ns()))
        await asyncio.to_thread(site.spare.execute, "SELECT pg_promote()")
        site.take_over()
        return f"killed PostgreSQL and promoted a standby that lacked {seconds:.1f} s"
