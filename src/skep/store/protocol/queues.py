"""Queues and their settings."""

from __future__ import annotations

from typing import Protocol

from skep.clock import Instant
from skep.model import Cleared, ClearScope, Queue, QueueChanges, QueueKey, QueueSettings


class QueueVerbs(Protocol):
    """Queues and their settings."""

    async def create_queue(self, key: QueueKey, settings: QueueSettings, now: Instant) -> Queue:
        """Create a queue; QUEUE_EXISTS when there is one, DEAD_LETTER_… when the dead-letter rules forbid it."""

    async def update_queue(self, key: QueueKey, changes: QueueChanges, now: Instant) -> Queue:
        """Change the given settings. The ordering changes only while no message is unsettled and no operation waits (INVALID_SETTING)."""

    async def get_queue(self, key: QueueKey) -> Queue | None:
        """The queue, or None."""

    async def list_queues(
        self, tenant: str, after: str = "", limit: int = 100, namespace: str | None = None, task: str | None = None
    ) -> list[Queue]:
        """Queues of a tenant by name, after the name ``after``."""

    async def sqs_note(self, key: QueueKey) -> bytes | None:
        """What the SQS door keeps with a queue, as it wrote it; None when it wrote nothing, or there is no such queue."""

    async def keep_sqs_note(self, key: QueueKey, note: bytes, before: bytes | None, now: Instant) -> bool:
        """Keep another note with a queue; False when the note is not ``before`` any more. QUEUE_NOT_FOUND when there is no queue."""

    async def tenants(self, after: str = "", limit: int = 100) -> list[str]:
        """Tenants that have queues, by name, after the name ``after``. So timers find queues that were not used since the start."""

    async def delete_queue(self, key: QueueKey, now: Instant) -> bool:
        """Delete a queue and its messages; False when there is none, DEAD_LETTER_QUEUE_IN_USE while another queue names it."""

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        """Settle pending messages as expired (ALL: leased ones, too, and their leases end), and delete scheduled ones, by scope."""
