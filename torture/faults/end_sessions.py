"""PostgreSQL ends sessions of the server."""

from __future__ import annotations

import asyncio
import random

from torture.site import Site, StoreName

MOST_TIMES = 4
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 30.0
ALL = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
LISTENING = f"{ALL} AND application_name = ''"
"""The session that listens has no name; those of the pool have."""


class EndSessions:
    """Ends the session that listens for news, or some of all, several times within a second or two."""

    name = "listen"
    description = "sessions of the server ended by pg_terminate_backend: the one that listens, or any of all"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        is_listening = chance.random() < 0.5
        ended = 0
        for _ in range(chance.randint(1, MOST_TIMES)):
            ended += await end_some(site, chance, LISTENING if is_listening else ALL)
            await asyncio.sleep(chance.uniform(0.0, 0.5))
        return f"ended {ended} {'listening sessions' if is_listening else 'sessions'}"


async def end_some(site: Site, chance: random.Random, which: str) -> int:
    """End at least one of the sessions that a statement finds, and say how many."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := (await site.execute(which)).split()):  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(LOOK_SECONDS)
    chosen = chance.sample(found, chance.randint(1, len(found)))
    await site.execute("; ".join(f"SELECT pg_terminate_backend({pid})" for pid in chosen))
    return len(chosen)
