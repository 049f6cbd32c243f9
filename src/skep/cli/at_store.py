"""Working on the store itself, as the server's settings name it, when there is no server to ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from cyclopts import Parameter

from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.engine import Engine

T = TypeVar("T")
AUDIT_SECONDS = 90 * 86_400.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Place:
    """Which store, when no server is asked; what is not said is left to variables, the file and the defaults."""

    store: str | None = None
    """The store to work on: a path or postgresql://…; as the server's by default."""
    data_folder: str | None = None
    """The folder of the SQLite file, ./skep-data by default."""
    config: Path | None = None
    """The file of settings; skep.toml of the working folder by default, if there is one."""


def on_store(place: Place, work: Callable[[Engine], Awaitable[T]]) -> T:
    """Run ``work`` on the store; STORE_BUSY when it is an SQLite file that a server has."""
    import asyncio
    import os

    from skep.crypto.sources import load_master_keys
    from skep.logs import configure_logs
    from skep.server import open_engine, store_url
    from skep.settings import hide_password, load

    configure_logs("error", "auto")
    flags = {"store": place.store, "data_folder": place.data_folder}
    settings = load(flags, os.environ, Path.cwd(), place.config).settings
    source = settings.encryption.master_keys
    masters = None if source is None else load_master_keys(source, os.environ)

    async def main() -> T:
        async with open_engine(store_url(settings), settings.engine, connections=2, masters=masters) as engine:
            return await work(engine)

    try:
        return asyncio.run(main())
    except SkepError as error:
        raise SkepError(error.code, hide_password(error.message, settings.store or ""), **error.details) from error


async def note(engine: Engine, action: str, *names: str) -> None:
    """Note in the audit log what was done here, and by whom."""
    from skep.keys import DONE, SERVER

    position = await engine.access.note_audit(me(), action, AUDIT_SECONDS)
    await engine.access.finish_audit(position, SERVER, names, DONE)


def me() -> str:
    """Whose process this is, as the system knows it. Variables such as LOGNAME say whatever somebody sets them to."""
    import os
    import pwd

    uid = os.getuid()
    try:
        return f"cli:{pwd.getpwuid(uid).pw_name}"
    except KeyError:  # an account that only a container knows by its number
        return f"cli:uid {uid}"
