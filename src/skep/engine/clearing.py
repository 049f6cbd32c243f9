"""The dry run of `clear`: how many messages it would remove, from the figures of the queue."""

from __future__ import annotations

from skep.model import Cleared, ClearScope, QueueStats


def would_clear(stats: QueueStats, scope: ClearScope) -> Cleared:
    """How many messages a clear in this scope would remove, by the group with the most unsettled messages."""
    groups = stats.groups
    pending = max((group.pending for group in groups), default=stats.depth - stats.scheduled)
    match scope:
        case ClearScope.PENDING:
            return Cleared(pending, 0)
        case ClearScope.SCHEDULED:
            return Cleared(0, stats.scheduled)
        case ClearScope.ALL:
            in_flight = max((group.pending + group.in_flight for group in groups), default=pending)
            return Cleared(in_flight, stats.scheduled)
