"""Order behind operations: a push must not overtake an earlier push that waits as an operation (I13)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.model import PushBatch, QueueKey
from skep.model.operation import operations_ahead
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "operations")

Place = tuple[QueueKey, str]


def waiting_partitions(session: Session, places: Iterable[Place]) -> set[Place]:
    """The partitions (by stored name), of these, for which a push waits as an operation."""
    return {
        (key, partition)
        for key, partition in places
        if session.row(SQL["waits"], (key.tenant, key.name, partition)) is not None
    }


def check(session: Session, places: Iterable[Place]) -> None:
    """Raise OPERATIONS_AHEAD when a push to one of these partitions waits as an operation."""
    if session.has_operations() and waiting_partitions(session, {stored(session, place) for place in places}):
        raise operations_ahead()


def check_batch(session: Session, batch: PushBatch) -> None:
    """Like `check`, for the partitions of a batch."""
    if session.has_operations():
        check(session, {(message.queue, message.partition) for message in batch.messages})


def stored(session: Session, place: Place) -> Place:
    """The partition by its stored name: a fifo queue has only one."""
    queue = session.find_queue(place[0])
    return place if queue is None else (place[0], queue.stored_partition(place[1]))


def as_stored(session: Session, batch: PushBatch) -> PushBatch:
    """The batch, with the stored partition in each message."""
    places = {(message.queue, message.partition) for message in batch.messages}
    changed = {place: right for place in places if (right := stored(session, place)) != place}
    if not changed:
        return batch
    messages = [
        msgspec.structs.replace(m, partition=changed[m.queue, m.partition][1])
        if (m.queue, m.partition) in changed
        else m
        for m in batch.messages
    ]
    return msgspec.structs.replace(batch, messages=messages)
