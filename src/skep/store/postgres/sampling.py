"""Samples the counters of all queues and groups, every few seconds. Only changed counters are written.

A row has the counters of a queue, group or tenant at an instant. Between two equal rows, and after the last row, nothing changed. So
when counters change after a quiet time, the last unchanged sample is written, too. Counters are written again after
`KEYFRAME_SECONDS`, as older rows age out. A look consists of many short transactions. Servers sample independently, and find the
rows of each other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg

from skep.clock import Instant, seconds
from skep.store.postgres.connection import Connection
from skep.store.rules import KEPT_SAMPLES_SECONDS, KEYFRAME_SECONDS, NEW_SECONDS, SAMPLE_EVERY_SECONDS
from skep.store.statements import load_statements

SQL = load_statements(__package__, "sampling")

PIECE = 200
"""How many queues or tenants one transaction looks at."""
MINUTE = seconds(60)
_FIGURES = ("created_at", "pushed", "completed", "retried", "dead", "depth")

Rows = list[asyncpg.Record]
Transact = Callable[[Callable[[Connection], Awaitable[Rows]]], Awaitable[Rows]]


class Sampling:
    """Remembers the time of the last look."""

    def __init__(self) -> None:
        self._looked_at: int | None = None

    async def look(self, transact: Transact, now: Instant) -> None:
        """Sample all queues and tenants once. ``transact`` runs a piece in a transaction."""
        at = now - now % seconds(SAMPLE_EVERY_SECONDS)
        look = Look(at, self._held_at(at), now)
        tenants: dict[str, list[int]] = {}
        after: int | None = 0
        while after is not None:
            rows = await transact(lambda connection, after=after: look.at_queues(connection, after))  # type: ignore[misc]
            for row in rows:
                _add(tenants, row)
            is_full = sum(row["queues"] for row in rows) == PIECE
            after = max(row["last_id"] for row in rows) if is_full else None
        names = sorted(tenants)
        for start in range(0, len(names), PIECE):
            page = {name: tenants[name] for name in names[start : start + PIECE]}
            await transact(lambda connection, page=page: look.at_tenants(connection, page))  # type: ignore[misc]
        self._looked_at = at

    def _held_at(self, at: int) -> int:
        """The last time at which changed counters still had their old values."""
        usual = at - seconds(SAMPLE_EVERY_SECONDS)
        return usual if self._looked_at is None else min(self._looked_at, usual)


class Look:
    """One look at all counters; all its rows have the same time."""

    def __init__(self, at: int, held_at: int, now: Instant) -> None:
        self._at, self._held_at, self._now = at, held_at, now
        self._keyframe = at - seconds(KEYFRAME_SECONDS)

    async def at_queues(self, connection: Connection, after: int) -> Rows:
        """Sample a page of queues; returns their sums by tenant."""
        kept = self._at - seconds(KEPT_SAMPLES_SECONDS)
        await connection.fetchval(SQL["sample"], after, PIECE, self._at, self._held_at, self._keyframe, kept)
        return await self._note_past(connection, after, PIECE, {})

    async def at_tenants(self, connection: Connection, tenants: dict[str, list[int]]) -> Rows:
        """Sample whole tenants."""
        return await self._note_past(connection, 0, 0, tenants)

    async def _note_past(self, connection: Connection, after: int, limit: int, tenants: dict[str, list[int]]) -> Rows:
        # In an earlier minute, as the row of this minute will have the change.
        held_at = min(self._held_at, self._at // MINUTE * MINUTE - 1)
        columns = [list(column) for column in zip(*tenants.values(), strict=True)] or [[] for _ in _FIGURES]
        return await connection.fetch(
            SQL["note_past"], after, limit, self._at, held_at, self._keyframe, list(tenants), *columns,
            self._now - seconds(NEW_SECONDS), self._now,
        )  # fmt: skip


def _add(tenants: dict[str, list[int]], row: asyncpg.Record) -> None:
    """Add a page's sums of a tenant, unless all its queues hold dead letters."""
    if row["created_at"] is None:
        return
    created_at, *figures = (row[name] for name in _FIGURES)
    if (known := tenants.get(row["tenant"])) is not None:
        created_at = min(created_at, known[0])
        figures = [a + b for a, b in zip(figures, known[1:], strict=True)]
    tenants[row["tenant"]] = [created_at, *figures]
