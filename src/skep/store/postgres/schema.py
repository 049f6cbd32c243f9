"""The schema: numbered migrations that run once, and functions that are replaced when their text changes.

All of it happens under one lock, so that servers that start together do not get in each other's way.
"""

from __future__ import annotations

import functools
from importlib.resources import files

from skep.errors import Code, SkepError
from skep.store.migrate import checksum_of, load_migrations, missing_migrations, tell_upgrade
from skep.store.postgres.connection import Connection

OLDEST_VERSION = 150_000
# In the order in which they build on each other.
FUNCTION_FILES = (
    "locks", "watching", "push", "groups", "discover", "pop", "push_and_pop", "settle", "settle_and_pop", "withdraw", "forget", "clear", "retain", "compact", "records", "operations", "past", "events", "outcomes", "put_right",
)  # fmt: skip


async def migrate(connection: Connection) -> None:
    """Apply the missing migrations, and replace the functions if their text changed."""
    version = int(await connection.fetchval("SELECT current_setting('server_version_num')"))
    if version < OLDEST_VERSION:
        raise SkepError(Code.STORE_UNAVAILABLE, f"Skep needs PostgreSQL 15 or newer; this one is {version // 10_000}")
    await connection.execute("SELECT pg_advisory_xact_lock(1936418162)")
    await connection.execute("CREATE SCHEMA IF NOT EXISTS skep")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS migration (number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL)"
    )
    rows = await connection.fetch("SELECT number, checksum FROM migration WHERE number > 0")
    folder = files("skep.store.postgres").joinpath("migrations")
    applied = {row["number"]: row["checksum"] for row in rows}
    steps = missing_migrations(load_migrations(folder), applied, "the PostgreSQL store")
    tell_upgrade(applied, steps, "the PostgreSQL store")
    for step in steps:
        await connection.execute(step.sql)
        await connection.execute("INSERT INTO migration VALUES ($1, $2, $3)", step.number, step.name, step.checksum)
    await _replace_functions(connection)


@functools.cache
def _functions() -> tuple[str, str]:
    """The text of all functions, and its checksum."""
    folder = files("skep.store.postgres").joinpath("functions")
    text = "\n".join(folder.joinpath(f"{name}.sql").read_text(encoding="utf-8") for name in FUNCTION_FILES)
    return text, checksum_of(text)


async def _replace_functions(connection: Connection) -> None:
    """Functions are code, not data: one set, known by its checksum (kept as migration 0)."""
    text, checksum = _functions()
    if await connection.fetchval("SELECT checksum FROM migration WHERE number = 0") != checksum:
        # A function whose signature changed would otherwise stay beside its successor.
        for signature in await connection.fetch(
            # Functions of triggers belong to the schema, and come with its migrations.
            "SELECT p.oid::regprocedure AS name FROM pg_proc p "
            "WHERE p.pronamespace = 'skep'::regnamespace AND p.prorettype <> 'trigger'::regtype"
        ):
            await connection.execute(f"DROP FUNCTION {signature['name']}")
        await connection.execute(text)
        await connection.execute(
            "INSERT INTO migration VALUES (0, 'functions', $1) ON CONFLICT (number) DO UPDATE SET checksum = excluded.checksum",
            checksum,
        )
