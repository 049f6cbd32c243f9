"""Requests that webhooks refused."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.model.refusal import Refusal
from skep.store.protocol.refusals import REFUSALS_KEPT
from skep.store.sqlite.database import Part, read, written
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "refusals")


def note(session: Session, refusals: Sequence[Refusal]) -> None:
    """Store refusals, and keep at most `REFUSALS_KEPT` of each of their webhooks."""
    session.db.executemany(SQL["note"], [msgspec.structs.astuple(one) for one in refusals])
    for webhook in sorted({one.webhook for one in refusals}):
        session.db.execute(SQL["forget"], (webhook, REFUSALS_KEPT))


def latest(session: Session, webhook: str | None = None, limit: int = REFUSALS_KEPT) -> list[Refusal]:
    """The refusals of a webhook, or of all, newest first; at most ``limit`` of each webhook."""
    statement, given = ("list", (limit,)) if webhook is None else ("list_of", (limit, webhook))
    return [Refusal(*row) for row in session.rows(SQL[statement], given)]


class SqliteRefusals(Part):
    """Implements `skep.store.protocol.refusals.RefusalStore`."""

    note = written(note)
    list = read(latest)
