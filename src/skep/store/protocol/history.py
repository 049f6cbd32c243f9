"""Histories and traces. Every read is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import QueueKey, Seq, StoredMessage
from skep.model.history import (
    FailedAttempt,
    FinishedLease,
    Journey,
    LeaseTime,
    Moment,
    RetentionPass,
    TraceEvent,
    TraceName,
)


class FailureVerbs(Protocol):
    """Failed attempts, with their errors."""

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        """The latest `FAILURES_SHOWN` failed attempts of each message over all groups, oldest first."""


class HistoryVerbs(Protocol):
    """Figures by the minute, finished leases, retention passes, and events of traces."""

    async def past(self, tenant: str, names: Sequence[str] | None, since: Instant) -> list[list[Moment]]:
        """Figures by the minute since an instant, oldest first: of each queue, or with None of the tenant as a whole.

        Between two equal figures, and after the last, nothing changed. The first figure may be from before that instant. A missing
        queue has none.
        """

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        """The finished leases that each message was in, as far as `SEARCHED_LEASES` rows tell: those that ended after the
        message was created, and the newest.

        The outcome is that of the message: ``returned`` when its lease ended with a neighbour's failure, and it comes again.
        """

    async def lease_times(self, key: QueueKey, since: Instant) -> list[LeaseTime]:
        """The wait and handler times of a queue's newest leases that ended since an instant, newest first; at most `TIMED_LEASES`."""

    async def retention_history(self, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
        """The latest retention passes, newest first."""

    async def with_transaction_id(self, tenant: str, transaction_id: str, limit: int = 100) -> list[StoredMessage]:
        """Messages of the tenant's queues with this transaction id, newest first, without their payloads.

        When there are more than ``limit``, those of some queues may be missing.
        """

    async def note_trace_events(self, tenant: str, events: Sequence[TraceEvent]) -> None:
        """Store events of traces. They are kept for a while, up to a number."""

    async def trace_events(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
        """The events of a trace, in the order in which they were reported."""

    async def named_trace_events(
        self, tenant: str, name: str, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        """Events with this name before a position, newest first."""

    async def trace_names(self, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
        """The names of trace events after ``after``, in alphabetical order."""
