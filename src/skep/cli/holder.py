"""`skep key` without a token: work on the store itself, or ask the server that holds the store. That server has to prove it first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from skep.cli.at_store import StoreChoice, on_store, settings_of
from skep.cli.connection import ServerOptions
from skep.cli.exits import note
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from pathlib import Path

    from skep.cli.proved_server import ProvedServer
    from skep.client import Client
    from skep.engine import Engine

T = TypeVar("T")
KeyServer: TypeAlias = Union["Client", "ProvedServer"]
"""A client or a proved server: both can be asked about keys."""


def on_keys(
    to: ServerOptions, place: StoreChoice, here: Callable[[Engine], Awaitable[T]], there: Callable[[KeyServer], T]
) -> T:
    """Make a call about keys: with a token to the named server, else on the store, or to the server that holds the store.

    Without a token, a server that only a variable (SKEP_URL) names is not asked: it may be a server of another store.
    """
    from skep.server.stores import sqlite_file

    if to.token is not None:
        with to.open() as client:
            return there(client)
    database = sqlite_file(settings_of(place))
    _check_named(to, database)
    if (holder := _holder(database, blame=False)) is not None:
        return _asked(holder, there)
    try:
        return on_store(place, here)
    except SkepError as error:
        if error.code is not Code.STORE_BUSY or database is None:
            raise
    # A server was perhaps about to start: look once more.
    if (holder := _holder(database, blame=True)) is not None:
        return _asked(holder, there)
    raise SkepError(
        Code.STORE_BUSY,
        f"another process holds {database}, and no server proves that it is the one: try again if it is just starting, show the "
        "key of an admin (--token) if it runs in a container or on another machine, or stop it",
    )


def _asked(holder: ProvedServer, there: Callable[[KeyServer], T]) -> T:
    try:
        return there(holder)
    finally:
        holder.close()


def _holder(database: Path | None, *, blame: bool) -> ProvedServer | None:
    """The server that holds the file, if a server proves that. ``blame`` raises the reason why its presence file does not count."""
    from skep.access.presence import find, proved
    from skep.cli.proved_server import ProvedServer

    try:
        found = None if database is None else find(database)
    except SkepError:
        if blame:
            raise
        return None
    connected = None if found is None else proved(found)
    return None if found is None or connected is None else ProvedServer(found, connected)


def _check_named(to: ServerOptions, database: Path | None) -> None:
    """Refuse servers named by `--url` without a token, unless they prove that they hold the store."""
    from skep.access.presence import find, proved

    for url in to.said_urls:
        found = None if database is None else find(database)
        connected = None if found is None else proved(found, url)
        if connected is None:
            raise SkepError(
                Code.UNAUTHENTICATED,
                f"{url} does not prove that it holds the store {database or 'that the settings name'}, so it is asked with a key "
                "only: show one of an admin (--token), or leave out --url to work on the store itself",
            )
        connected.connection.close()


def say_when_it_counts(server: KeyServer) -> None:
    """Say that a running server without keys asks for keys only after its next start."""
    from skep.cli.proved_server import ProvedServer

    if isinstance(server, ProvedServer) and not server.asks_for_keys:
        note("the running server asks nobody for a key until it starts anew")
