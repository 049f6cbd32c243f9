"""PostgreSQL has no time, or others hold its tables."""

from __future__ import annotations

import asyncio
import random

from torture.site import Site, StoreName

TABLES = ("message", "partition_lease", "set_lease", "consumer_group", "group_counter", "queue", "dedup", "operation")
MODES = ("ACCESS EXCLUSIVE", "EXCLUSIVE", "SHARE")
LEAST_SECONDS, MOST_SECONDS = 1.0, 8.0
"""A statement of the server's waits 5 seconds for a lock."""
SESSIONS = 4
ROWS = 300_000
SCRATCH = "public.scratch"


class BusyPostgres:
    """Locks a table for longer than the server waits for it or not, uses all CPUs, or writes much."""

    name = "busy"
    description = "other sessions lock a table of the server's for 1 to 8 seconds, or use all CPUs, or write much"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        seconds = chance.uniform(LEAST_SECONDS, MOST_SECONDS)
        way = chance.choice((lock_table, lock_table, use_cpus, write_much))
        return await way(site, chance, seconds)


async def lock_table(site: Site, chance: random.Random, seconds: float) -> str:
    table, mode = chance.choice(TABLES), chance.choice(MODES)
    await site.execute(f"BEGIN; LOCK TABLE skep.{table} IN {mode} MODE; SELECT pg_sleep({seconds}); COMMIT")
    return f"locked {table} in {mode} mode for {seconds:.1f} s"


async def use_cpus(site: Site, chance: random.Random, seconds: float) -> str:  # noqa: ARG001 - one of several ways
    loop = f"WHILE clock_timestamp() < now() + interval '{seconds} s' LOOP PERFORM sum(n) FROM generate_series(1, 10000) n; END LOOP"
    await asyncio.gather(*(site.execute(f"DO $$ BEGIN {loop}; END $$") for _ in range(SESSIONS)))
    return f"used all CPUs for {seconds:.1f} s"


async def write_much(site: Site, chance: random.Random, seconds: float) -> str:  # noqa: ARG001 - one of several ways
    rows = f"SELECT n, repeat(md5(n::text), 4) AS text FROM generate_series(1, {ROWS}) n"  # noqa: S608 - our own number
    try:
        await site.execute(f"CREATE TABLE {SCRATCH} AS {rows}; CREATE INDEX ON {SCRATCH} (text); CHECKPOINT")
    finally:
        await site.execute(f"DROP TABLE IF EXISTS {SCRATCH}")
    return f"wrote {ROWS:,} rows and a checkpoint"
