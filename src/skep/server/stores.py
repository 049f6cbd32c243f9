"""The store of a server, and where its files are: the only place that names concrete stores.

It loads no engine and no HTTP: the owner of an SQLite file needs neither, nor does a command that looks for the file.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import structlog

from skep.access import presence
from skep.clock import Clock
from skep.config import ServerSettings
from skep.config.load import check_postgres_url
from skep.errors import Code, SkepError
from skep.runtime.private_files import make_folder
from skep.store.protocol import Store

SQLITE_SCHEME = "sqlite:///"
DATABASE_NAME = "skep.db"
SPOOL_NAME = "spool"
MEMORY = ":memory:"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")

log = structlog.get_logger("skep.server")


def is_shared(url: str) -> bool:
    """Whether several servers may use the store at once."""
    return url.startswith(POSTGRES_SCHEMES)


def open_store(url: str, clock: Clock, connections: int | None = None, log_cache_bytes: int | None = None) -> Store:
    """The store of a URL, not opened yet: ``sqlite:///path``, a path, ``:memory:`` or ``postgresql://…``."""
    if is_shared(url):
        check_postgres_url(url)
        try:
            from skep.store.postgres.database import MAX_CONNECTIONS
            from skep.store.postgres.store import LOG_CACHE_BYTES, PostgresStore
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("asyncpg"):
                raise
            message = "PostgreSQL needs the extra: pip install 'skep[postgres]'"
            raise SkepError(Code.STORE_UNAVAILABLE, message) from None
        kept = LOG_CACHE_BYTES if log_cache_bytes is None else log_cache_bytes
        return PostgresStore(url, max_connections=connections or MAX_CONNECTIONS, log_cache_bytes=kept, clock=clock)
    from skep.store.sqlite import SqliteStore

    path = url.removeprefix(SQLITE_SCHEME)
    if "://" in path or not path or path.startswith(("sqlite:", "postgres:", "postgresql:")):  # slashes were forgotten
        raise SkepError(Code.INVALID_REQUEST, "a store is sqlite:///path, a path, :memory: or postgresql://…")
    return SqliteStore(path)


def store_url(settings: ServerSettings) -> str:
    """The URL of the settings' store. A missing data folder is created."""
    if settings.store is not None:
        return settings.store
    folder = Path(settings.data_folder)
    try:
        make_folder(folder)
    except OSError as error:
        raise SkepError(
            Code.STORE_UNAVAILABLE,
            f"cannot make the data folder {folder}: {error.strerror}; name another with --data-folder",
        ) from None
    return str(folder / DATABASE_NAME)


def spool_folder(settings: ServerSettings) -> Path | None:
    """The folder of the spool, for pushes while PostgreSQL is away; None without a spool. SQLite is local and needs none."""
    if not (settings.engine.spool.enabled and is_shared(settings.store or "")):
        return None
    folder = Path(settings.data_folder) / SPOOL_NAME
    try:
        make_folder(folder.parent)
        make_folder(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        # A server that has no disk of its own worked before there was a spool.
        log.warning(
            "pushes will fail while PostgreSQL is away, since they cannot be kept here: name another folder with "
            "--data-folder, or switch this off with --set spool.enabled=false",
            folder=str(folder), error=error.strerror,
        )  # fmt: skip
        return None
    return folder


def sqlite_file(settings: ServerSettings) -> Path | None:
    """The SQLite file of the settings; None for PostgreSQL or memory. Nothing is created."""
    if settings.store is None:
        return Path(settings.data_folder) / DATABASE_NAME
    path = settings.store.removeprefix(SQLITE_SCHEME)
    return None if is_shared(path) or path == MEMORY else Path(path)


def private_paths(settings: ServerSettings) -> list[Path]:
    """Files of this server on this machine that no other account should read."""
    data, path = Path(settings.data_folder), sqlite_file(settings)
    if is_shared(settings.store or ""):
        return [data, data / SPOOL_NAME] if settings.engine.spool.enabled else []
    if path is None:
        return []
    own = [data] if settings.store is None else []
    return [*own, *(Path(f"{path}{end}") for end in ("", "-wal", "-shm", ".lock", presence.ENDING))]
