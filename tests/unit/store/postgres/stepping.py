"""A call of one server that stops after any of its statements, and a call of another server that runs meanwhile.

The statements of a verb are in Python and in PL/pgSQL functions. Both get a pause after each: in Python by a connection that asks for it,
in the functions by an assertion that is written into their text. A pause counts itself, and waits if somebody holds the lock of its number.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from skep.errors import SkepError
from skep.store.postgres import PostgresStore
from tests.unit.store.postgres.holding import Session

STEP = 1936410000
"""The class of the advisory locks that a call waits for, with the number of its step."""
COMMIT = 0
"""The step before a commit, whatever its number."""
# The name of a session tells where it stands. A lock_timeout of the caller's is not for this wait.
PAUSES = f"""
CREATE SEQUENCE public.step;
CREATE FUNCTION public.wait_for_step(p_step integer) RETURNS void LANGUAGE plpgsql SET lock_timeout = 0 AS $$
BEGIN
    PERFORM pg_advisory_lock_shared({STEP}, p_step);
    PERFORM pg_advisory_unlock_shared({STEP}, p_step);
END $$;
CREATE FUNCTION public.pause(p_place text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('stepped.call', true) = 'yes' THEN
        PERFORM set_config('application_name', p_place, true);
        PERFORM public.wait_for_step(nextval('public.step')::integer);
        IF p_place = 'before commit' THEN
            PERFORM public.wait_for_step({COMMIT});
        END IF;
    END IF;
    RETURN true;
END $$;
"""
FUNCTIONS = """
SELECT p.proname, p.prosrc, pg_get_functiondef(p.oid) AS text FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'skep'::regnamespace AND l.lanname = 'plpgsql' AND p.provolatile = 'v'
"""
STATEMENT = re.compile(r"SELECT|INSERT|UPDATE|DELETE|PERFORM|WITH|LOCK|EXECUTE|TRUNCATE|RETURN QUERY")
METHODS = {"execute", "executemany", "fetch", "fetchrow", "fetchval", "copy_records_to_table"}
# Who waits: at a pause, or for a lock of the store.
WAITING = f"SELECT pid, classid IS NOT DISTINCT FROM {STEP}::oid AS at_pause FROM pg_locks WHERE NOT granted"
PLACE = "SELECT application_name FROM pg_stat_activity WHERE pid = $1"
MOST_STEPS = 400
TABLES = f"""
SELECT r.relname FROM pg_locks w JOIN pg_locks h ON h.pid = w.pid AND h.granted AND h.mode <> 'AccessShareLock'
JOIN pg_class r ON r.oid = h.relation AND r.relkind = 'r' WHERE NOT w.granted AND w.classid = {STEP}
"""
NEXT = f"SELECT pg_advisory_unlock({STEP}, w.objid::integer) FROM pg_locks w WHERE NOT w.granted AND w.classid = {STEP}"


def with_pauses(name: str, body: str) -> str:
    """A PL/pgSQL function's text that pauses after each statement that reads, writes or locks. An assertion leaves FOUND as it is."""
    lines: list[str] = []
    begins, pausing, declaring = True, False, False
    for number, line in enumerate(body.split("\n")):
        lines.append(line)
        code = line.partition("--")[0].strip()
        if not code:
            continue
        declaring = code == "DECLARE" or (declaring and code != "BEGIN")
        if begins:
            pausing = STATEMENT.match(code) is not None
        begins = code.endswith((";", "THEN", "ELSE", "LOOP", "BEGIN"))
        if code.endswith(";") and pausing and not declaring:
            lines.append(f"ASSERT public.pause('{name}:{number}');")
    return "\n".join(lines)


async def write_pauses(session: Session) -> None:
    """Let all functions of the store's schema pause."""
    await session.execute(PAUSES)
    for row in await session.fetch(FUNCTIONS):
        await session.execute(row["text"].replace(row["prosrc"], with_pauses(row["proname"], row["prosrc"])))


class PausingConnection:
    """A connection that pauses between statements, and before a commit."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._begun = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._connection, name)
        return self._pausing(method) if name in METHODS else method

    def _pausing(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any, **named: Any) -> Any:
            if self._begun:
                await self._connection.execute("SELECT public.pause('between statements')")
            self._begun = True
            return await method(*arguments, **named)

        return call

    def transaction(self, **options: Any) -> Any:
        """A savepoint is as usual."""
        inside = self._connection.is_in_transaction()
        return self._connection.transaction(**options) if inside else self._pausing_transaction(options)

    @asynccontextmanager
    async def _pausing_transaction(self, options: dict[str, Any]) -> AsyncIterator[None]:
        async with self._connection.transaction(**options):
            yield
            await self._connection.execute("SELECT public.pause('before commit')")


@dataclass
class Call:
    """A call that runs: what it lost on its way, and its answer or error in the end."""

    lost: list[BaseException] = field(default_factory=list)
    task: asyncio.Task[Any] = field(init=False)

    def begin(self, store: PostgresStore, call: Callable[[], Awaitable[Any]], *, pausing: bool) -> None:
        usual = store.pool.connection

        @asynccontextmanager
        async def watched() -> AsyncIterator[Any]:
            async with usual() as connection:
                if pausing:
                    await connection.execute("SET stepped.call = 'yes'")
                try:
                    yield PausingConnection(connection) if pausing else connection
                except asyncpg.PostgresError as error:
                    self.lost.append(error)
                    raise
                finally:
                    if pausing:
                        await connection.execute("SET stepped.call = 'no'")

        async def run() -> Any:
            store.pool.connection = watched  # type: ignore[method-assign]
            try:
                return await call()
            except SkepError as error:
                return error
            finally:
                store.pool.connection = usual  # type: ignore[method-assign]

        self.task = asyncio.ensure_future(run())


@dataclass
class Race:
    """How a race went: where the first call stood when the second came (None: it had ended), and both answers."""

    place: str | None
    first: Any
    second: Any
    lost: list[BaseException]


class Track:
    """Two servers and a session that stops and releases the first of them."""

    def __init__(self, first: PostgresStore, second: PostgresStore, session: Session) -> None:
        self.first, self.second, self._session = first, second, session

    async def race(self, first: Callable[[], Awaitable[Any]], second: Callable[[], Awaitable[Any]], step: int) -> Race:
        """Run the first call up to a step or its end, then the second until it ends or waits, then both to their ends."""
        one, other = Call(), Call()
        await self._session.execute("SELECT setval('public.step', 1, false), pg_advisory_lock($1, $2)", STEP, step)
        one.begin(self.first, first, pausing=True)
        place = await self._pause_of(one)
        other.begin(self.second, second, pausing=False)
        if place is not None:
            await self._end_or_wait_of(other)
        await self._session.execute("SELECT pg_advisory_unlock($1, $2)", STEP, step)
        return Race(place, await one.task, await other.task, one.lost + other.lost)

    async def _pause_of(self, call: Call) -> str | None:
        """Where a call has stopped; None when it has ended."""
        while not call.task.done():
            for row in await self._session.fetch(WAITING):
                if row["at_pause"]:
                    return str(await self._session.fetchval(PLACE, row["pid"]))
        return None

    async def _end_or_wait_of(self, call: Call) -> None:
        """Return when a call has ended, or waits for a lock, or was lost and is about to be tried again."""
        while not call.task.done() and not call.lost:
            if any(not row["at_pause"] for row in await self._session.fetch(WAITING)):
                return

    async def walk(self, call: Callable[[], Awaitable[Any]]) -> list[tuple[str, set[str]]]:
        """The places where a call stops, one after the other, each with the tables in which it has locked or written rows by then."""
        one, found = Call(), list[tuple[str, set[str]]]()
        await self._session.execute("SELECT setval('public.step', 1, false)")
        await self._session.execute("SELECT pg_advisory_lock($1, n) FROM generate_series(1, $2) n", STEP, MOST_STEPS)
        one.begin(self.first, call, pausing=True)
        while (place := await self._pause_of(one)) is not None:
            found.append((place, {row["relname"] for row in await self._session.fetch(TABLES)}))
            await self._session.execute(NEXT)
        await self._session.execute("SELECT pg_advisory_unlock_all()")
        await one.task
        return found
