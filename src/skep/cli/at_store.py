"""Work on the store itself, without a server. The settings of the server name the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cyclopts import Parameter

from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.config import ServerSettings
    from skep.engine import Engine

T = TypeVar("T")
DAY_SECONDS = 86_400.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class StoreChoice:
    """The store to work on without a server. A missing option comes from a variable, the file or the default."""

    store: str | None = None
    """The store to work on: a path or postgresql://…; by default the store of the server's settings."""
    data_folder: str | None = None
    """The folder of the SQLite file, ./skep-data by default."""
    config: Path | None = None
    """The file of settings; skep.toml of the working folder by default, if there is one."""


def settings_of(place: StoreChoice) -> ServerSettings:
    """The settings of a server that would start here."""
    import os

    from skep.config.load import load

    flags = {"store": place.store, "data_folder": place.data_folder}
    return load(flags, os.environ, Path.cwd(), place.config).settings


def on_store(place: StoreChoice, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Run ``work`` on the store; STORE_BUSY when the store is an SQLite file and a server holds it."""
    import asyncio
    import os

    from skep.config.load import hide_password
    from skep.crypto.sources import load_master_keys
    from skep.runtime.logs import configure_logs
    from skep.server.compose import open_engine
    from skep.server.stores import store_url

    configure_logs("error", "auto")
    settings = settings_of(place)
    source = settings.encryption.master_keys
    masters = None if source is None else load_master_keys(source, os.environ)

    async def main() -> T:
        async with open_engine(store_url(settings), settings.engine, connections=2, masters=masters) as engine:
            return await work(engine)

    try:
        return asyncio.run(main())
    except SkepError as error:
        raise SkepError(error.code, hide_password(error.message, settings.store or ""), **error.details) from error


def say_where(place: StoreChoice) -> None:
    """Say in which store the key was made. A user in the wrong folder would not notice otherwise."""
    import os

    from skep.cli import exits
    from skep.config.load import without_password
    from skep.server.stores import sqlite_file

    settings = settings_of(place)
    file = sqlite_file(settings)
    where = without_password(settings.store or "") if file is None else str(file.absolute())
    unasked = "; without a token SKEP_URL does not count, and no server was asked" if os.environ.get("SKEP_URL") else ""
    exits.note(f"the key is in the store {where}{unasked}")


async def note(
    engine: Engine,
    place: StoreChoice,
    action: str,
    *names: str,
    target: str,
    before: str | None = None,
    after: str | None = None,
) -> None:
    """Note in the audit log what this command did, and for which account. The settings say how long the entry is kept."""
    from skep.http.auditing import verb_of
    from skep.model.key import SERVER, AuditDetail, AuditOutcome

    keep_seconds = settings_of(place).access.audit_days * DAY_SECONDS
    position = await engine.access.note_audit(me(), action, keep_seconds)
    detail = AuditDetail(verb=verb_of(action), target=target, before=before, after=after)
    await engine.access.finish_audit(position, SERVER, names, AuditOutcome.DONE, detail)


def me() -> str:
    """The account that runs this command, as the audit log names it."""
    from skep.runtime.private_files import account

    return f"cli:{account()}"
