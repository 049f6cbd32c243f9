"""Receipts: written in the transaction of what they stand for, so that it happens once (I15)."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import chain

from skep.clock import Instant
from skep.ids import Id
from skep.model import PushBatch, PushOutcome
from skep.model.record import Receipt, ReceiptKey
from skep.store.rules import SEQ_MAX, holds, receipt_after, sought_of, stored_before, was_stored
from skep.store.sqlite import order
from skep.store.sqlite.log_position import first_seq_at
from skep.store.sqlite.push import push_batch, push_batches
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements, repeated

SQL = load_statements(__package__, "receipts")


NAME_BYTES = 64
DIGEST_BYTES = 16
_TAKE = {size: repeated(SQL["take"], size, first=2) for size in (100, 10, 1)}
"""By number of rows, the greatest first, as for messages (`push`)."""


def name_of(key: ReceiptKey) -> bytes:
    """What a receipt is found by: its key as it is while that is short, so that keys which rise stay together; else a hash.

    Names have no control characters, so neither two keys nor a key and a hash can be the same text.
    """
    text = f"{key.scope}\0{key.tenant}\0{key.key}".encode()
    return text if len(text) <= NAME_BYTES else b"\0" + blake2b(text, digest_size=DIGEST_BYTES).digest()


def push(session: Session, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
    """Append every batch that is neither refused nor held; one with a receipt only while no such receipt lives."""
    if session.has_operations():
        places = {place for batch in batches for place in _places(session, batch)}
        if waiting := order.waiting_partitions(session, places):
            return [_push_behind(session, waiting, batch, now, create_queues) for batch in batches]
    return push_in_turn(session, batches, now, create_queues)


def _places(session: Session, batch: PushBatch) -> set[order.Place]:
    return {(message.queue, message.partition) for message in order.as_stored(session, batch).messages}


def _push_behind(
    session: Session, waiting: set[order.Place], batch: PushBatch, now: Instant, create_queues: bool
) -> PushOutcome:
    """One batch while operations wait, which it must not overtake."""
    if batch.receipt is not None and find(session, batch.receipt.key, now) is not None:
        return recorded(session, batch.receipt.key, now)
    done = batch.tried is not None and was_stored(batch, _stored_ids(session, batch, now))
    if not done and holds(waiting, order.as_stored(session, batch)):
        return PushOutcome([], {}, held=True)
    return _push_once(session, batch, now, create_queues)


def push_in_turn(
    session: Session, batches: Sequence[PushBatch], now: Instant, create_queues: bool
) -> list[PushOutcome]:
    """Append every batch that is not refused, whoever waits: operations themselves are performed in their order."""
    if any(batch.tried is not None for batch in batches):
        return [_push_once(session, batch, now, create_queues) for batch in batches]
    wanted = [batch.receipt for batch in batches if batch.receipt is not None]
    if wanted and not take_all(session, wanted, now):
        return [_push_once(session, batch, now, create_queues) for batch in batches]
    outcomes = push_batches(session, batches, now, create_queues)
    for batch, outcome in zip(batches, outcomes, strict=True):
        if batch.receipt is not None:
            _put_right(session, batch, outcome)
    return outcomes


def _push_once(session: Session, batch: PushBatch, now: Instant, create_queues: bool) -> PushOutcome:
    receipt = batch.receipt
    if receipt is not None and not take(session, receipt, now):
        return recorded(session, receipt.key, now)
    if batch.tried is not None and was_stored(batch, _stored_ids(session, batch, now)):
        return stored_before(batch)
    outcome = push_batch(session, batch, now, create_queues)
    if receipt is not None:
        _put_right(session, batch, outcome)
    return outcome


def _stored_ids(session: Session, batch: PushBatch, now: Instant) -> set[Id]:
    """Which messages of a batch that was tried are in the log, or in the schedule."""
    found: set[Id] = set()
    for key, sought in sought_of([batch], now).items():
        queue = session.find_queue(key)
        if queue is not None:
            # Where the log's end lies ahead, since the clock was put back, everything new is stamped like it.
            until = SEQ_MAX if queue.last_at > now else sought.until
            low, high = (first_seq_at(session, queue, at) for at in (sought.since, until))
            found.update(id_ for (id_,) in session.rows(SQL["ids_between"], (queue.base | low, queue.base | high)))
            for scheduled in sought.scheduled:
                found.update(id_ for (id_,) in session.rows(SQL["id_scheduled"], (queue.id, scheduled)))
    return found


def _put_right(session: Session, batch: PushBatch, outcome: PushOutcome) -> None:
    """A refused batch leaves no receipt, and that of a duplicate names the message that is stored."""
    assert batch.receipt is not None
    if outcome.refused:
        drop(session, batch.receipt.key)
    elif (right := receipt_after(batch, outcome)) is not batch.receipt and right is not None:
        session.db.execute(SQL["rewrite"], (name_of(right.key), right.answer))


def take_all(session: Session, wanted: Sequence[Receipt], now: Instant) -> bool:
    """Write all receipts at once, or none when one of them lives, or is wanted twice: then each has to be looked at."""
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
    """Write a receipt, unless one of that key lives."""
    key = receipt.key
    row = (name_of(key), key.tenant, key.scope, key.key, receipt.expires_at, receipt.answer)
    session.db.execute(_TAKE[1], (now, *row))
    return session.db.changes() == 1


def drop(session: Session, key: ReceiptKey) -> None:
    """Forget a receipt: what it stands for did not happen after all."""
    session.db.execute(SQL["drop"], (name_of(key),))


def recorded(session: Session, key: ReceiptKey, now: Instant) -> PushOutcome:
    """The outcome of a push that was made before."""
    found = find(session, key, now)
    assert found is not None
    return PushOutcome([], {}, found.answer)


def find(session: Session, key: ReceiptKey, now: Instant) -> Receipt | None:
    """The receipt of that key that lives, or None."""
    row = session.row(SQL["find"], (name_of(key), now))
    return None if row is None else Receipt(key, *row)


def receipts(session: Session, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
    """Each receipt that lives."""
    return [find(session, key, now) for key in keys]
