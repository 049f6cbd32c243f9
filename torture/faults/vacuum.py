"""An administrator tidies up PostgreSQL under the load."""

from __future__ import annotations

import random

from torture.site import Site, StoreName

TABLES = ("message", "partition_lease", "set_lease", "consumer_group", "group_counter", "dedup", "lease_history")
STATEMENTS = (
    "VACUUM",
    "VACUUM (ANALYZE)",
    "VACUUM (FREEZE, ANALYZE)",
    "ANALYZE",
    "REINDEX SCHEMA skep",
    "REINDEX SCHEMA CONCURRENTLY skep",
    *(f"VACUUM (FULL, ANALYZE) skep.{table}" for table in TABLES),
    *(f"REINDEX TABLE CONCURRENTLY skep.{table}" for table in TABLES),
)
MOST_TIMES = 4
HALF_MADE = "SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid"
"""Indexes that REINDEX CONCURRENTLY leaves when it is ended."""


class VacuumPostgres:
    """Runs the statements of chores one after the other. Those that rewrite a table or its indexes lock it meanwhile."""

    name = "vacuum"
    description = "VACUUM, VACUUM FULL, ANALYZE and REINDEX under the load"
    stores: tuple[StoreName, ...] = ("postgres",)
    is_outage = False
    takes_pushes = False
    layers = ()

    async def inject(self, site: Site, chance: random.Random) -> str:
        chosen = chance.sample(STATEMENTS, chance.randint(1, MOST_TIMES))
        return ", ".join([await tidy(site, statement) for statement in chosen])


async def tidy(site: Site, statement: str) -> str:
    """Run a statement. PostgreSQL may end it for a deadlock with the server: an index is locked before or after another."""
    try:
        await site.execute(statement)
    except RuntimeError as error:
        if "deadlock detected" not in str(error):
            raise
        for index in (await site.execute(HALF_MADE)).split():
            await site.execute(f"DROP INDEX {index}")
        return f"{statement} (gave way)"
    return statement
