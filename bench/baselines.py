"""What the engine is measured against, in the same run and with the same durability.

The ceiling: the same rows, in batches of the same size, into a bare table of the same columns with its primary key; nothing
else. The baseline: a row per message that is claimed with SKIP LOCKED and deleted when done, the usual queue in a table.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import asyncpg

from bench.load import batches, timed
from skep.clock import SystemClock
from skep.ids import IdMint
from skep.model import NewMessage

COLUMNS = (
    "seq bigint, created_at bigint, id {blob}, trace_id {blob}, queue_id integer, audience integer, priority integer,"
    " partition text, transaction_id text, content_type text, headers {blob}, payload {blob}"
)
SQLITE_ROWS = 100
SQLITE_INSERT = "INSERT INTO bare VALUES "
SQLITE_ROW = "(?,?,?,?,?,?,?,?,?,?,?,?)"
Row = tuple[object, ...]


def rows_of(items: list[NewMessage], batch: int) -> Iterator[list[Row]]:
    """The rows a push of these messages writes, ready made, in batches."""
    ids = IdMint(SystemClock())
    seqs = itertools.count(1)
    for some in batches(items, batch):
        yield [
            (next(seqs), 1, id_, None, 1, None, 0, m.partition, None, None, None, m.payload)
            for m, id_ in zip(some, ids.mint_many(len(some)), strict=True)
        ]


def _sqlite(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path))
    connection.pragma("journal_mode", "wal")
    connection.pragma("synchronous", "full")
    return connection


def sqlite_ceiling(folder: Path, items: list[NewMessage], batch: int) -> float:
    """Seconds to insert everything into a bare table, a commit per batch."""
    connection = _sqlite(folder / "ceiling.db")
    connection.execute("DROP TABLE IF EXISTS bare")
    columns = COLUMNS.format(blob="blob").replace("seq bigint", "seq integer primary key")
    connection.execute(f"CREATE TABLE bare ({columns})")
    work = list(rows_of(items, batch))
    started = time.perf_counter()
    for rows in work:
        with connection:
            for some in batched_rows(rows, SQLITE_ROWS):
                # One statement of many rows is the fastest way in.
                statement = SQLITE_INSERT + ",".join([SQLITE_ROW] * len(some))
                connection.execute(statement, tuple(itertools.chain.from_iterable(some)))
    taken = time.perf_counter() - started
    connection.close()
    return taken


def batched_rows(rows: list[Row], size: int) -> Iterator[list[Row]]:
    """The rows in statements of at most ``size``."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def sqlite_baseline(folder: Path, items: list[NewMessage], batch: int) -> float:
    """Seconds to push, pop and ack everything with a row per message and a state on it."""
    connection = _sqlite(folder / "baseline.db")
    connection.execute("DROP TABLE IF EXISTS job")
    connection.execute(
        "CREATE TABLE job (id integer primary key, partition text, visible_at integer, attempts integer, payload blob)"
    )
    connection.execute("CREATE INDEX job_visible ON job (visible_at, id)")
    claim = (
        "UPDATE job SET visible_at = ?2, attempts = attempts + 1 WHERE id IN"
        " (SELECT id FROM job WHERE visible_at <= ?1 ORDER BY visible_at, id LIMIT ?3) RETURNING id, partition, payload"
    )
    started = time.perf_counter()
    for some in batches(items, batch):
        with connection:
            connection.executemany(
                "INSERT INTO job (partition, visible_at, attempts, payload) VALUES (?, 0, 0, ?)",
                [(m.partition, m.payload) for m in some],
            )
        with connection:
            taken = connection.execute(claim, (1, 1000, batch)).fetchall()
        with connection:
            connection.executemany("DELETE FROM job WHERE id = ?", [(row[0],) for row in taken])
    seconds = time.perf_counter() - started
    connection.close()
    return seconds


def _same(value: bytes) -> bytes:
    return value


async def _postgres(dsn: str, count: int) -> list[asyncpg.Connection[asyncpg.Record]]:
    connections = [await asyncpg.connect(dsn) for _ in range(count)]
    for connection in connections:
        await connection.set_type_codec("uuid", schema="pg_catalog", encoder=_same, decoder=_same, format="binary")
    return connections


async def postgres_ceiling(dsn: str, items: list[NewMessage], batch: int) -> float:
    """Seconds to COPY everything into a bare table over one connection, a commit per batch."""
    (connection,) = await _postgres(dsn, 1)
    columns = COLUMNS.format(blob="bytea").replace("id bytea", "id uuid")
    await connection.execute(f"DROP TABLE IF EXISTS bare; CREATE TABLE bare ({columns}, PRIMARY KEY (queue_id, seq))")
    work = list(rows_of(items, batch))
    started = time.perf_counter()
    for rows in work:
        await connection.copy_records_to_table("bare", records=rows)
    taken = time.perf_counter() - started
    await connection.close()
    return taken


PUSH = "INSERT INTO job (partition, payload) SELECT * FROM unnest($1::text[], $2::bytea[])"
CLAIM = """
UPDATE job SET visible_at = clock_timestamp() + interval '300 s', attempts = attempts + 1
WHERE id IN (SELECT id FROM job WHERE visible_at <= clock_timestamp() ORDER BY visible_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING id, partition, payload
"""
ACK = "DELETE FROM job WHERE id = ANY ($1)"


async def postgres_baseline(dsn: str, items: list[NewMessage], batch: int, callers: int) -> float:
    """Seconds to push, pop and ack everything, by as many pushers as poppers, each with a connection of its own."""
    connections = await _postgres(dsn, 2 * callers)
    await connections[0].execute(
        "DROP TABLE IF EXISTS job; CREATE TABLE job (id bigserial PRIMARY KEY, partition text NOT NULL, visible_at timestamptz"
        " NOT NULL DEFAULT clock_timestamp(), attempts integer NOT NULL DEFAULT 0, payload bytea NOT NULL);"
        "CREATE INDEX job_visible ON job (visible_at, id)"
    )
    work = batches(items, batch)
    left = len(items)

    async def pusher(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        for some in work:
            await connection.execute(PUSH, [m.partition for m in some], [m.payload for m in some])

    async def popper(connection: asyncpg.Connection[asyncpg.Record]) -> None:
        nonlocal left
        while left > 0:
            rows = await connection.fetch(CLAIM, batch)
            if rows:
                await connection.execute(ACK, [row["id"] for row in rows])
                left -= len(rows)
            else:
                await asyncio.sleep(0.001)

    taken = await timed([pusher(c) for c in connections[:callers]] + [popper(c) for c in connections[callers:]])
    for connection in connections:
        await connection.close()
    return taken
