"""Data keys: the wrapped keys that payloads are sealed (encrypted) with."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.ids import Id
from skep.model import QueueKey
from skep.model.data_key import WrappedKey
from skep.store.sqlite.database import Database
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "data_keys")


def put(session: Session, key: WrappedKey) -> None:
    session.db.execute(SQL["put"], (key.id, key.queue.tenant, key.queue.name, key.master, key.wrapped, key.created_at))


def every(session: Session) -> list[WrappedKey]:
    """All keys, oldest first."""
    return [
        WrappedKey(id=Id(id_), queue=QueueKey(queue, tenant), master=master, wrapped=wrapped, created_at=Instant(at))
        for id_, tenant, queue, master, wrapped, at in session.rows(SQL["list"])
    ]


async def rewrap(db: Database, keys: Sequence[WrappedKey], was: str) -> int:
    """Store the new wrapping of keys, and leave no trace of the old one."""
    return await db.destroy("the keys are rewrapped", _rewrap, keys, was)


def _rewrap(session: Session, keys: Sequence[WrappedKey], was: str) -> int:
    """Store the new wrapping of the keys that are still wrapped by the master key ``was``; returns how many."""
    changed = {key.id: key for key in keys}
    kept = every(session)
    done = {key.id for key in kept if key.id in changed and key.master == was}
    _keep_only(session, [changed[key.id] if key.id in done else key for key in kept])
    return len(done)


async def shred(db: Database, tenant: str, queue: str | None, now: Instant) -> int:  # noqa: ARG001 - nobody else is told
    """Destroy the keys of a queue, or of all queues of a tenant, and leave no trace of them."""
    return await db.destroy("the keys are destroyed", _shred, tenant, queue)


def _shred(session: Session, tenant: str, queue: str | None) -> int:
    """Delete the keys of a queue, or of all queues of a tenant; returns how many."""
    found = every(session)
    gone = {key.id for key in found if key.queue.tenant == tenant and queue in (None, key.queue.name)}
    _keep_only(session, [key for key in found if key.id not in gone])
    session.db.executemany(SQL["forget_uses"], [(id_,) for id_ in gone])
    return len(gone)


def reserve(session: Session, id_: Id, messages: int) -> int | None:
    """Count messages that a key is about to seal; returns the key's new total, None when there is no such key."""
    row = session.row(SQL["reserve"], (id_, messages))
    return None if row is None else int(row[0])


def _keep_only(session: Session, keys: Sequence[WrappedKey]) -> None:
    """Rewrite the table, so that no page holds another key or an old wrapping."""
    session.db.execute(SQL["empty"])
    for key in keys:
        put(session, key)
    session.cut_log_soon()
