"""What clearing a queue would take away, from its figures: the dry run of `clear`."""

from __future__ import annotations

from skep.model import Cleared, ClearScope, QueueStats


def would_clear(stats: QueueStats, scope: ClearScope) -> Cleared:
    """How many messages clearing in this scope would take away, going by the slowest group."""
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
