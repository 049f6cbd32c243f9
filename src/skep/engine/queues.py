"""Queues: making, changing, finding, clearing and deleting them."""

from __future__ import annotations

from skep.engine import validate
from skep.engine.clearing import would_clear
from skep.engine.parts import Parts
from skep.engine.queue_settings import check_settings
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DEFAULT_TENANT,
    Cleared,
    ClearScope,
    DeletedMessage,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Seq,
)
from skep.model.queue import no_queue

CONFIGURE_TRIES = 10


class QueueCalls(Parts):
    """The engine's calls on queues themselves."""

    async def create_queue(self, key: QueueKey, settings: QueueSettings | None = None) -> Queue:
        """Make a queue; QUEUE_EXISTS when there is one."""
        with self._in_flight:
            validate.check_key(key)
            settings = settings or QueueSettings()
            check_settings(settings)
            self.encryption.check_enabling(settings)
            return self.caches.changed(await self._store.create_queue(key, settings, self._clock.now()))

    async def update_queue(self, key: QueueKey, changes: QueueChanges) -> Queue:
        """Change the settings that are given."""
        with self._in_flight:
            validate.check_key(key)
            check_settings(changes)
            self.encryption.check_enabling(changes)
            return self.caches.changed(await self._store.update_queue(key, changes, self._clock.now()))

    async def configure_queue(self, key: QueueKey, changes: QueueChanges) -> Queue:
        """Make a queue with these settings, or change the settings of the existing one."""
        with self._in_flight:
            validate.check_key(key)
            for _ in range(CONFIGURE_TRIES):
                queue = await self._store.get_queue(key)
                try:
                    if queue is None:
                        return await self.create_queue(key, changes.apply(QueueSettings()))
                    return await self.update_queue(key, changes)
                except SkepError as error:
                    # Another call made or deleted the queue meanwhile: look again.
                    if error.code is not (Code.QUEUE_EXISTS if queue is None else Code.QUEUE_NOT_FOUND):
                        raise
            raise SkepError(Code.STORE_BUSY, f"the queue {key.name!r} is being made and deleted over and over")

    async def pause_queue(self, key: QueueKey) -> Queue:
        """Hand out nothing more; pushes and settlements go on."""
        return await self.update_queue(key, QueueChanges(paused=True))

    async def resume_queue(self, key: QueueKey) -> Queue:
        """Hand out messages again."""
        return await self.update_queue(key, QueueChanges(paused=False))

    async def get_queue(self, key: QueueKey) -> Queue:
        """The queue; QUEUE_NOT_FOUND when there is none."""
        with self._in_flight:
            validate.check_key(key)
            queue = await self._store.get_queue(key)
            if queue is None:
                raise no_queue(key.name)
            return queue

    async def sqs_note(self, key: QueueKey) -> bytes | None:
        """What the SQS door keeps with a queue, as it wrote it."""
        with self._in_flight:
            validate.check_key(key)
            return await self._store.sqs_note(key)

    async def keep_sqs_note(self, key: QueueKey, note: bytes, before: bytes | None) -> bool:
        """Keep another note of the SQS door with a queue; False when it is not ``before`` any more."""
        with self._in_flight:
            validate.check_key(key)
            kept = await self._store.keep_sqs_note(key, note, before, self._clock.now())
            self.caches.noted(key)
            return kept

    async def list_queues(
        self,
        tenant: str = DEFAULT_TENANT,
        *,
        after: str = "",
        limit: int = 100,
        namespace: str | None = None,
        task: str | None = None,
    ) -> list[Queue]:
        """A page of queues by name, those after ``after``."""
        with self._in_flight:
            validate.check_match(tenant, namespace, task)
            validate.check_page(limit, self._limits, after)
            return await self._store.list_queues(tenant, after, limit, namespace, task)

    async def tenants(self, *, after: str = "", limit: int = 100) -> list[str]:
        """A page of the tenants that have queues, by name, those after ``after``."""
        with self._in_flight:
            validate.check_page(limit, self._limits, after)
            return await self._store.tenants(after, limit)

    async def delete_queue(self, key: QueueKey) -> bool:
        """Delete a queue and its messages; False when there is none."""
        with self._in_flight:
            validate.check_key(key)
            deleted = await self._store.delete_queue(key, self._clock.now())
            self.caches.gone(key)
            return deleted

    async def clear(self, key: QueueKey, scope: ClearScope, *, dry_run: bool = False) -> Cleared:
        """Remove messages; with ``dry_run`` only count them."""
        with self._in_flight:
            validate.check_key(key)
            if dry_run:
                return would_clear(await self._store.queue_stats(key, self._clock.now()), scope)
            cleared = await self._store.clear(key, scope, self._clock.now())
            self._chores.inspect(key)
            self._wake(key)
            return cleared

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None = None, *, dry_run: bool = False
    ) -> DeletedMessage:
        """Delete an unsettled message for all groups, also when it is leased; with ``id_`` only if it has this id."""
        with self._in_flight:
            validate.check_key(key)
            deleted = await self._store.delete_message(key, seq, id_, self._clock.now(), dry_run)
            if not dry_run:
                # The messages behind it, and its neighbours in a lease, may be ready now.
                self._chores.inspect(key)
                self._wake(key)
            return deleted
