"""`skep pace` and `skep consumers`: see how a queue keeps up, and which consumers it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.connection import Queue, ServerOptions
from skep.cli.leases import named
from skep.cli.output import Columns, print_lines, print_one, print_rows, print_table

if TYPE_CHECKING:
    from skep.wire.pace import ConnectedConsumer, DurationsView, GroupTiming, PaceResponse


def pace(queue: Queue, /, *, to: ServerOptions = ServerOptions()) -> None:
    """See how a queue keeps up: rates in and out, the bottleneck, wait and handler times.

    For example:
        skep pace orders
    """
    with to.open() as client:
        print_one(to, client.pace(queue), _show)


def consumers(queue: str | None = None, /, *, to: ServerOptions = ServerOptions()) -> None:
    """See the consumers that wait for messages, popped in the last five minutes, or hold leases.

    For example:
        skep consumers orders

    Parameters
    ----------
    queue
        Only consumers of this queue.
    """
    with to.open() as client:
        print_rows(to, client.consumers(queue), CONSUMERS, empty="there are no consumers")


def _show(told: PaceResponse) -> None:
    print_lines([told.sentence])
    if told.timings:
        print_table(told.timings, TIMINGS)


def _took(durations: DurationsView | None, name: str) -> str | None:
    if durations is None:
        return None
    value: float = getattr(durations, name)
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:,.1f} s"


TIMINGS: Columns[GroupTiming] = {
    "group": lambda one: one.consumer_group,
    "wait p50": lambda one: _took(one.wait, "p50"),
    "p95": lambda one: _took(one.wait, "p95"),
    "p99": lambda one: _took(one.wait, "p99"),
    "handler p50": lambda one: _took(one.handler, "p50"),
    "handler p95": lambda one: _took(one.handler, "p95"),
    "handler p99": lambda one: _took(one.handler, "p99"),
}
CONSUMERS: Columns[ConnectedConsumer] = {
    "consumer": lambda one: named(one.consumer),
    "version": lambda one: None if one.consumer is None else one.consumer.version,
    "queue": lambda one: one.queue,
    "group": lambda one: one.consumer_group,
    "waiting": lambda one: one.waiting,
    "leases": lambda one: one.leases,
    "messages": lambda one: one.messages,
    "last seen": lambda one: one.last_seen_at,
}
