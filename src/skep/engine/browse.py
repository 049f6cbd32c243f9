"""Browsing: figures of queues and partitions, live leases, messages, traces and histories. Reached as ``engine.browse``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from skep.clock import Clock, Instant
from skep.config import Limits
from skep.engine import validate
from skep.engine.inflight import InFlight
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DEFAULT_TENANT,
    QUEUE_MODE_GROUP,
    LeasedMessage,
    LeaseFilter,
    LeaseInfo,
    MessageFilter,
    MessagePage,
    PartitionStats,
    Queue,
    QueueKey,
    QueueStats,
    Seq,
    StoredMessage,
)
from skep.model.history import FinishedLease, RetentionPass
from skep.store.protocol.browse import BrowseVerbs
from skep.store.protocol.history import HistoryVerbs
from skep.store.protocol.leases import LeaseVerbs
from skep.store.protocol.stats import StatsVerbs

LOOKED_AT_ONCE = 100
"""How many queues one call reads the figures of. Other reads wait while it runs."""


class FigureVerbs(StatsVerbs, LeaseVerbs, HistoryVerbs, Protocol):
    """The store's verbs for figures and lists without payloads."""


@dataclass(eq=False)
class Browse:
    """Read-only views of the present state. Every call is bounded."""

    _store: FigureVerbs
    _opened: BrowseVerbs
    _clock: Clock
    _in_flight: InFlight
    _limits: Limits

    async def queue_stats(self, key: QueueKey) -> QueueStats:
        """A queue's figures."""
        with self._in_flight:
            validate.check_key(key)
            return await self._store.queue_stats(key, self._clock.now())

    async def stats_of(self, queues: Sequence[Queue]) -> list[QueueStats | None]:
        """The figures of some queues, at most as many as one call may read; None for a queue that is gone."""
        with self._in_flight:
            validate.check_count(len(queues), LOOKED_AT_ONCE, "the number of queues")
            return await self._store.stats_of(queues, self._clock.now())

    async def partition_stats(
        self, key: QueueKey, group: str = QUEUE_MODE_GROUP, *, after: str = "", limit: int = 100
    ) -> list[PartitionStats]:
        """A page of the partitions with unsettled messages of a group."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_name(group, "group")
            validate.check_page(limit, self._limits, after)
            return await self._opened.partition_stats(key, group, self._clock.now(), after, limit)

    async def leases(
        self,
        tenant: str = DEFAULT_TENANT,
        *,
        key: QueueKey | None = None,
        expiring_before: Instant | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """Live leases by deadline; with ``expiring_before`` those about to run out."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            if key is not None:
                validate.check_key(key)
            validate.check_page(limit, self._limits)
            return await self._store.leases(tenant, self._clock.now(), key, expiring_before, limit)

    async def leased_messages(self, wanted: Sequence[LeaseFilter]) -> list[list[LeasedMessage]]:
        """For each filter the unsettled messages under live leases; none when its queue or its group is unknown."""
        with self._in_flight:
            validate.check_count(len(wanted), self._limits.settlements, "the number of leases")
            for one in wanted:
                validate.check_key(one.queue)
                validate.check_name(one.group, "group")
                validate.check_texts((one.partition,))
                if one.token is not None:
                    validate.check_token(one.token)
                elif one.partition is None:
                    raise SkepError(Code.INVALID_REQUEST, "leases are looked for in a partition or by a token")
            return await self._store.leased_messages(wanted, self._clock.now())

    async def messages(self, wanted: MessageFilter) -> MessagePage:
        """Browse the log, page by page."""
        with self._in_flight:
            validate.check_key(wanted.queue)
            validate.check_texts((wanted.partition, wanted.group, wanted.transaction_id))
            validate.check_page(wanted.limit, self._limits)
            return await self._opened.messages(wanted, self._clock.now())

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage:
        """One message with its whole payload; MESSAGE_NOT_FOUND when there is none."""
        with self._in_flight:
            validate.check_key(key)
            message = await self._opened.message(key, seq) if 0 <= seq <= validate.SEQ_MAX else None
            if message is None:
                raise SkepError(Code.MESSAGE_NOT_FOUND, f"there is no message {seq} in {key.name!r}", seq=seq)
            return message

    async def trace(self, trace_id: Id, tenant: str = DEFAULT_TENANT, *, limit: int = 1000) -> list[StoredMessage]:
        """All messages of a trace across a tenant's queues, oldest first. Payloads beyond `page_bytes` together are left out."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            if len(trace_id) != validate.ID_BYTES:
                raise SkepError(Code.INVALID_TRACE_ID, "a trace id is a UUID")
            validate.check_page(limit, self._limits)
            return await self._opened.trace(tenant, trace_id, limit, self._limits.page_bytes)

    async def with_transaction_id(
        self, transaction_id: str, tenant: str = DEFAULT_TENANT, *, limit: int = 100
    ) -> list[StoredMessage]:
        """Messages of a tenant's queues with this transaction id, newest first, without their payloads."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_texts((transaction_id,))
            validate.check_page(limit, self._limits)
            return await self._store.with_transaction_id(tenant, transaction_id, limit)

    async def lease_history(
        self, key: QueueKey, *, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        """Finished leases with their positions in the history: after position ``after``, ended at or after ``since``."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_page(limit, self._limits)
            return await self._store.lease_history(key, after, limit, since)

    async def retention_history(self, key: QueueKey, *, limit: int = 100) -> list[RetentionPass]:
        """The latest retention passes, newest first."""
        with self._in_flight:
            validate.check_key(key)
            validate.check_page(limit, self._limits)
            return await self._store.retention_history(key, limit)
