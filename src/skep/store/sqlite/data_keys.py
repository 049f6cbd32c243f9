"""Keys of queues' payloads, wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.data_keys import WrappedKey
from skep.ids import Id
from skep.model import QueueKey
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "data_keys")


def put(session: Session, key: WrappedKey) -> None:
    """Keep a key."""
    session.db.execute(SQL["put"], (key.id, key.queue.tenant, key.queue.name, key.master, key.wrapped, key.created_at))


def every(session: Session) -> list[WrappedKey]:
    """All keys, oldest first."""
    return [
        WrappedKey(id=Id(id_), queue=QueueKey(queue, tenant), master=master, wrapped=wrapped, created_at=Instant(at))
        for id_, tenant, queue, master, wrapped, at in session.rows(SQL["list"])
    ]


def rewrap(session: Session, keys: Sequence[WrappedKey], was: str) -> int:
    """Keep these keys as they are wrapped now, those that are still wrapped by ``was``; how many that were."""
    done = 0
    for key in keys:
        session.db.execute(SQL["rewrap"], (key.id, key.master, key.wrapped, was))
        done += session.db.changes()
    return done


def shred(session: Session, tenant: str, queue: str | None) -> int:
    """Destroy the keys of a queue, or of all queues of a tenant; how many there were."""
    session.db.execute(SQL["shred"], (tenant, queue))
    return session.db.changes()
