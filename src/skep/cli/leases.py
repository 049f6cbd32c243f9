"""`skep lease`: see which consumers hold leases, since when and until when, and end their leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from skep.cli.connection import LISTED, GroupName, Limit, Queue, ServerOptions
from skep.cli.exits import NOTHING, OK
from skep.cli.output import Columns, counted, duration, print_rows, print_said

if TYPE_CHECKING:
    from skep.wire.attempts import ConsumerView
    from skep.wire.status import LiveLease

lease_app = App(name="lease", help="See which consumers hold leases, and end their leases.", help_format="plaintext")


@lease_app.command(name="list")
def list_leases(
    queue: str | None = None,
    /,
    *,
    expiring_within: float | None = None,
    limit: Limit = LISTED,
    to: ServerOptions = ServerOptions(),
) -> None:
    """List live leases, the one that ends first at the top.

    For example:
        skep lease list orders

    Parameters
    ----------
    queue
        Only leases of this queue.
    expiring_within
        Only leases that end within this many seconds.
    limit
        The largest number of leases to list.
    """
    with to.open() as client:
        found = client.leases(queue, expiring_within=expiring_within, limit=limit)
    print_rows(to, found, COLUMNS, empty="nobody holds a lease")


@lease_app.command
def release(queue: Queue, group: GroupName, partition: str, /, *, to: ServerOptions = ServerOptions()) -> int:
    """End the leases of a partition: its messages are delivered again at once.

    The delivery counts as an attempt. The old holder may still ack until another consumer gets the messages. Exit code 4 when
    nobody holds the partition.

    For example:
        skep lease release orders billing customer-1

    Parameters
    ----------
    partition
        The partition, as `skep lease list` shows it.
    """
    with to.open() as client:
        found = client.release_partition(queue, group, partition)
    print_said(to, found, f"{counted(found.released, 'lease')} of {partition!r} released")
    return OK if found.released else NOTHING


def named(consumer: ConsumerView | None) -> str | None:
    """A consumer in a cell: its name, its host and its process."""
    if consumer is None:
        return None
    place = ":".join(part for part in (consumer.host, consumer.pid) if part)
    return "@".join(part for part in (consumer.name, place) if part) or None


COLUMNS: Columns[LiveLease] = {
    "queue": lambda one: one.queue,
    "group": lambda one: one.consumer_group,
    "partition": lambda one: one.partition,
    "messages": lambda one: one.messages,
    "attempt": lambda one: one.attempts,
    "consumer": lambda one: named(one.consumer),
    "version": lambda one: None if one.consumer is None else one.consumer.version,
    "since": lambda one: one.leased_at,
    "until": lambda one: one.lease_deadline,
    "left": lambda one: duration(one.remaining_seconds),
}
