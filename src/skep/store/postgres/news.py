"""News between servers: pushes to queues that another server watches, and waiting operations.

NOTIFY takes a lock that is global to the database. So notices are sent outside the push's transaction, for several queues together,
at most every few milliseconds. Pushes are announced only when another server watches the queue.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Sequence

import asyncpg
import msgspec
import structlog

from skep.model import QueueKey

CHANNEL = "skep_news"
OPERATIONS_CHANNEL = "skep_operations"
COALESCE_SECONDS = 0.01
PATIENCE_SECONDS = 5.0
"""How long the connection may take to open, to answer, or to close. After that it is given up, and another is opened."""
AGAIN_SECONDS = 1.0
"""Between two tries to open the connection again."""
LOST = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""The connection is lost, or cannot be opened. The last one says that none of the named servers takes writes, as in a failover."""

NOTIFY = """
SELECT pg_notify($1, json_build_array(encode($2, 'hex'), q.tenant, q.name)::text) FROM queue q WHERE q.id = ANY ($3)
"""
NOTIFY_OPERATIONS = "SELECT pg_notify($1, encode($2, 'hex'))"

log = structlog.get_logger("skep.store.postgres")


class News:
    """One listening connection per server, opened at the first wait. Several notices are sent together."""

    def __init__(self, dsn: str) -> None:
        self.server = secrets.token_bytes(16)
        self._dsn = dsn
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._using = asyncio.Lock()
        self._callback: Callable[[QueueKey], None] | None = None
        self._missed: Callable[[], None] | None = None
        self._on_operations: Callable[[], None] | None = None
        self._closed = False
        self._catching_up: asyncio.Task[None] | None = None
        self._pending: set[int] = set()
        self._operations_pending = False
        self._sender: asyncio.Task[None] | None = None

    def on_news(self, callback: Callable[[QueueKey], None], missed: Callable[[], None]) -> None:
        """Call back for every queue that another server pushed to, and ``missed`` when the connection was lost and is back."""
        self._callback, self._missed = callback, missed

    def on_operations(self, callback: Callable[[], None]) -> None:
        """Call back when another server has operations that wait."""
        self._on_operations = callback

    async def listen(self) -> None:
        """Connect, if there is no connection. A lost connection is opened again at the next call."""
        async with self._opening:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(
                    self._dsn,
                    server_settings={"search_path": "skep"},
                    timeout=PATIENCE_SECONDS,
                    command_timeout=PATIENCE_SECONDS,
                )
                await self._connection.add_listener(CHANNEL, self._heard)
                await self._connection.add_listener(OPERATIONS_CHANNEL, self._heard_operations)
                self._connection.add_termination_listener(self._lost)

    @contextlib.asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """The connection, for exclusive use by calls that must not wait for the pool."""
        async with self._using:
            await self.listen()
            connection = self._connection
            assert connection is not None
            try:
                yield connection
            except TimeoutError:
                connection.terminate()
                raise

    def announce(self, queue_ids: Sequence[int]) -> None:
        """Tell other servers, soon, that these queues have new messages."""
        if queue_ids:
            self._pending.update(queue_ids)
            self._send_soon()

    def announce_operations(self) -> None:
        """Tell other servers, soon, that operations wait."""
        self._operations_pending = True
        self._send_soon()

    async def close(self) -> None:
        """Send pending notices and disconnect."""
        self._closed = True
        if self._catching_up is not None:
            self._catching_up.cancel()
            await asyncio.wait([self._catching_up])
        if self._sender is not None:
            await self._sender
        if self._connection is not None:
            with contextlib.suppress(*LOST):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._connection.close()
            self._connection.terminate()

    def _lost(self, _connection: object) -> None:
        if not self._closed and (self._catching_up is None or self._catching_up.done()):
            self._catching_up = asyncio.get_running_loop().create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Listen again, and then let all who wait look once: pushes meanwhile were announced to nobody."""
        while True:
            try:
                await self.listen()
                break
            except LOST as error:
                log.warning("news not heard", error=str(error))
                await asyncio.sleep(AGAIN_SECONDS)
        if self._missed is not None:
            self._missed()
        if self._on_operations is not None:
            self._on_operations()

    def _send_soon(self) -> None:
        if self._sender is None or self._sender.done():
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        # Announcements during a send go out with the next one.
        while self._pending or self._operations_pending:
            await asyncio.sleep(COALESCE_SECONDS)
            ids, self._pending = self._pending, set()
            operations, self._operations_pending = self._operations_pending, False
            try:
                async with self.connection() as connection:
                    if ids:
                        await connection.execute(NOTIFY, CHANNEL, self.server, list(ids))
                    if operations:
                        await connection.execute(NOTIFY_OPERATIONS, OPERATIONS_CHANNEL, self.server)
            except LOST as error:
                # Waiting polls look by themselves every few seconds, so a lost notice costs only time.
                log.warning("news not sent", error=str(error))

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        server, tenant, name = msgspec.json.decode(str(payload), type=tuple[str, str, str])
        if self._callback is not None and server != self.server.hex():
            self._callback(QueueKey(name, tenant))

    def _heard_operations(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        if self._on_operations is not None and payload != self.server.hex():
            self._on_operations()
