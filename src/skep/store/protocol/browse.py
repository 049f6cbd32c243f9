"""Browsing messages. Reads only."""

from __future__ import annotations

from typing import Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import MessageFilter, MessagePage, PartitionStats, QueueKey, Seq, StoredMessage
from skep.model.record import MAX_BYTES


class BrowseVerbs(Protocol):
    """Messages of a log or a trace, and partitions with the error that holds them up."""

    async def messages(self, wanted: MessageFilter, now: Instant) -> MessagePage:
        """Browse the log. A page may be short, or empty with ``after`` set: the walk per call is bounded."""

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage | None:
        """One message with its whole payload."""

    async def trace(
        self, tenant: str, trace_id: Id, limit: int = 1000, max_bytes: int = MAX_BYTES
    ) -> list[StoredMessage]:
        """All messages of a trace across the tenant's queues, oldest first; those beyond ``max_bytes`` of payloads without payloads."""

    async def partition_stats(
        self, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
    ) -> list[PartitionStats]:
        """Partitions with unsettled, discovered messages, by name."""
