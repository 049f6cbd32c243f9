"""Requests that webhooks refused."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import msgspec

from skep.model.refusal import Refusal
from skep.store.postgres.connection import Connection, Pool
from skep.store.protocol.refusals import REFUSALS_KEPT
from skep.store.statements import load_statements

SQL = load_statements(__package__, "refusals")


class PostgresRefusals:
    """Implements `skep.store.protocol.refusals.RefusalStore`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def note(self, refusals: Sequence[Refusal]) -> None:
        """Store refusals, and keep the newest `REFUSALS_KEPT` of each webhook."""
        if not refusals:
            return
        columns = list(zip(*(msgspec.structs.astuple(one) for one in refusals), strict=True))

        async def note(connection: Connection) -> None:
            await connection.execute(SQL["note"], *[list(column) for column in columns])
            for webhook in sorted({one.webhook for one in refusals}):
                await connection.execute(SQL["forget"], webhook, REFUSALS_KEPT)

        await self._pool.transaction(note)

    async def list(self, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> builtins.list[Refusal]:
        """Refusals, newest first."""
        async with self._pool.connection() as connection:
            if webhook is None:
                rows = await connection.fetch(SQL["list"], limit)
            else:
                rows = await connection.fetch(SQL["list_of"], limit, webhook)
        return [Refusal(*row) for row in rows]
