"""Receipts: written in the transaction of the call that they stand for, so that the call happens once (I15)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

from skep.clock import Instant
from skep.model import PushOutcome
from skep.model.record import Receipt, ReceiptKey
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements, repeated

SQL = load_statements(__package__, "receipts")


NAME_BYTES = 64
DIGEST_BYTES = 16
_TAKE = {size: repeated(SQL["take"], size, first=2) for size in (100, 10, 1)}
"""Statements by number of rows, largest first, as for messages (`push`)."""


def name_of(key: ReceiptKey) -> bytes:
    """The name that finds a receipt: its key if that is short, so that rising keys stay together in the index; else a hash.

    Keys have no control characters, so two keys, or a key and a hash, never have the same name.
    """
    text = f"{key.scope}\0{key.tenant}\0{key.key}".encode()
    return text if len(text) <= NAME_BYTES else b"\0" + blake2b(text, digest_size=DIGEST_BYTES).digest()


def take_all(session: Session, wanted: Sequence[Receipt], now: Instant) -> bool:
    """Write all receipts at once; False, and none is written, when one exists already or is named twice."""
    if len({receipt.key for receipt in wanted}) < len(wanted):
        return False
    rows = [(name_of(r.key), r.key.tenant, r.key.scope, r.key.key, r.expires_at, r.answer) for r in wanted]
    db, start, taken = session.db, 0, 0
    db.execute("SAVEPOINT receipts")
    for size, statement in _TAKE.items():
        while len(rows) - start >= size:
            db.execute(statement, (now, *chain.from_iterable(rows[start : start + size])))
            taken += db.changes()
            start += size
    db.execute("RELEASE receipts" if taken == len(rows) else "ROLLBACK TO receipts; RELEASE receipts")
    return taken == len(rows)


def take(session: Session, receipt: Receipt, now: Instant) -> bool:
    """Write a receipt; False when one with this key exists."""
    key = receipt.key
    row = (name_of(key), key.tenant, key.scope, key.key, receipt.expires_at, receipt.answer)
    session.db.execute(_TAKE[1], (now, *row))
    return session.db.changes() == 1


def rewrite(session: Session, receipt: Receipt) -> None:
    """Replace the answer of a receipt: its message is a duplicate, so the answer names the first one."""
    session.db.execute(SQL["rewrite"], (name_of(receipt.key), receipt.answer))


def drop(session: Session, key: ReceiptKey) -> None:
    """Delete a receipt: its call was refused."""
    session.db.execute(SQL["drop"], (name_of(key),))


def recorded(session: Session, key: ReceiptKey, now: Instant) -> PushOutcome:
    """The recorded outcome of a push that was made before."""
    found = find(session, key, now)
    assert found is not None
    return PushOutcome([], {}, found.answer)


def find(session: Session, key: ReceiptKey, now: Instant) -> Receipt | None:
    """The receipt with this key; None when it does not exist or has expired."""
    row = session.row(SQL["find"], (name_of(key), now))
    return None if row is None else Receipt(key, *row)


def receipts(session: Session, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
    """Each receipt, or None."""
    return [find(session, key, now) for key in keys]
