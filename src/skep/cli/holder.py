"""`skep key` without a token: on the store itself, or through the server that proves that it holds the store, and through no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from skep.cli.at_store import StoreChoice, on_store, settings_of
from skep.cli.connection import Connection
from skep.cli.exits import note
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from pathlib import Path

    from skep.cli.proved_server import ProvedServer
    from skep.client import Client
    from skep.engine import Engine

T = TypeVar("T")
KeyServer: TypeAlias = Union["Client", "ProvedServer"]
"""Whoever can be asked about keys."""


def on_keys(
    to: Connection, place: StoreChoice | None, here: Callable[[Engine], Awaitable[T]], there: Callable[[KeyServer], T]
) -> T:
    """Do something about keys: with a token on the server that is named, else on the store or by the server that holds it.

    A variable names a server for whoever has a key for it. Without one, it does not count: that server may be somebody else's.
    """
    from skep.server.compose import sqlite_file

    if to.token is not None:
        with to.open() as client:
            return there(client)
    place = place or StoreChoice()
    database = sqlite_file(settings_of(place))
    _check_named(to, database)
    if (holder := _holder(database, blame=False)) is not None:
        return _asked(holder, there)
    try:
        return on_store(place, here)
    except SkepError as error:
        if error.code is not Code.STORE_BUSY or database is None:
            raise
    # It was perhaps about to start.
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
    """The server that holds the file, if there is one that proves it; ``blame`` says why a file beside it counts for nothing."""
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


def _check_named(to: Connection, database: Path | None) -> None:
    """Refuse servers that were named, without a key for them, unless they are the one that holds the store."""
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
    """Say that a server which asks nobody goes on so until it starts anew."""
    from skep.cli.proved_server import ProvedServer

    if isinstance(server, ProvedServer) and not server.asks_for_keys:
        note("the running server asks nobody for a key until it starts anew")
