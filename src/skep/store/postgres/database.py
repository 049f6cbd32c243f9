"""One PostgreSQL database as a server uses it: its sessions, its notices to other servers, and how verbs run.

A verb is a function of a connection, or of the whole `Database` when a connection is not enough. `written`, `announced`, `read` and
`read_at_once` turn the former into methods of a store; the latter are methods as they are.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from skep.clock import Clock, Instant, SystemClock
from skep.errors import SkepError
from skep.store.postgres.connection import Connection, Pool
from skep.store.postgres.news import News
from skep.store.postgres.schema import migrate
from skep.store.rules import Attendance, HeadWalk
from skep.store.statements import load_statements

SQL = load_statements(__package__, "watching")
CLOCK = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
SHARDS = 16
MAX_CONNECTIONS = 10

T = TypeVar("T")
P = ParamSpec("P")


class Database:
    """The pool, the notices and the state that all verbs of a server share."""

    def __init__(self, dsn: str, max_connections: int, clock: Clock | None) -> None:
        self.news = News(dsn)
        self.pool = Pool(dsn, max_connections, self.news.server)
        # Counters are kept by shard: servers with the same shard wait for each other a little, and of sixteen few have.
        self.shard = secrets.randbelow(SHARDS)
        self.head_walk = HeadWalk()
        self.attendance = Attendance()
        self._clock = clock

    async def open(self) -> None:
        """Connect, migrate, and set the clock by the database's."""
        await self.pool.open()
        await self.pool.transaction(migrate)
        await self._follow_clock()

    async def close(self) -> None:
        """Finish what runs and disconnect."""
        await self.news.close()
        await self.pool.close()

    async def _follow_clock(self) -> None:
        if isinstance(self._clock, SystemClock):
            async with self.pool.connection() as connection:
                asked_at = time.monotonic_ns()
                reference = Instant(await connection.fetchval(CLOCK))
                self._clock.follow(reference, (time.monotonic_ns() - asked_at) // 1_000)

    async def tell_waiting(self, queues: list[int], now: Instant) -> None:
        """Notify other servers that wait for messages of these queues.

        This comes after the commit: a server that begins to wait later finds the messages. A lost notice only costs time.
        """
        if not queues:
            return
        with suppress(SkepError):
            async with self.pool.connection() as connection:
                self.news.announce([row["id"] for row in await connection.fetch(SQL["watched"], queues, now)])


class Part:
    """A part of a store with its own name, such as ``store.records``, over the store's connections."""

    def __init__(self, db: Database) -> None:
        self.pool = db.pool
        self.news = db.news


Verb = Callable[Concatenate[Connection, P], Awaitable[T]]
Method = Callable[Concatenate[Database | Part, P], Coroutine[Any, Any, T]]


def written(verb: Verb[P, T]) -> Method[P, T]:
    """A verb that is one transaction."""

    async def call(db: Database | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await db.pool.transaction(lambda connection: verb(connection, *args, **kwargs))

    return call


def announced(verb: Verb[P, tuple[T, list[int]]]) -> Method[P, T]:
    """As `written`; the verb also returns the ids of queues whose watchers on other servers are notified after the commit."""

    async def call(db: Database | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        done, watched = await db.pool.transaction(lambda connection: verb(connection, *args, **kwargs))
        db.news.announce(watched)
        return done

    return call


def read(verb: Verb[P, T]) -> Method[P, T]:
    """A verb that reads."""

    async def call(db: Database | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        async with db.pool.connection() as connection:
            return await verb(connection, *args, **kwargs)

    return call


def written_at_once(verb: Verb[P, T]) -> Method[P, T]:
    """A verb that writes with one statement, which is a transaction by itself."""
    return read(verb)


def read_at_once(verb: Verb[P, T]) -> Method[P, T]:
    """A verb that reads one snapshot, so that its figures add up (I12)."""

    async def call(db: Database | Part, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await db.pool.snapshot(lambda connection: verb(connection, *args, **kwargs))

    return call
