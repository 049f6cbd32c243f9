"""What `skep doctor` looks at in PostgreSQL: that it answers, the way to it, how old it is, its schema, its clock, its durability."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, urlsplit

from skep.config.load import check_postgres_url, hide_password
from skep.errors import SkepError
from skep.runtime.fitness import Finding
from skep.server.doctor.findings import UNUSED_SECONDS, WaitingRetention, late_archives, schema, unused_groups

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

OLDEST_VERSION = 150_000
CONNECT_SECONDS = 5.0
SKEW_SECONDS = 1.0


class Examined(NamedTuple):
    """The findings about a database; and of one that is fit: its applied specs, and whether it has keys of encrypted queues."""

    findings: list[Finding]
    documents: list[bytes]
    is_sealed: bool = False


async def postgres(url: str) -> Examined:
    """All checks of the database behind a URL, over one connection."""
    try:
        import asyncpg
    except ModuleNotFoundError:
        return _unfit("the extra is not installed", "pip install 'skep[postgres]'")
    try:
        check_postgres_url(url)
    except SkepError as error:
        return _unfit(error.message, "change the setting store")
    try:
        connection = await asyncpg.connect(url, timeout=CONNECT_SECONDS)
    except (OSError, TimeoutError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        text = hide_password(str(error) or type(error).__name__, url)
        return _unfit(text, "check the URL, the network and the server")
    try:
        findings = [
            transport(url, os.environ),
            _version(int(await connection.fetchval("SELECT current_setting('server_version_num')"))),
            _durability(str(await connection.fetchval("SELECT current_setting('fsync')"))),
            await _schema(connection),
            await _clock(connection),
            *await _groups(connection),
            *await _archives(connection),
        ]
        if any(one.state == "fail" for one in findings):
            return Examined(findings, [])
        return Examined(findings, *await _applied(connection))
    finally:
        await connection.close()


def _unfit(text: str, hint: str) -> Examined:
    return Examined([Finding("postgresql", "fail", text, hint)], [])


async def _applied(connection: Connection) -> tuple[list[bytes], bool]:
    """The applied specs, and whether there are keys; nothing when their tables are missing, or may not be read."""
    import asyncpg

    try:
        documents = [bytes(row["document"]) for row in await connection.fetch("SELECT document FROM skep.app")]
        return documents, bool(await connection.fetchval("SELECT EXISTS (SELECT FROM skep.data_key)"))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return [], False


def transport(url: str, environment: Mapping[str, str]) -> Finding:
    """Check that the connection to the database is encrypted and verified."""
    parts = urlsplit(url)
    asked = parse_qs(parts.query)
    [host] = asked.get("host", [parts.hostname or ""])[-1:]
    [mode] = asked.get("sslmode", [environment.get("PGSSLMODE", "prefer")])[-1:]
    if _is_here(host):
        return Finding("tls", "ok", "the database is on this machine")
    if mode == "verify-full":
        return Finding("tls", "ok", "sslmode is verify-full")
    return Finding(
        "tls", "warn", f"sslmode is {mode}: the database need not prove who it is",
        "add ?sslmode=verify-full&sslrootcert=… to the store's URL",
    )  # fmt: skip


def _is_here(host: str) -> bool:
    if not host or host.startswith("/") or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _version(number: int) -> Finding:
    text = f"{number // 10_000}.{number % 10_000}"
    if number < OLDEST_VERSION:
        return Finding("postgresql", "fail", text, "Skep needs PostgreSQL 15 or newer")
    return Finding("postgresql", "ok", text)


def _durability(fsync: str) -> Finding:
    if fsync == "on":
        return Finding("durability", "ok", "fsync is on")
    return Finding("durability", "warn", "fsync is off", "a crash of the machine loses messages; turn fsync on")


async def _schema(connection: Connection) -> Finding:
    place = str(await connection.fetchval("SELECT current_database()"))
    if await connection.fetchval("SELECT to_regclass('skep.migration')") is None:
        if await connection.fetchval("SELECT has_database_privilege(current_database(), 'CREATE')"):
            return Finding("store", "ok", f"{place} has no Skep schema yet; it will be made")
        return Finding("store", "fail", f"{place}: no right to make a schema", "GRANT CREATE ON DATABASE … TO …")
    # Number 0 stands for the functions, which are replaced whenever they differ.
    rows = await connection.fetch("SELECT number, checksum FROM skep.migration WHERE number > 0")
    return schema("skep.store.postgres", {row["number"]: row["checksum"] for row in rows}, place)


async def _groups(connection: Connection) -> list[Finding]:
    """Whether unused groups hold back their queues. The check is skipped when the schema is not up to date."""
    is_current = await connection.fetchval(
        "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('skep.consumer_group') AND attname = 'active_at'"
    )
    if not is_current:
        return []
    rows = await connection.fetch(_UNUSED_GROUPS, UNUSED_SECONDS)
    return [unused_groups([(row["queue"], row["group"], row["held"]) for row in rows])]


_UNUSED_GROUPS = """
    SELECT q.name AS queue, g.name AS group,
           (greatest(q.floor_seq, (SELECT m.seq FROM skep.message m WHERE m.queue_id = q.id
                                   ORDER BY m.queue_id DESC, m.seq DESC LIMIT 1))
            - g.start_seq - coalesce((SELECT sum(c.completed + c.dead + c.expired + c.skipped) FROM skep.group_counter c
                                      WHERE c.group_id = g.id), 0))::bigint AS held
    FROM skep.queue q JOIN skep.consumer_group g ON g.queue_id = q.id
    WHERE q.deleted_at IS NULL AND NOT g.idle
      AND g.active_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - $1::bigint * 1000000
      AND (q.max_depth > 0 OR q.retention_seconds > 0 OR q.completed_retention_seconds > 0)
    ORDER BY held DESC
"""


async def _archives(connection: Connection) -> list[Finding]:
    """Whether retention waits for an archive that does not come. The check is skipped when the schema is not up to date."""
    if not await connection.fetchval("SELECT to_regprocedure('skep.archived_seq(integer)') IS NOT NULL"):
        return []
    rows = await connection.fetch(_ARCHIVED)
    return list(late_archives([WaitingRetention(row["name"], row["has_archive"], row["waits"] or 0.0) for row in rows]))


_ARCHIVED = """
    SELECT q.name, a.seq IS NOT NULL AS has_archive,
           (extract(epoch FROM clock_timestamp()) - (
               SELECT m.created_at FROM skep.message m
               WHERE m.queue_id = q.id AND m.seq > greatest(q.first_seq - 1, coalesce(a.seq, 0))
               ORDER BY m.queue_id, m.seq LIMIT 1) / 1e6
            - least(nullif(q.retention_seconds, 0), nullif(q.completed_retention_seconds, 0),
                    CASE WHEN q.holds_dead_letters THEN nullif(q.max_age_seconds, 0) END, 9e9))::double precision AS waits
    FROM skep.queue q CROSS JOIN LATERAL (
        SELECT coalesce(min(g.archived_seq) FILTER (WHERE NOT g.idle), min(g.archived_seq)) AS seq
        FROM skep.consumer_group g WHERE g.queue_id = q.id) a
    WHERE q.deleted_at IS NULL AND q.retention_requires_archive
"""


async def _clock(connection: Connection) -> Finding:
    before = time.time()
    theirs = float(await connection.fetchval("SELECT extract(epoch FROM clock_timestamp())"))
    skew = theirs - (before + time.time()) / 2
    if abs(skew) > SKEW_SECONDS:
        return Finding(
            "clock",
            "warn",
            f"{skew:+.3f} s to the database's",
            "Skep follows the database, but your logs do not: use NTP",
        )
    return Finding("clock", "ok", f"{skew:+.3f} s to the database's")
