"""`skep key` without a token: on the store itself, or through the server that proves that it holds the store, and through no other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from http.client import HTTPException
from typing import TYPE_CHECKING, TypeAlias, TypeVar, Union

from skep.cli.at_store import StoreChoice, on_store, settings_of
from skep.cli.connection import TIMEOUT_SECONDS, Connection
from skep.cli.exits import note
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from skep.access.presence import Presence, Proved
    from skep.client import Client
    from skep.client.exchange import ApiCall
    from skep.engine import Engine
    from skep.wire.access import AuditView, GrantItem, KeyMade, KeyView

T = TypeVar("T")
KeyServer: TypeAlias = Union["Client", "Holder"]
"""Whoever can be asked about keys."""


class Holder:
    """The server that holds the store, asked over the connection on which it has proved that."""

    def __init__(self, presence: Presence, proved: Proved) -> None:
        self._presence = presence
        self._connection = proved.connection
        self.asks_for_keys = proved.asks_for_keys
        assert self._connection.sock is not None
        self._connection.sock.settimeout(TIMEOUT_SECONDS)

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()

    def create_key(
        self,
        name: str,
        grants: Sequence[GrantItem],
        *,
        expires_at: datetime | None = None,
        requests_per_second: float | None = None,
    ) -> KeyMade:
        """Make a key."""
        from skep.client import access_calls

        return self._ask(access_calls.create_key(name, grants, expires_at, requests_per_second))

    def keys(self) -> Iterator[KeyView]:
        """All keys."""
        from skep.client import access_calls

        after: str | None = None
        while True:
            page = self._ask(access_calls.keys(after))
            yield from page.keys
            if (after := page.after) is None:
                return

    def revoke_key(self, id_: str, *, force: bool = False) -> KeyView:
        """Let a key count no longer."""
        from skep.client import access_calls

        return self._ask(access_calls.revoke_key(id_, force))

    def audit(self, *, everywhere: bool = False) -> Iterator[AuditView]:
        """What admins did, newest first."""
        from skep.client import access_calls

        after: int | None = None
        while True:
            page = self._ask(access_calls.audit(after, everywhere))
            yield from page.entries
            if (after := page.after) is None:
                return

    def _ask(self, call: ApiCall[T]) -> T:
        from skep.client.exchange import ApiResponse

        request = call.request
        headers = {"Authorization": f"Bearer {self._presence.secret}", "Content-Type": "application/json"}
        try:
            self._connection.request(request.method, request.target, request.body, headers)
            response = self._connection.getresponse()
            answer = ApiResponse(response.status, response.read())
        except (OSError, HTTPException) as error:
            raise SkepError(Code.SERVER_UNREACHABLE, f"{self._presence.address} went away: {error}") from error
        return call.read(answer)


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


def _asked(holder: Holder, there: Callable[[KeyServer], T]) -> T:
    try:
        return there(holder)
    finally:
        holder.close()


def _holder(database: Path | None, *, blame: bool) -> Holder | None:
    """The server that holds the file, if there is one that proves it; ``blame`` says why a file beside it counts for nothing."""
    from skep.access.presence import find, proved

    try:
        found = None if database is None else find(database)
    except SkepError:
        if blame:
            raise
        return None
    connected = None if found is None else proved(found)
    return None if found is None or connected is None else Holder(found, connected)


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
    if isinstance(server, Holder) and not server.asks_for_keys:
        note("the running server asks nobody for a key until it starts anew")
