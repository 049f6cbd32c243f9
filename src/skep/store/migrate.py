"""Numbered migrations: how they are found, named and checked. Each store applies them itself.

A migration is a file ``0001_what_it_does.sql``. Once applied, its text is history: a changed checksum, a gap in the
numbers, or a database that is newer than this program is an error, and is never repaired silently.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources.abc import Traversable

import structlog
from msgspec import Struct

from skep.errors import Code, SkepError

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")


log = structlog.get_logger("skep.store")


class Migration(Struct, frozen=True):
    """One step of the schema: its number, its name, its text, and the checksum of that text."""

    number: int
    name: str
    sql: str
    checksum: str


def load_migrations(folder: Traversable) -> list[Migration]:
    """All migrations of a folder by number. INTERNAL when they do not count from 1 without a gap: the install is broken."""
    found = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    migrations = [_read(entry) for entry in found]
    if [migration.number for migration in migrations] != list(range(1, len(migrations) + 1)):
        raise SkepError(Code.INTERNAL, f"the migrations in {folder} are not numbered 1, 2, 3, …")
    return migrations


def _read(entry: Traversable) -> Migration:
    match = _FILE_NAME.fullmatch(entry.name)
    if match is None:
        raise SkepError(Code.INTERNAL, f"{entry.name} is no name for a migration; it should look like 0001_log.sql")
    text = entry.read_text(encoding="utf-8")
    return Migration(int(match[1]), match[2], text, checksum_of(text))


def checksum_of(text: str) -> str:
    """The checksum of a migration's text; line endings do not matter."""
    return hashlib.sha256(text.replace("\r\n", "\n").encode()).hexdigest()


def missing_migrations(available: Sequence[Migration], applied: Mapping[int, str], place: str) -> list[Migration]:
    """The migrations to apply, after a check of the applied ones (number → checksum) against this program's."""
    newest = max(applied, default=0)
    if newest > len(available):
        raise SkepError(
            Code.STORE_UNAVAILABLE,
            f"{place} was written by a newer Skep (schema {newest}, this one knows {len(available)}): upgrade Skep",
        )
    for migration in available[:newest]:
        if applied.get(migration.number) != migration.checksum:
            raise SkepError(
                Code.STORE_CORRUPT,
                f"migration {migration.number} ({migration.name}) of {place} is not the one this Skep has: "
                "use the Skep that made it, or restore a backup",
            )
    return list(available[newest:])


def tell_upgrade(applied: Mapping[int, str], steps: Sequence[Migration], place: str) -> None:
    """Log that a store of an older Skep is about to be migrated: afterwards the older Skep cannot open it."""
    if applied and steps:
        log.info("the schema is being brought up to date", store=place, schema=max(applied), to=steps[-1].number)
