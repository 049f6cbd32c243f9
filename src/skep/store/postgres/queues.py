"""Queues: creating, changing, finding and deleting them, and the rules of dead-letter queues.

A change of queues holds the configuration lock of their tenant: the rules depend on other queues, and must still hold at commit.
"""

from __future__ import annotations

import asyncpg
import msgspec
from msgspec import UNSET

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import DEAD_LETTER_SUFFIX, Ordering, Queue, QueueChanges, QueueKey, QueueSettings
from skep.model.queue import no_queue
from skep.model.system_event import SystemEventKind
from skep.store.postgres.connection import Connection
from skep.store.rules import (
    DEAD_LETTER_SETTINGS,
    QUEUE_DELETED,
    DeadLetterUse,
    check_dead_letter_rules,
    dead_letter_target,
    names_one,
    unarchived,
)
from skep.store.statements import load_statements

SQL = load_statements(__package__, "queues")
OPERATIONS = load_statements(__package__, "operations")
EVENTS = load_statements(__package__, "events")

SETTING_NAMES = QueueSettings.__struct_fields__


def queue_of(row: asyncpg.Record) -> Queue:
    """The queue that a row of the table holds."""
    settings = {name: row[name] for name in SETTING_NAMES}
    settings["ordering"] = Ordering(settings["ordering"])
    return Queue(
        id=row["id"],
        key=QueueKey(row["name"], row["tenant"]),
        settings=QueueSettings(**settings),
        holds_dead_letters=row["holds_dead_letters"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


async def get_queue(connection: Connection, key: QueueKey) -> Queue | None:
    """The queue of that name, or None."""
    row = await connection.fetchrow(SQL["find"], key.tenant, key.name)
    return None if row is None else queue_of(row)


async def list_queues(
    connection: Connection,
    tenant: str,
    after: str = "",
    limit: int = 100,
    namespace: str | None = None,
    task: str | None = None,
) -> list[Queue]:
    """Queues of a tenant by name."""
    return [queue_of(row) for row in await connection.fetch(SQL["list"], tenant, after, limit, namespace, task)]


async def tenants(connection: Connection, after: str = "", limit: int = 100) -> list[str]:
    """Tenants that have queues, by name."""
    return [row["tenant"] for row in await connection.fetch(SQL["tenants"], after, limit)]


async def sqs_note(connection: Connection, key: QueueKey) -> bytes | None:
    """What the SQS door keeps with a queue."""
    note: bytes | None = await connection.fetchval(SQL["sqs_note"], key.tenant, key.name)
    return note


async def keep_sqs_note(connection: Connection, key: QueueKey, note: bytes, before: bytes | None, now: Instant) -> bool:
    """Keep another note, unless somebody else wrote one meanwhile, and tell the other servers."""
    await connection.execute(SQL["lock_configuration"], key.tenant)
    found = await need(connection, key)
    done = await connection.execute(SQL["keep_sqs_note"], found.id, note, before) == "UPDATE 1"
    if done:
        await _note(connection, key, now)
    return done


async def need(connection: Connection, key: QueueKey) -> Queue:
    """The queue of that name; QUEUE_NOT_FOUND when there is none."""
    queue = await get_queue(connection, key)
    if queue is None:
        raise no_queue(key.name)
    return queue


async def create_queue(connection: Connection, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
    """Create a queue, and the dead-letter queue that it names."""
    await connection.execute(SQL["lock_configuration"], key.tenant)
    if await get_queue(connection, key) is not None:
        raise SkepError(Code.QUEUE_EXISTS, f"there is already a queue {key.name!r}", queue=key.name)
    in_use = await _check_dead_letters(connection, key, settings)
    queue = await _insert(connection, key, settings, in_use, now)
    await _make_dead_letter_queue(connection, queue, now)
    return queue


async def ensure(connection: Connection, key: QueueKey, now: Instant, holds_logs: bool = False) -> None:
    """Create a queue with the defaults unless someone else just did.

    A caller that holds logs must not wait for the configuration lock, which comes before logs (functions/locks.sql): it is tried again.
    """
    if not holds_logs:
        await connection.execute(SQL["lock_configuration"], key.tenant)
    elif not await connection.fetchval(SQL["try_configuration"], key.tenant):
        raise asyncpg.SerializationError("queues are being changed, and that may not be waited for here")
    if await get_queue(connection, key) is None:
        await create_queue(connection, key, QueueSettings(), now)


async def delete_queue(connection: Connection, key: QueueKey, now: Instant) -> bool:
    """Delete a queue, and tell the other servers; False when there is none."""
    deleted = await _delete(connection, key, now)
    await _note(connection, key, now)
    return deleted


async def _note(connection: Connection, key: QueueKey, now: Instant) -> None:
    """As `events.note`. A new queue is not announced: no server has cached anything of it."""
    await connection.execute(EVENTS["note"], SystemEventKind.QUEUE, key.tenant, key.name, now)


async def update_queue(connection: Connection, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
    """Change the given settings of a queue, and tell the other servers."""
    if (
        changes.ordering is not UNSET
        and (before := await need(connection, key)).settings.ordering is not changes.ordering
    ):
        # These come before the other locks, as they do when an operation is performed.
        await connection.execute(OPERATIONS["lock_table"])
        await connection.execute(SQL["take_groups"], before.id, True)
    if changes.retention_requires_archive is True:
        await connection.execute(SQL["read_groups"])
    await connection.execute(SQL["lock_configuration"], key.tenant)
    queue = await need(connection, key)
    settings = changes.apply(queue.settings)
    if settings.ordering is not queue.settings.ordering:
        if await connection.fetchval(OPERATIONS["any_live"], key.tenant, key.name):
            raise SkepError(
                Code.INVALID_SETTING,
                "the ordering of a queue can change only while no operation waits for it",
                setting="ordering",
            )
        await connection.execute(SQL["lock_log"], queue.id)
        # Also the groups that were made before the log was locked.
        await connection.execute(SQL["take_groups"], queue.id, False)
        if await connection.fetchval(SQL["has_unsettled"], queue.id):
            raise SkepError(
                Code.INVALID_SETTING,
                "the ordering of a queue can change only while nothing in it is unsettled",
                setting="ordering",
            )
        if settings.retention_requires_archive and await connection.fetchval(SQL["has_unarchived"], queue.id):
            raise unarchived(key.name)
        # No group may go back to messages that were stored under another ordering.
        await connection.execute(SQL["begin_anew"], queue.id)
    if settings.retention_requires_archive and not queue.settings.retention_requires_archive:
        # A pass of retention that is under way does not know of it, and ends first.
        await connection.execute(SQL["lock_log"], queue.id)
    if settings.dead_letter_queue != queue.settings.dead_letter_queue:
        await _check_dead_letters(connection, key, settings)
    row = await connection.fetchrow(SQL["update"], queue.id, now, *msgspec.structs.astuple(settings))
    assert row is not None
    updated = queue_of(row)
    await _make_dead_letter_queue(connection, updated, now)
    await _note(connection, key, now)
    return updated


async def _delete(connection: Connection, key: QueueKey, now: Instant) -> bool:
    """Mark a queue as deleted: its name is free at once, and `chores.sweep` removes its data piece by piece."""
    await connection.execute(OPERATIONS["lock_queue"], key.tenant, key.name)
    await connection.execute(SQL["read_groups"])
    await connection.execute(SQL["lock_configuration"], key.tenant)
    queue = await get_queue(connection, key)
    if queue is None:
        return False
    user = await _user_of(connection, key)
    if user is not None:
        raise SkepError(
            Code.DEAD_LETTER_QUEUE_IN_USE, f"queue {key.name!r} takes the dead letters of {user!r}; delete or change that first",
            queue=key.name, used_by=user,
        )  # fmt: skip
    # Pushes under way hold the log's lock; after this no push finds the queue.
    await connection.execute(SQL["lock_log"], queue.id)
    await connection.execute(SQL["mark_deleted"], queue.id, now)
    await connection.execute(
        OPERATIONS["end_queue"], key.tenant, key.name, now, QUEUE_DELETED, Code.QUEUE_NOT_FOUND.value
    )
    return True


async def dead_letter_queue_of(connection: Connection, queue: Queue, now: Instant) -> Queue | None:
    """The dead-letter queue of a queue, made when it is first needed; None when dead letters are discarded."""
    name = dead_letter_target(queue.key.name, queue.settings, queue.holds_dead_letters)
    if name is None:
        return None
    key = QueueKey(name, queue.key.tenant)
    found = await get_queue(connection, key)
    if found is None:
        await connection.execute(SQL["lock_configuration"], key.tenant)
        found = await get_queue(connection, key) or await _insert(connection, key, DEAD_LETTER_SETTINGS, True, now)
    if not found.holds_dead_letters:
        await connection.execute(SQL["mark_dead_letters"], found.id)
    return found


async def _insert(connection: Connection, key: QueueKey, settings: QueueSettings, in_use: bool, now: Instant) -> Queue:
    row = await connection.fetchrow(
        SQL["insert"], key.tenant, key.name, in_use, now, *msgspec.structs.astuple(settings)
    )
    assert row is not None
    return queue_of(row)


async def _make_dead_letter_queue(connection: Connection, queue: Queue, now: Instant) -> None:
    """Make the dead-letter queue if the settings name one; the default one is made when it is first needed."""
    if queue.settings.dead_letter_queue is not None:
        await dead_letter_queue_of(connection, queue, now)


async def _user_of(connection: Connection, key: QueueKey) -> str | None:
    """A queue whose dead letters go to ``key``, by name or by default."""
    base = key.name.removesuffix(DEAD_LETTER_SUFFIX) if key.name.endswith(DEAD_LETTER_SUFFIX) else None
    user: str | None = await connection.fetchval(SQL["user_of"], key.tenant, key.name, base)
    return user


async def _check_dead_letters(connection: Connection, key: QueueKey, settings: QueueSettings) -> bool:
    """Check the rules of dead-letter queues for these settings; returns whether a queue already uses ``key`` for its dead letters."""
    in_use = await _user_of(connection, key) is not None
    target = dead_letter_target(key.name, settings, in_use)
    other = None if target is None else await get_queue(connection, QueueKey(target, key.tenant))
    check_dead_letter_rules(
        DeadLetterUse(
            name=key.name,
            dead_letter_queue=settings.dead_letter_queue,
            in_use=in_use,
            target_names_one=other is not None and names_one(other.settings.dead_letter_queue),
        )
    )
    return in_use
