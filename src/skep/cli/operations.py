"""`skep ops`: calls that servers queued under load."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from skep.cli.connection import LISTED, Limit, ServerOptions
from skep.cli.output import Columns, duration, print_fields, print_one, print_rows

if TYPE_CHECKING:
    from skep.wire.operations import OperationFiguresView, OperationStatsResponse, OperationView

operations_app = App(
    name="ops", help="See calls that were queued under load, and cancel them.", help_format="plaintext"
)

OperationId = Annotated[str, Parameter(help="The operation's id, from the answer (202) to the call.")]


@operations_app.command(name="list")
def list_operations(
    *,
    status: Literal["pending", "processing", "blocked", "completed", "failed", "cancelled"] | None = None,
    kind: Literal["push", "ack_batch", "ack_single"] | None = None,
    queue: str | None = None,
    partition: str | None = None,
    limit: Limit = LISTED,
    to: ServerOptions = ServerOptions(),
) -> None:
    """List queued calls, newest first.

    For example:
        skep ops list --status failed --queue orders

    Parameters
    ----------
    status
        Only calls in this state.
    kind
        Only calls of this kind.
    queue
        Only calls to this queue.
    partition
        Only calls to this partition.
    limit
        The largest number of calls to list.
    """
    with to.open() as client:
        found = client.operations(status=status, kind=kind, queue=queue, partition=partition)
        print_rows(to, islice(found, limit), COLUMNS, empty="no call is queued, or was lately")


@operations_app.command
def show(operation: OperationId, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Show a queued call, with its result once it is completed.

    For example:
        skep ops show 0198c6f1-7b1f-7000-8000-1f2e3d4c5b6a
    """
    with to.open() as client:
        print_one(to, client.operation(operation), _show)


@operations_app.command
def cancel(operation: OperationId, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Cancel a queued call that is pending or blocked: no server performs it now.

    For example:
        skep ops cancel 0198c6f1-7b1f-7000-8000-1f2e3d4c5b6a
    """
    with to.open() as client:
        print_one(to, client.cancel_operation(operation), _show)


@operations_app.command
def stats(*, to: ServerOptions = ServerOptions()) -> None:
    """Show how many calls are queued, how old they are, and how busy the connections are.

    For example:
        skep ops stats -o json | jq .depth
    """
    with to.open() as client:
        print_one(to, client.operation_stats(), lambda found: _show_stats(to, found))


COLUMNS: Columns[OperationView] = {
    "id": lambda one: one.id,
    "kind": lambda one: one.kind,
    "queue": lambda one: one.queue,
    "partition": lambda one: one.partition,
    "status": lambda one: one.status,
    "messages": lambda one: one.messages,
    "created": lambda one: one.created_at,
    "tries": lambda one: one.tries,
    "code": lambda one: one.code,
    "error": lambda one: one.error_message,
}
FIGURES: Columns[OperationFiguresView] = {
    "kind": lambda one: one.kind,
    "status": lambda one: one.status,
    "count": lambda one: one.count,
    "oldest": lambda one: one.oldest,
    "newest": lambda one: one.newest,
    "average": lambda one: None if one.average_latency_seconds is None else duration(one.average_latency_seconds),
}


def _show(one: OperationView) -> None:
    print_fields({
        "id": one.id,
        "kind": one.kind,
        "queue": one.queue,
        "partition": one.partition,
        "status": f"{one.status} (stuck)" if one.stuck else one.status,
        "messages": f"{one.messages:,} in {one.size_bytes:,} bytes",
        "created": one.created_at,
        "started": one.started_at,
        "processed": one.processed_at,
        "ready": one.ready_at,
        "blocked since": one.blocked_at,
        "last error at": one.last_error_at,
        "worker": one.worker,
        "tries": one.tries,
        "error": one.error_message if one.code is None else f"{one.code}: {one.error_message}",
        "dead letters": one.dead_letter_queue,
        "result": bytes(one.result).decode(),
    })  # fmt: skip


def _show_stats(to: ServerOptions, found: OperationStatsResponse) -> None:
    if found.pool is not None:  # None when this key may not see the figures of all tenants
        print_fields({
            "waiting": found.depth,
            "oldest": duration(found.oldest_age_seconds or 0.0),
            "stuck": found.stuck,
            "blocked": found.blocked,
            "performed a second": found.drain_rate,
            "connections": f"{found.pool.active} at work, {found.pool.waiting} waited for, load {found.pool.utilisation:.0%}",
        })  # fmt: skip
    print_rows(to, found.operations, FIGURES, empty="no call is queued, or was lately")
