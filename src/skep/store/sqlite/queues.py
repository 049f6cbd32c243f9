"""Making, changing, listing and deleting queues, and the rules for dead-letter queues."""

from __future__ import annotations

import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import DEAD_LETTER_SUFFIX, Queue, QueueChanges, QueueKey, QueueSettings
from skep.store.rules import (
    DEAD_LETTER_SETTINGS,
    QUEUE_DELETED,
    DeadLetterUse,
    check_dead_letter_rules,
    dead_letter_target,
    lifetime_micros,
    names_one,
    unarchived,
)
from skep.store.sqlite.log_position import unarchived_at
from skep.store.sqlite.session import QueueRow, Session, queue_of_row
from skep.store.statements import load_statements

SQL = load_statements(__package__, "queues")
OPERATIONS = load_statements(__package__, "operations")


def create_queue(session: Session, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
    """Create a queue, and the dead-letter queue that it names; QUEUE_EXISTS when there is one."""
    if session.find_queue(key) is not None:
        raise SkepError(Code.QUEUE_EXISTS, f"there is a queue {key.name!r} already", queue=key.name)
    return make_queue(session, key, settings, now).public


def make_queue(session: Session, key: QueueKey, settings: QueueSettings, now: Instant) -> QueueRow:
    """Insert a queue, if the dead-letter rules allow it."""
    in_use = check_rules(session, key, settings)
    queue = _insert(session, key, settings, in_use, now)
    _prepare_target(session, queue, now)
    return queue


def make_dead_letter_queue(session: Session, key: QueueKey, now: Instant) -> QueueRow:
    """Mark a queue as a dead-letter queue, or make it."""
    queue = session.find_queue(key)
    if queue is None:
        return _insert(session, key, DEAD_LETTER_SETTINGS, True, now)
    if not queue.holds_dead_letters:
        queue.holds_dead_letters = True
        session.touch_queue(queue)
    return queue


def update_queue(session: Session, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
    """Change the given settings; the ordering only while no message is unsettled and no operation waits."""
    queue = session.queue(key)
    settings = changes.apply(queue.settings)
    if settings.ordering is not queue.settings.ordering and (unsettled := session.unsettled(queue)) > 0:
        raise SkepError(
            Code.INVALID_SETTING,
            f"the ordering of {key.name!r} can change only while nothing is unsettled; {unsettled} messages are",
            unsettled=unsettled,
        )
    if settings.ordering is not queue.settings.ordering and session.row(
        OPERATIONS["live_of_queue"], (key.tenant, key.name)
    ):
        raise SkepError(
            Code.INVALID_SETTING,
            f"the ordering of {key.name!r} can change only while no operation waits for it",
            setting="ordering",
        )
    if (
        settings.ordering is not queue.settings.ordering
        and settings.retention_requires_archive
        and unarchived_at(session, queue) is not None
    ):
        raise unarchived(key.name)
    if settings.dead_letter_queue != queue.settings.dead_letter_queue:
        check_rules(session, key, settings)
    session.db.execute(SQL["update_settings"], (queue.id, now, *msgspec.structs.astuple(settings)))
    if lifetime_micros(settings) != lifetime_micros(queue.settings):
        for group in session.groups(queue).values():
            session.db.execute(SQL["set_partition_expiry"], (group.id, lifetime_micros(settings)))
            session.db.execute(SQL["set_set_expiry"], (group.id, lifetime_micros(settings)))
    if settings.ordering is not queue.settings.ordering:
        # No group may seek back to messages of the other ordering.
        queue.first_seq, queue.gaps = queue.last_seq + 1, 0
        session.touch_queue(queue)
    queue.apply(settings)
    queue.updated_at = now
    _prepare_target(session, queue, now)
    return queue.public


def delete_queue(session: Session, key: QueueKey, now: Instant) -> bool:
    """Mark a queue as deleted, unless another queue buries in it; `sweep` removes its data."""
    queue = session.find_queue(key)
    if queue is None:
        return False
    user = _user_of(session, key)
    if user is not None:
        raise SkepError(
            Code.DEAD_LETTER_QUEUE_IN_USE, f"queue {key.name!r} takes the dead letters of {user!r}; delete or change that first",
            queue=key.name, used_by=user,
        )  # fmt: skip
    session.flush()
    session.db.execute(SQL["mark_deleted"], (queue.id, now))
    session.db.execute(OPERATIONS["end_queue"], (key.tenant, key.name, now, QUEUE_DELETED, Code.QUEUE_NOT_FOUND))
    session.operations_changed()
    session.drop_queue(key)
    return True


def get_queue(session: Session, key: QueueKey) -> Queue | None:
    queue = session.find_queue(key)
    return None if queue is None else queue.public


def list_queues(
    session: Session,
    tenant: str,
    after: str = "",
    limit: int = 100,
    namespace: str | None = None,
    task: str | None = None,
) -> list[Queue]:
    """Queues of a tenant by name."""
    return [
        queue_of_row(row).public for row in session.rows(SQL["list_queues"], (tenant, after, limit, namespace, task))
    ]


def sqs_note(session: Session, key: QueueKey) -> bytes | None:
    """What the SQS door keeps with a queue."""
    row = session.row(SQL["sqs_note"], (key.tenant, key.name))
    return None if row is None else row[0]


def keep_sqs_note(session: Session, key: QueueKey, note: bytes, before: bytes | None, now: Instant) -> bool:  # noqa: ARG001 - nobody is told
    """Keep another note, unless somebody else wrote one meanwhile."""
    session.db.execute(SQL["keep_sqs_note"], (session.queue(key).id, note, before))
    return session.db.changes() == 1


def tenants(session: Session, after: str = "", limit: int = 100) -> list[str]:
    """Tenants that have queues, by name: one seek each in the index of names."""
    found: list[str] = []
    while len(found) < limit and (row := session.row(SQL["next_tenant"], (after,))) is not None:
        after = row[0]
        found.append(after)
    return found


def _insert(session: Session, key: QueueKey, settings: QueueSettings, holds: bool, now: Instant) -> QueueRow:
    session.db.execute(SQL["insert_queue"], (key.tenant, key.name, holds, now, *msgspec.structs.astuple(settings)))
    return session.queue(key)


def check_rules(session: Session, key: QueueKey, settings: QueueSettings) -> bool:
    """Check the dead-letter rules; returns whether another queue buries in this one."""
    in_use = _user_of(session, key) is not None
    queue = session.find_queue(key)
    holds = in_use or (queue is not None and queue.holds_dead_letters)
    target_name = dead_letter_target(key.name, settings, holds)
    target = None if target_name is None else session.find_queue(QueueKey(target_name, key.tenant))
    check_dead_letter_rules(
        DeadLetterUse(
            name=key.name,
            dead_letter_queue=settings.dead_letter_queue,
            in_use=in_use,
            target_names_one=target is not None and names_one(target.settings.dead_letter_queue),
        )
    )
    return in_use


def _user_of(session: Session, key: QueueKey) -> str | None:
    """A queue that buries in this one, by its setting or by default."""
    row = session.row(SQL["named_by_other"], (key.tenant, key.name))
    if row is not None:
        return str(row[0])
    if not key.name.endswith(DEAD_LETTER_SUFFIX):
        return None
    source = session.find_queue(QueueKey(key.name.removesuffix(DEAD_LETTER_SUFFIX), key.tenant))
    if source is None or dead_letter_target(source.key.name, source.settings, source.holds_dead_letters) != key.name:
        return None
    return source.key.name


def _prepare_target(session: Session, queue: QueueRow, now: Instant) -> None:
    """Mark the dead-letter queue of a queue as one. If the setting names a missing queue, it is made."""
    name = dead_letter_target(queue.key.name, queue.settings, queue.holds_dead_letters)
    if name is None:
        return
    key = QueueKey(name, queue.key.tenant)
    if names_one(queue.settings.dead_letter_queue) or session.find_queue(key) is not None:
        make_dead_letter_queue(session, key, now)
