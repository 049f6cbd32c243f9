"""`skep stats`: see the figures of one queue and its groups, or of all queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.cli.accounts import WITHIN_QUEUE
from skep.cli.connection import ServerOptions
from skep.cli.output import duration, print_fields, print_lines, print_one, print_table

if TYPE_CHECKING:
    from skep.wire.queues import Overview, QueueDetail, QueueFigures
    from skep.wire.status import StatusResponse


def stats(queue: str | None = None, /, *, to: ServerOptions = ServerOptions()) -> None:
    """See the figures of one queue and its groups; or of all queues, and which need attention.

    For example:
        skep stats
        skep stats orders -o json | jq .groups

    Parameters
    ----------
    queue
        The queue; all queues by default.
    """
    with to.open() as client:
        if queue is None:
            print_one(to, client.status(), _show_all)
        else:
            print_one(to, client.stats(queue), _show_queue)


def _show_all(status: StatusResponse) -> None:
    print_fields({"queues": status.totals.queues, "groups": status.totals.groups, **_figures(status.totals)})
    failed = [f"! {one.calls:,} calls failed with {one.code} in the last minute" for one in status.failed_calls]
    print_lines([*failed, *(f"! {warned.message}" for warned in status.warnings)] or ["nothing needs attention"])


def _show_queue(detail: QueueDetail) -> None:
    print_fields({"queue": detail.name, **_figures(detail.stats)})
    if detail.groups:
        print_table(detail.groups, WITHIN_QUEUE)


def _figures(one: Overview | QueueFigures) -> dict[str, object]:
    rates = one.rates
    return {
        "depth": one.depth,
        "in flight": one.in_flight,
        "scheduled": one.scheduled,
        "dead letters": one.dead_letters,
        "oldest": duration(one.oldest_age_seconds),
        "per second": f"{rates.pushed:.1f} pushed, {rates.completed:.1f} done, {rates.retried:.1f} retried",
    }
