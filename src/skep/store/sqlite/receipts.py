"""Receipts: written in the transaction of what they stand for, so that it happens once (I15)."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.model import PushBatch, PushOutcome
from skep.records import Receipt, ReceiptKey
from skep.store.sqlite.push import push_batch
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "receipts")


def push(session: Session, batches: Sequence[PushBatch], now: Instant, create_queues: bool) -> list[PushOutcome]:
    """Append every batch that is not refused; one with a receipt only while no such receipt lives."""
    return [
        push_batch(session, batch, now, create_queues)
        if batch.receipt is None
        else _push_once(session, batch, batch.receipt, now, create_queues)
        for batch in batches
    ]


def _push_once(session: Session, batch: PushBatch, receipt: Receipt, now: Instant, create_queues: bool) -> PushOutcome:
    if not take(session, receipt, now):
        return recorded(session, receipt.key, now)
    outcome = push_batch(session, batch, now, create_queues)
    if outcome.refused:
        drop(session, receipt.key)
    return outcome


def take(session: Session, receipt: Receipt, now: Instant) -> bool:
    """Write a receipt, unless one of that key lives."""
    key = receipt.key
    session.db.execute(SQL["take"], (key.tenant, key.scope, key.key, receipt.expires_at, receipt.answer, now))
    return session.db.changes() == 1


def drop(session: Session, key: ReceiptKey) -> None:
    """Forget a receipt: what it stands for did not happen after all."""
    session.db.execute(SQL["drop"], (key.tenant, key.scope, key.key))


def recorded(session: Session, key: ReceiptKey, now: Instant) -> PushOutcome:
    """The outcome of a push that was made before."""
    found = find(session, key, now)
    assert found is not None
    return PushOutcome([], {}, found.answer)


def find(session: Session, key: ReceiptKey, now: Instant) -> Receipt | None:
    """The receipt of that key that lives, or None."""
    row = session.row(SQL["find"], (key.tenant, key.scope, key.key, now))
    return None if row is None else Receipt(key, *row)


def receipts(session: Session, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
    """Each receipt that lives."""
    return [find(session, key, now) for key in keys]
