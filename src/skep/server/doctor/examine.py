"""Is this machine fit to serve? Each check looks at one thing, changes nothing, and names the cure of a problem."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from skep.config import ServerSettings
from skep.crypto.sources import load_master_keys
from skep.errors import SkepError
from skep.runtime.fitness import Finding, folder, python
from skep.server.compose import secret_paths
from skep.server.doctor.machine import extras, fsync, java, permissions, port
from skep.server.doctor.sqlite import (
    holder,
    sqlite,
    sqlite_apps,
    sqlite_archives,
    sqlite_groups,
    sqlite_schema,
    sqlite_sealed,
)
from skep.server.stores import is_shared, private_paths, sqlite_file
from skep.spec import App, SpecError, from_json
from skep.spec.secrets import secret_files


async def examine(settings: ServerSettings, secret_file: Path | None = None) -> list[Finding]:
    """Everything that `skep serve` would need with these settings; ``secret_file`` is the settings file, when it holds a secret."""
    secrets = secret_paths(settings) if secret_file is None else [secret_file, *secret_paths(settings)]
    store, documents, sealed = settings.store or "", list[bytes](), False
    findings = [python(), *await asyncio.to_thread(lambda: list(sqlite()))]
    if is_shared(store):
        from skep.server.doctor.postgres import postgres

        found, documents, sealed = await postgres(store)
        findings += found
        if settings.engine.spool.enabled:  # where pushes are kept while the database is away
            findings += await asyncio.to_thread(lambda: list(data_folder(Path(settings.data_folder))))
    elif (database := sqlite_file(settings)) is not None:
        findings += await asyncio.to_thread(file, database)
        documents = await asyncio.to_thread(sqlite_apps, database)
        sealed = await asyncio.to_thread(sqlite_sealed, database)
    secrets += secret_files(apps_of(documents), os.environ)
    findings += await asyncio.to_thread(lambda: list(permissions(private_paths(settings), secrets)))
    findings += await asyncio.to_thread(lambda: list(master_keys(settings.encryption.master_keys, sealed)))
    return [*findings, *await port(settings), *extras(), await asyncio.to_thread(java)]


def data_folder(path: Path) -> Iterator[Finding]:
    """Check the data folder of the server."""
    return folder("data folder", path, "name another folder")


def file(path: Path) -> list[Finding]:
    """All checks of an SQLite file."""
    store = [*sqlite_schema(path), *sqlite_groups(path), *sqlite_archives(path)]
    return [*data_folder(path.parent), *fsync(path.parent), *store, *holder(path)]


def apps_of(documents: Iterable[bytes]) -> Iterator[App]:
    """The apps that specs declare; those that this program cannot read are left out."""
    for document in documents:
        with suppress(SpecError):
            yield from_json(document)


def master_keys(source: str | None, needed: bool) -> Iterable[Finding]:
    """Check that the server gets its master keys. A command that would print them is not run."""
    if source is None and needed:
        hint = "set encryption.master_keys: the server does not start without"
        yield Finding("master keys", "fail", "queues are encrypted, and no master keys are named", hint)
    if source is None or source.startswith("command:"):
        return
    try:
        load_master_keys(source, os.environ)
    except SkepError as error:
        yield Finding("master keys", "fail", error.message, "the server does not start without its master keys")
    else:
        yield Finding("master keys", "ok", "there are some")
