"""Looks at all queues and groups, every few seconds: what changed since it was last noted is noted, nothing else.

A row says how something stood at an instant. Between two rows that say the same, and after the last one, nothing changed. So before
a change is noted after some quiet, the last look that saw none is noted too. A row is at most `KEYFRAME_SECONDS` old: what is older
ages out. A look is made of many short transactions. Servers look independently, and find what another has noted.
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
"""Queues that one transaction looks at; or tenants."""
MINUTE = seconds(60)
_FIGURES = ("created_at", "pushed", "completed", "retried", "dead", "depth")

Rows = list[asyncpg.Record]
Transact = Callable[[Callable[[Connection], Awaitable[Rows]]], Awaitable[Rows]]


class Sampling:
    """Remembers when it last looked."""

    def __init__(self) -> None:
        self._looked_at: int | None = None

    async def look(self, transact: Transact, now: Instant) -> None:
        """Look at everything once. ``transact`` runs a piece in a transaction."""
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
        """Until when what has changed is known to have been as noted."""
        usual = at - seconds(SAMPLE_EVERY_SECONDS)
        return usual if self._looked_at is None else min(self._looked_at, usual)


class Look:
    """One look, noted as of one instant."""

    def __init__(self, at: int, held_at: int, now: Instant) -> None:
        self._at, self._held_at, self._now = at, held_at, now
        self._keyframe = at - seconds(KEYFRAME_SECONDS)

    async def at_queues(self, connection: Connection, after: int) -> Rows:
        """A page of queues; what tenants have of them."""
        kept = self._at - seconds(KEPT_SAMPLES_SECONDS)
        await connection.fetchval(SQL["sample"], after, PIECE, self._at, self._held_at, self._keyframe, kept)
        return await self._note_past(connection, after, PIECE, {})

    async def at_tenants(self, connection: Connection, tenants: dict[str, list[int]]) -> Rows:
        """Tenants as wholes."""
        return await self._note_past(connection, 0, 0, tenants)

    async def _note_past(self, connection: Connection, after: int, limit: int, tenants: dict[str, list[int]]) -> Rows:
        # In an earlier minute: the row of this one will tell of the change.
        held_at = min(self._held_at, self._at // MINUTE * MINUTE - 1)
        columns = [list(column) for column in zip(*tenants.values(), strict=True)] or [[] for _ in _FIGURES]
        return await connection.fetch(
            SQL["note_past"], after, limit, self._at, held_at, self._keyframe, list(tenants), *columns,
            self._now - seconds(NEW_SECONDS), self._now,
        )  # fmt: skip


def _add(tenants: dict[str, list[int]], row: asyncpg.Record) -> None:
    """Add what a page has of a tenant, unless all of it is of dead letters."""
    if row["created_at"] is None:
        return
    created_at, *figures = (row[name] for name in _FIGURES)
    if (known := tenants.get(row["tenant"])) is not None:
        created_at = min(created_at, known[0])
        figures = [a + b for a, b in zip(figures, known[1:], strict=True)]
    tenants[row["tenant"]] = [created_at, *figures]
