"""Connections to PostgreSQL: the pool, the settings of a session, retries of transactions, and errors in our words.

The name of a session (application_name) has the pool and a generation. When the outcome of a call is unknown, the pool opens the next
generation, and ends the sessions of all earlier ones: a call that has not taken effect by then never will.

A transaction that loses a deadlock or a serialization race is tried again a bounded number of times, with its
connection given back between tries. Everything else that goes wrong becomes a `SkepError` with a ``STORE_…`` code.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias, TypeVar, TypeVarTuple
from urllib.parse import urlsplit

import asyncpg

from skep.errors import Code, SkepError
from skep.model.chores import Connections
from skep.store.pieces import Pieces
from skep.store.postgres.demand import Demand

Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TRIES = 5
RETRY_WAIT_SECONDS = 0.005
STATEMENT_TIMEOUT_MS = 30_000
LOCK_TIMEOUT_MS = 5_000
COMMAND_SECONDS = 40.0
"""How long a statement may be without an answer. PostgreSQL ends it before that, so nobody is at the other end of its session any more."""
PIECE_SECONDS = 0.01
"""About how long one piece of a chore may take: until its commit it holds locks, and uses a share of the machine."""
PROBE_SECONDS = 5.0
CONNECT_SECONDS = 5.0
LEAVE_SECONDS = 5.0
FENCE_SECONDS = 30.0  # ending a session takes PostgreSQL milliseconds, and seconds where the machine has no time for it
FENCE_LOOK_SECONDS = 0.02

# The store has few statements; each is short and uses an index. Generic plans cost no planning, and may not scan a whole table or join
# over such a scan, whatever the statistics say; tests hold the plans. Pages cost nothing, so that the size of a small table does not make
# the walk over a whole index look cheaper than a look-up in another one (ADR 0034).
SESSION = {
    "application_name": "skep",  # a pool puts its name and generation here
    "search_path": "skep",
    "timezone": "UTC",
    "statement_timeout": str(STATEMENT_TIMEOUT_MS),
    "lock_timeout": str(LOCK_TIMEOUT_MS),
    "idle_in_transaction_session_timeout": "60000",
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_mergejoin": "off",
    "enable_hashjoin": "off",
    "enable_bitmapscan": "off",
    "enable_material": "off",
    "enable_memoize": "off",
    "random_page_cost": "0",
    "seq_page_cost": "0",
    "jit": "off",
    "synchronous_commit": "on",
}

_UNAVAILABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.ConnectionDoesNotExistError,
    # All of class 57 but a cancelled statement: the database was dropped, or the session was idle for too long.
    asyncpg.OperatorInterventionError,
    # A file or a disk of the server's fails (class 58).
    asyncpg.PostgresSystemError,
    # A standby cannot take some locks.
    asyncpg.ObjectNotInPrerequisiteStateError,
    # None of the named servers takes writes, or the program that answers is not PostgreSQL.
    asyncpg.InternalClientError,
    # The database or the role does not exist, or lacks a right: an administrator must correct that.
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InsufficientPrivilegeError,
    OSError,
    TimeoutError,
)
_READ_ONLY = asyncpg.ReadOnlySQLTransactionError
"""A standby, `default_transaction_read_only`, or a managed service whose disk is full."""
_LATE = (
    asyncpg.LockNotAvailableError,
    asyncpg.QueryCanceledError,
    asyncpg.ObjectInUseError,
    asyncpg.IdleInTransactionSessionTimeoutError,
)
_RETRIED = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError)


async def _prepare(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    # Ids are 16 raw bytes on our side; text and UUID objects would cost more than the insert itself.
    await connection.set_type_codec("uuid", schema="pg_catalog", encoder=_same, decoder=_same, format="binary")


async def _leave(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Do nothing: the store leaves no state in a session, and the default reset would cost a round trip each time."""


def _same(value: bytes) -> bytes:
    return value


# All sessions of some pools, except those of one generation. An ended session is listed until it has released everything.
END_SESSIONS = """
SELECT pg_terminate_backend(a.pid) FROM pg_stat_activity a
WHERE split_part(a.application_name, '.', 1) = ANY ($1) AND a.application_name <> $2
"""
IS_READ_ONLY = "SELECT current_setting('transaction_read_only')::boolean"
# The smallest write: a record in the write-ahead log that nobody reads. When it returns, its commit is on disk, and on the synchronous
# standbys.
WRITE = "SELECT pg_logical_emit_message(true, 'skep', 'probe')"
READ_ONLY = "PostgreSQL is read-only: promote the standby, reset default_transaction_read_only, or give it room, whichever is the reason"


class Pool:
    """A bounded pool of sessions set up for the store."""

    def __init__(self, dsn: str, max_connections: int, server: bytes) -> None:
        """``server`` identifies this server's watchers (functions/watching.sql)."""
        self._dsn = dsn
        self._max = max_connections
        self._server = server
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._random = random.Random()
        self._pieces = Pieces(PIECE_SECONDS)
        self._demand = Demand()
        self.name = f"skep {secrets.token_hex(6)}"
        """The prefix of its sessions' names (application_name); a generation follows."""
        self._generation = 1
        self._suspended = False
        self._acquiring: set[asyncio.Timeout] = set()
        self._calls: dict[object, float] = {}
        self._resuming = asyncio.Lock()

    async def open(self) -> None:
        """Connect; STORE_UNAVAILABLE, with the address, when the database cannot be reached."""
        try:
            with translated():
                self._pool = await self._make(f"{self.name}.{self._generation}", 60.0)
        except SkepError as error:
            raise SkepError(error.code, f"{error.message} (at {_address(self._dsn)})", **error.details) from error

    async def _make(self, session: str, connect_seconds: float) -> asyncpg.Pool[asyncpg.Record]:
        return await asyncpg.create_pool(
            self._dsn,
            min_size=1,
            max_size=self._max,
            init=_prepare,
            reset=_leave,
            server_settings={**SESSION, "application_name": session, "skep.server": self._server.hex()},
            command_timeout=COMMAND_SECONDS,
            timeout=connect_seconds,
        )

    async def close(self) -> None:
        """Let running transactions finish for a while, then disconnect."""
        pool, self._pool = self._pool, None
        if pool is not None and not self._suspended:
            await _leave_pool(pool)

    # being cut off

    def suspend(self) -> None:
        """Give up all sessions at once; all calls fail with STORE_UNAVAILABLE until `resume`."""
        self._suspended = True
        if self._pool is not None:
            self._pool.terminate()
        for patience in self._acquiring:
            patience.reschedule(0)

    async def probe(self) -> None:
        """Return when the database answers and can be written to.

        It uses a connection of its own, as those of the pool may all be busy. A refusal for too many connections is an answer, too.
        """
        if self._suspended:
            raise SkepError(Code.STORE_UNAVAILABLE, "PostgreSQL is away")
        with translated(), suppress(asyncpg.TooManyConnectionsError):
            connection = await asyncpg.connect(self._dsn, timeout=PROBE_SECONDS, command_timeout=PROBE_SECONDS)
            try:
                await _check_writable(connection)
            finally:
                connection.terminate()

    def waited_seconds(self) -> float:
        """How long the oldest call has been under way."""
        return time.monotonic() - next(iter(self._calls.values())) if self._calls else 0.0

    async def resume(self) -> None:
        """Open the next generation of sessions, and end those of the earlier ones."""
        async with self._resuming:
            self._generation += 1
            session = f"{self.name}.{self._generation}"
            with translated():
                fresh = await self._make(session, CONNECT_SECONDS)
                try:
                    async with asyncio.timeout(CONNECT_SECONDS), fresh.acquire() as connection:
                        await _check_writable(connection)
                    left, self._pool = (None if self._suspended else self._pool), fresh
                    if left is not None:
                        await _leave_pool(left)
                    async with fresh.acquire() as connection:
                        await _end_sessions(connection, [self.name], session)
                except BaseException:
                    if self._suspended or self._pool is not fresh:
                        fresh.terminate()
                    raise
            self._suspended = False

    async def fence(self, sessions: Sequence[str]) -> None:
        """End all sessions of other pools, by the names of the pools."""
        async with self.connection() as connection:
            await _end_sessions(connection, [name for name in sessions if name != self.name], "")

    def connections(self) -> Connections:
        """How many sessions are busy and idle, and how many calls wait for one."""
        if self._pool is None:
            return Connections()
        idle = self._pool.get_idle_size()
        waiting = max(0, self._demand.present - self._max)
        wanted = self._demand
        return Connections(
            self._pool.get_size() - idle, idle, waiting, wanted.average() / self._max, wanted.wait_seconds(self._max)
        )

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A session for reading, or for one statement that is a transaction by itself."""
        call = object()
        self._calls[call] = time.monotonic()
        try:
            with translated(), self._demand:
                pool, connection = await self._acquire()
                try:
                    yield connection
                except TimeoutError:
                    await self._leave_silent(connection)
                    raise
                except _READ_ONLY:
                    # Other sessions may lead to the same server, while another one takes writes by now: each is opened anew at its next use.
                    await pool.expire_connections()
                    raise
                finally:
                    with suppress(asyncpg.InterfaceError):  # the pool was given up meanwhile
                        await pool.release(connection)
        finally:
            del self._calls[call]

    async def _acquire(self) -> tuple[asyncpg.Pool[asyncpg.Record], Connection]:
        while True:
            pool = self._pool
            if pool is None:
                raise SkepError(Code.STORE_UNAVAILABLE, "the PostgreSQL store is closed")
            if self._suspended:
                raise SkepError(Code.STORE_UNAVAILABLE, "PostgreSQL is away")
            async with asyncio.timeout(None) as patience:
                self._acquiring.add(patience)
                try:
                    connection = await pool.acquire()
                except asyncpg.InterfaceError:
                    if pool is self._pool:
                        raise
                    continue  # it was given up while we waited, and there is another one
                finally:
                    self._acquiring.discard(patience)
            if pool is self._pool and not self._suspended:
                return pool, connection
            # This session is of a generation that was given up while we waited, and may be fenced already: it must do nothing.
            connection.terminate()
            with suppress(asyncpg.InterfaceError):
                await pool.release(connection)

    async def _leave_silent(self, connection: Connection) -> None:
        """Give up a session that does not answer. Else asyncpg would wait as long again for it to cancel the statement, and to roll back."""
        with suppress(asyncpg.InterfaceError):  # it was given up already
            connection.terminate()
        if self._pool is not None:
            # What lost this session may have lost those beside it: each is opened anew at its next use.
            await self._pool.expire_connections()

    async def _unless_silent(
        self, connection: Connection, work: Callable[[Connection, *Ts], Awaitable[T]], *arguments: *Ts
    ) -> T:
        """Run ``work`` within a transaction, which is not rolled back in a session that does not answer."""
        try:
            return await work(connection, *arguments)
        except TimeoutError:
            await self._leave_silent(connection)
            raise

    async def once(self, work: Callable[[Connection, *Ts], Awaitable[T]], *arguments: *Ts) -> T:
        """Run ``work``, in which each statement is a transaction; when it loses a race, run it again from its beginning."""
        for attempt in range(1, TRIES + 1):
            try:
                async with self.connection() as connection:
                    return await work(connection, *arguments)
            except SkepError as error:
                if not isinstance(error.__cause__, _RETRIED) or attempt == TRIES:
                    raise
            await asyncio.sleep(RETRY_WAIT_SECONDS * 2**attempt * self._random.random())
        raise AssertionError("unreachable")

    async def transaction(self, work: Callable[[Connection, *Ts], Awaitable[T]], *arguments: *Ts) -> T:
        """Run ``work`` in one transaction; when it loses a race, run it again from its beginning."""

        async def inside(connection: Connection) -> T:
            async with connection.transaction(isolation="read_committed"):  # whatever the database's default is
                return await self._unless_silent(connection, work, *arguments)

        return await self.once(inside)

    async def snapshot(self, work: Callable[[Connection, *Ts], Awaitable[T]], *arguments: *Ts) -> T:
        """As `transaction`, with one snapshot for all statements."""

        async def inside(connection: Connection) -> T:
            async with connection.transaction(isolation="repeatable_read"):
                # The snapshot must be younger than a compaction it may have to wait for (functions/compact.sql).
                await connection.execute(
                    "LOCK TABLE consumer_group, partition_lease, set_lease, group_counter IN ACCESS SHARE MODE"
                )
                return await self._unless_silent(connection, work, *arguments)

        return await self.once(inside)

    async def piece(
        self, kind: str, work: Callable[[Connection, int], Awaitable[T]], most: int, more: Callable[[T], bool]
    ) -> T:
        """Run a piece of a chore in one transaction: ``work`` gets the number of messages it may touch, at most ``most``.

        ``more`` tells from the result whether there is more to do.
        """
        size = self._pieces.size(kind, most)

        async def timed(connection: Connection) -> tuple[T, float]:
            begun = time.perf_counter()
            return await work(connection, size), time.perf_counter() - begun

        done, seconds = await self.transaction(timed)
        self._pieces.took(kind, size, seconds, more(done))
        return done


def _address(dsn: str) -> str:
    """The address of a database, without user and password."""
    parts = urlsplit(dsn)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _check_writable(connection: Connection | asyncpg.Connection[asyncpg.Record]) -> None:
    """Commit a small write; STORE_UNAVAILABLE when the database is read-only."""
    if await connection.fetchval(IS_READ_ONLY):
        raise SkepError(Code.STORE_UNAVAILABLE, READ_ONLY)
    await connection.fetchval(WRITE)


async def _leave_pool(pool: asyncpg.Pool[asyncpg.Record]) -> None:
    """Let calls that are under way finish for a while; then end them."""
    try:
        async with asyncio.timeout(LEAVE_SECONDS):
            await pool.close()
    except TimeoutError:
        pool.terminate()


async def _end_sessions(connection: Connection, names: list[str], but: str) -> None:
    """End all sessions of these pools except ``but``, and wait until they are gone."""
    try:
        async with asyncio.timeout(FENCE_SECONDS):
            while await connection.fetch(END_SESSIONS, names, but):  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(FENCE_LOOK_SECONDS)
    except TimeoutError:
        raise SkepError(Code.STORE_BUSY, "PostgreSQL does not end sessions of before an outage") from None


class translated:  # noqa: N801 - reads as a word at its call sites
    """Turns what asyncpg raises inside it into a `SkepError`."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, SkepError | asyncio.CancelledError):
            return
        known = _translate(error)
        if known is not None:
            raise known from error


def _translate(error: BaseException) -> SkepError | None:
    text = str(error) or type(error).__name__
    if isinstance(error, _RETRIED):
        return SkepError(Code.STORE_BUSY, f"PostgreSQL kept finding this transaction in conflict with others: {text}")
    if isinstance(error, _LATE):
        return SkepError(Code.STORE_BUSY, f"PostgreSQL did not get to this in time: {text}")
    if isinstance(error, _READ_ONLY):
        return SkepError(Code.STORE_UNAVAILABLE, f"{READ_ONLY} ({text})")
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return SkepError(Code.STORE_UNAVAILABLE, f"PostgreSQL cannot be used: {text}")
    if isinstance(error, asyncpg.InsufficientResourcesError):
        return SkepError(Code.STORE_FULL, f"PostgreSQL has no room left: {text}")
    if isinstance(error, asyncpg.DataCorruptedError | asyncpg.IndexCorruptedError):
        return SkepError(Code.STORE_CORRUPT, f"PostgreSQL reports damaged data: {text}")
    if isinstance(error, _UNAVAILABLE):
        return SkepError(Code.STORE_UNAVAILABLE, f"PostgreSQL cannot be used: {text}")
    if isinstance(error, asyncpg.PostgresError):
        return SkepError(Code.INTERNAL, f"PostgreSQL refused a statement of ours: {text}", sqlstate=error.sqlstate)
    return None
