"""Requests that webhooks refused."""

from __future__ import annotations

import builtins
from collections.abc import Sequence

import msgspec

from skep.model.refusal import Refusal
from skep.store.protocol.refusals import REFUSALS_KEPT
from skep.store.sqlite.access import Running
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "refusals")


class SqliteRefusals:
    """Implements `skep.store.protocol.refusals.RefusalStore` with the store's own threads."""

    def __init__(self, write: Running, read: Running) -> None:
        self._write = write
        self._read = read

    async def note(self, refusals: Sequence[Refusal]) -> None:
        """Keep these, and no more than so many of a webhook."""

        def note(session: Session) -> None:
            session.db.executemany(SQL["note"], [msgspec.structs.astuple(one) for one in refusals])
            for webhook in sorted({one.webhook for one in refusals}):
                session.db.execute(SQL["forget"], (webhook, REFUSALS_KEPT))

        await self._write(note)

    async def list(self, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> builtins.list[Refusal]:
        """Refusals, newest first."""
        statement, given = ("list", (limit,)) if webhook is None else ("list_of", (limit, webhook))
        rows = await self._read(lambda session: session.rows(SQL[statement], given))
        return [Refusal(*row) for row in rows]
