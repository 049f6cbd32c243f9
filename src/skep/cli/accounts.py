"""A group's account as a table: pushed = completed + pending + in flight + dead + expired (I12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.output import duration

if TYPE_CHECKING:
    from skep.cli.output import Columns
    from skep.wire.groups import GroupFigures


def last_used(group: GroupFigures) -> str:
    """How long ago a group was last used, and whether the group is idle for too long."""
    return f"{duration(group.inactive_seconds)} ago" + (" (idle)" if group.idle else "")


ACCOUNT: Columns[GroupFigures] = {
    "group": lambda one: one.consumer_group,
    "pushed": lambda one: one.pushed,
    "completed": lambda one: one.completed,
    "pending": lambda one: one.pending,
    "in flight": lambda one: one.in_flight,
    "dead": lambda one: one.dead,
    "expired": lambda one: one.expired,
}
"""The columns of an account, with the group's name."""

WITHIN_QUEUE: Columns[GroupFigures] = {
    **ACCOUNT,
    "retried": lambda one: one.retried,
    "last used": lambda one: last_used(one),
    "holds": lambda one: one.held_messages or 0,
}
"""A table of one queue's groups."""

QUEUE: Columns[GroupFigures] = {"queue": lambda one: one.queue}
"""The first columns of a table with several queues."""
