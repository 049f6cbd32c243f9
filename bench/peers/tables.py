"""Queues in a PostgreSQL that the loader talks to itself: pgmq's functions, and a table with a row per message.

Nobody tells their consumers of a push: a consumer that finds nothing looks again after ``POLL_MS``.
"""

from __future__ import annotations

import asyncio
from typing import Self

import asyncpg

from bench.peers.lines import Way, number_of, template

POLL_MS = 5
POLL_SECONDS_MOST = 1
VISIBLE_AFTER_SECONDS = 300

INSERT = "INSERT INTO {table} (payload) SELECT * FROM unnest($1::bytea[])"
CLAIM = """
UPDATE {table} SET visible_at = clock_timestamp() + make_interval(secs => $2), attempts = attempts + 1
WHERE id IN (SELECT id FROM {table} WHERE visible_at <= clock_timestamp() ORDER BY visible_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING id, payload
"""
DELETE = "DELETE FROM {table} WHERE id = ANY ($1)"


class PgmqLine:
    """A connection that calls pgmq's functions."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], way: Way) -> None:
        self._connection = connection
        self._queue = way.queue.replace("-", "_")
        self._batch = way.batch
        self._message = template(way.size).decode()
        self._popped: list[int] = []

    @classmethod
    async def open(cls, way: Way) -> Self:
        return cls(await asyncpg.connect(way.address), way)

    async def prepare(self) -> None:
        await self._connection.execute("SELECT pgmq.create($1)", self._queue)

    async def push(self, first: int) -> None:
        if self._batch == 1:
            await self._connection.fetchval("SELECT pgmq.send($1, $2::jsonb)", self._queue, self._message % first)
        else:
            messages = [self._message % number for number in range(first, first + self._batch)]
            await self._connection.fetch("SELECT pgmq.send_batch($1, $2::jsonb[])", self._queue, messages)

    async def pop(self) -> list[int]:
        rows = await self._connection.fetch(
            "SELECT msg_id, message FROM pgmq.read_with_poll($1, $2, $3, $4, $5)",
            self._queue, VISIBLE_AFTER_SECONDS, self._batch, POLL_SECONDS_MOST, POLL_MS,
        )  # fmt: skip
        self._popped = [row["msg_id"] for row in rows]
        return [number_of(row["message"]) for row in rows]

    async def ack(self) -> None:
        await self._connection.fetch("SELECT pgmq.delete($1, $2::bigint[])", self._queue, self._popped)

    async def drop(self) -> None:
        await self._connection.execute("SELECT pgmq.drop_queue($1)", self._queue)

    async def close(self) -> None:
        self._connection.terminate()


class TableLine:
    """A connection that inserts, claims by SKIP LOCKED, and deletes."""

    def __init__(self, connection: asyncpg.Connection[asyncpg.Record], way: Way) -> None:
        self._connection = connection
        self._table = way.queue.replace("-", "_")
        self._batch = way.batch
        self._message = template(way.size)
        self._insert, self._claim, self._delete = (text.format(table=self._table) for text in (INSERT, CLAIM, DELETE))
        self._popped: list[int] = []

    @classmethod
    async def open(cls, way: Way) -> Self:
        return cls(await asyncpg.connect(way.address), way)

    async def prepare(self) -> None:
        await self._connection.execute(
            f"CREATE TABLE {self._table} (id bigserial PRIMARY KEY, visible_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
            " attempts integer NOT NULL DEFAULT 0, payload bytea NOT NULL);"
            f"CREATE INDEX ON {self._table} (visible_at, id)"
        )

    async def push(self, first: int) -> None:
        messages = [self._message % number for number in range(first, first + self._batch)]
        await self._connection.execute(self._insert, messages)

    async def pop(self) -> list[int]:
        rows = await self._connection.fetch(self._claim, self._batch, VISIBLE_AFTER_SECONDS)
        if not rows:
            await asyncio.sleep(POLL_MS / 1000)
        self._popped = [row["id"] for row in rows]
        return [number_of(row["payload"]) for row in rows]

    async def ack(self) -> None:
        await self._connection.execute(self._delete, self._popped)

    async def drop(self) -> None:
        await self._connection.execute(f"DROP TABLE {self._table}")

    async def close(self) -> None:
        self._connection.terminate()
