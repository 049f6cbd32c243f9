"""`skep lag`: see which groups are behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.accounts import last_used
from skep.cli.connection import ServerOptions
from skep.cli.output import Columns, duration, print_rows

if TYPE_CHECKING:
    from skep.wire.groups import GroupFigures


def lag(
    *, queue: str | None = None, group: str | None = None, above: int = 0, to: ServerOptions = ServerOptions()
) -> None:
    """See which groups are behind, the furthest first.

    For example:
        skep lag --above 1000

    Parameters
    ----------
    queue
        Only groups of this queue.
    group
        Only the group of this name.
    above
        Only groups that are at least this many messages behind.
    """
    with to.open() as client:
        found = [
            one for one in client.groups(queue) if one.lag >= above and (group is None or one.consumer_group == group)
        ]
    found.sort(key=lambda one: (-one.lag, one.queue, one.consumer_group))
    print_rows(to, found, COLUMNS, empty="no group is behind by that much")


COLUMNS: Columns[GroupFigures] = {
    "queue": lambda one: one.queue,
    "group": lambda one: one.consumer_group,
    "lag": lambda one: one.lag,
    "oldest": lambda one: duration(one.lag_seconds),
    "in flight": lambda one: one.in_flight,
    "partitions": lambda one: one.partitions_pending,
    "leased": lambda one: one.partitions_leased,
    "done/s": lambda one: one.rates.completed,
    "last used": last_used,
    "holds": lambda one: one.held_messages or 0,
}
