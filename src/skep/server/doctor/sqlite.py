"""What `skep doctor` looks at in SQLite: the library, the file, its schema, its groups, and who holds it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from skep.access import presence
from skep.errors import SkepError
from skep.runtime.fitness import Finding
from skep.server.doctor.findings import UNUSED_SECONDS, WaitingRetention, late_archives, schema, unused_groups

OLDEST_SQLITE = (3, 45, 0)


def sqlite() -> Iterable[Finding]:
    """The SQLite that comes with Skep, and that its WAL works."""
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < OLDEST_SQLITE:
        yield Finding("sqlite", "warn", version, "upgrade apsw: older ones can damage a WAL in rare cases")
    else:
        yield Finding("sqlite", "ok", version)
    with tempfile.TemporaryDirectory() as place:
        db = apsw.Connection(str(Path(place) / "probe.db"))
        mode = str(db.execute("PRAGMA journal_mode = WAL").fetchall()[0][0])
        db.close()
    if mode == "wal":
        yield Finding("sqlite wal", "ok", "works")
    else:
        yield Finding("sqlite wal", "fail", f"journal mode {mode}", "is the temporary folder on a network file system?")


def sqlite_apps(path: Path) -> list[bytes]:
    """The specs that were applied; none when the database is not there, cannot be read, or lacks their table."""
    try:
        return [bytes(document) for (document,) in _rows(path, "SELECT document FROM app")]
    except apsw.Error:
        return []


def sqlite_sealed(path: Path) -> bool:
    """Whether there are keys of encrypted queues."""
    try:
        return bool(_rows(path, "SELECT 1 FROM data_key LIMIT 1"))
    except apsw.Error:
        return False


def sqlite_schema(path: Path) -> Iterable[Finding]:
    """Check that the database can be read, and was not written by a newer Skep. It is read-only, so a server may be running on it."""
    if not path.exists():
        yield Finding("store", "ok", f"{path} is not there yet and will be made")
        return
    try:
        rows = _rows(path, "SELECT number, checksum FROM migration")
    except (apsw.CorruptError, apsw.NotADBError) as error:
        yield Finding("store", "fail", f"{path}: {error}", "restore a backup, or move the file away")
        return
    except apsw.Error as error:
        hint = "nothing says that the file is damaged: check its owner, its mode, the folder, and that the disk is not read-only"
        yield Finding("store", "fail", f"{path}: {error}", hint)
        return
    yield schema("skep.store.sqlite", {int(str(number)): str(checksum) for number, checksum in rows}, str(path))


def sqlite_groups(path: Path) -> Iterable[Finding]:
    """Whether unused groups hold back their queues. The check is skipped when the schema is not up to date."""
    try:
        rows = _rows(path, _UNUSED_GROUPS, time.time_ns() // 1_000 - UNUSED_SECONDS * 1_000_000)
    except apsw.Error:
        return
    yield unused_groups([(str(queue), str(group), int(str(held))) for queue, group, held in rows])


def sqlite_archives(path: Path) -> Iterable[Finding]:
    """Whether retention waits for an archive that does not come. The check is skipped when the schema is not up to date."""
    try:
        rows = _rows(path, _ARCHIVED, time.time_ns() // 1_000)
    except apsw.Error:
        return
    yield from late_archives([WaitingRetention(str(name), bool(has), waits or 0.0) for name, has, waits in rows])


def holder(path: Path) -> Iterable[Finding]:
    """Check which server holds the database, by the presence file beside it."""
    mark = presence.file_of(path)
    if not mark.exists():
        return
    try:
        found = presence.find(path)
    except SkepError as error:
        yield Finding("server", "warn", str(mark), error.message)
        return
    proved = None if found is None else presence.proved(found)
    if found is None or proved is None:
        hint = "it does no harm, and the next start replaces it; in a container, ask there"
        yield Finding("server", "info", f"{mark} was left behind: no server here proves that it wrote it", hint)
        return
    proved.connection.close()
    yield Finding("server", "ok", f"{found.address} holds the store")


def _rows(path: Path, query: str, *bound: int) -> list[Any]:
    """The rows of a query, read-only."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return db.execute(query, bound).fetchall()
    finally:
        db.close()


_UNUSED_GROUPS = """
    SELECT q.name, g.name, max(q.floor_seq, coalesce((
               SELECT m.position & 1099511627775 FROM message AS m
               WHERE m.position BETWEEN q.id << 40 AND (q.id << 40) + 1099511627775 ORDER BY m.position DESC LIMIT 1), 0))
           - g.start_seq - g.skipped - g.completed - g.dead - g.expired AS held
    FROM queue AS q JOIN consumer_group AS g ON g.queue_id = q.id
    WHERE q.deleted_at IS NULL AND NOT g.idle AND g.active_at <= ?1
      AND (q.max_depth > 0 OR q.retention_seconds > 0 OR q.completed_retention_seconds > 0)
    ORDER BY held DESC
"""

_ARCHIVED = """
    SELECT q.name, a.seq IS NOT NULL, (?1 - (
               SELECT m.created_at FROM message AS m
               WHERE m.position BETWEEN (q.id << 40) + max(q.first_seq, coalesce(a.seq, 0) + 1) AND (q.id << 40) + 1099511627775
               ORDER BY m.position LIMIT 1)) / 1e6
           - min(iif(q.retention_seconds > 0, q.retention_seconds, 9e9),
                 iif(q.completed_retention_seconds > 0, q.completed_retention_seconds, 9e9),
                 iif(q.holds_dead_letters AND q.max_age_seconds > 0, q.max_age_seconds, 9e9))
    FROM queue AS q JOIN (
        SELECT o.id, (SELECT coalesce(min(iif(g.idle, NULL, g.archived_seq)), min(g.archived_seq))
                      FROM consumer_group AS g WHERE g.queue_id = o.id) AS seq
        FROM queue AS o) AS a ON a.id = q.id
    WHERE q.deleted_at IS NULL AND q.retention_requires_archive
"""
