"""An SQLite file with its owner, as workers have it; here all of them are in one process."""

from __future__ import annotations

import secrets
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from skep.clock import Clock
from skep.store.remote.owner import Owner
from skep.store.remote.store import RemoteStore
from skep.store.sqlite import SqliteStore


def socket_path() -> Path:
    """Where a socket can be: the folders of tests have names that are too long for one."""
    return Path(tempfile.gettempdir()) / f"skep-{secrets.token_hex(4)}"


@asynccontextmanager
async def owned(database: Path, clock: Clock, at: Path | None = None) -> AsyncIterator[Path]:
    """The owner of a file while the block runs; the socket that it is reached by."""
    at = at or socket_path()
    store = SqliteStore(database)
    await store.open()
    owner = Owner(store, clock)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(at))
    try:
        await owner.listen(listening)
        yield at
    finally:
        await owner.close()
        await store.close()
        at.unlink(missing_ok=True)


class OwnedStore(RemoteStore):
    """A worker's store. Opening it opens the file and its owner as well; closing it ends all of them."""

    def __init__(self, database: Path, clock: Clock) -> None:
        self._at = socket_path()
        super().__init__(self._at)
        self._database, self._clock = database, clock
        self._stack = AsyncExitStack()

    async def open(self) -> None:
        await self._stack.enter_async_context(owned(self._database, self._clock, self._at))
        await super().open()

    async def close(self) -> None:
        await super().close()
        await self._stack.aclose()
