"""A group's account as a table: pushed = completed + pending + in flight + dead + expired (I12)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skep.cli.output import Columns
    from skep.wire.groups import GroupFigures

ACCOUNT: Columns[GroupFigures] = {
    "group": lambda one: one.consumer_group,
    "pushed": lambda one: one.pushed,
    "completed": lambda one: one.completed,
    "pending": lambda one: one.pending,
    "in flight": lambda one: one.in_flight,
    "dead": lambda one: one.dead,
    "expired": lambda one: one.expired,
    "retried": lambda one: one.retried,
}
"""A table within one queue."""

LISTED: Columns[GroupFigures] = {"queue": lambda one: one.queue, **ACCOUNT}
"""A table over queues."""
