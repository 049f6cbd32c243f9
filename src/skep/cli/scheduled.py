"""`skep scheduled`: look at scheduled messages; cancel, move and run them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Group, Parameter

from skep.cli.connection import LISTED, Limit, Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.exits import NOTHING, OK, note
from skep.cli.messages import show_whole
from skep.cli.output import Columns, counted, excerpt, print_one, print_rows, print_said
from skep.cli.when import deadline
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.wire.scheduled import ScheduledChanged, ScheduledView

scheduled_app = App(
    name="scheduled",
    help="See scheduled messages; cancel, move and run them before they are due.",
    help_format="plaintext",
)


Messages = Annotated[
    list[str] | None, Parameter(negative="", help="The ids of the messages; without any, all that match the filters.")
]

_GROUP = Group("Which scheduled messages", sort_key=50)


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class ScheduledFilters:
    """Filters of scheduled messages. A message must match all of them."""

    partition: str | None = None
    """Only messages of this partition."""
    transaction_id: str | None = None
    """Only messages with this transaction id."""
    trace_id: str | None = None
    """Only messages of this trace."""
    due_after: str | None = None
    """Only messages that are due at or after this time: 2026-01-31T12:00:00Z, or 2h for in two hours."""
    due_before: str | None = None
    """Only messages that are due before this time."""

    def query(self) -> dict[str, Any]:
        """These filters as arguments of the client, which leaves out those that are None."""
        return {
            "partition": self.partition,
            "transaction_id": self.transaction_id,
            "trace_id": self.trace_id,
            "due_after": None if self.due_after is None else deadline(self.due_after),
            "due_before": None if self.due_before is None else deadline(self.due_before),
        }


@scheduled_app.command(name="list")
def list_scheduled(
    queue: str | None = None,
    /,
    *,
    which: ScheduledFilters = ScheduledFilters(),
    limit: Limit = LISTED,
    to: ServerOptions = ServerOptions(),
) -> None:
    """List scheduled messages, the one that is due next at the top.

    For example:
        skep scheduled list
        skep scheduled list orders --due-before 2h

    Parameters
    ----------
    queue
        The queue; all queues when none is named.
    limit
        The largest number of messages to list.
    """
    with to.open() as client:
        found = client.scheduled(queue, **which.query())
        print_rows(to, islice(found, limit), COLUMNS, empty="no messages are scheduled")


@scheduled_app.command
def show(
    queue: Queue,
    message: str | None = None,
    /,
    *,
    transaction_id: str | None = None,
    trace_id: str | None = None,
    to: ServerOptions = ServerOptions(),
) -> int:
    """Show scheduled messages with their payloads, by id, transaction id or trace.

    Exit code 4 when there is none.

    For example:
        skep scheduled show orders 0199a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b
        skep scheduled show orders --transaction-id order-1

    Parameters
    ----------
    message
        The id of the message, as `skep push` and `skep scheduled list` print it.
    transaction_id
        The transaction id of the message.
    trace_id
        The trace id of the messages.
    """
    which = ScheduledFilters(transaction_id=transaction_id, trace_id=trace_id)
    if (message is None) == (which == ScheduledFilters()):
        raise SkepError(Code.INVALID_REQUEST, "name the message by its id, or by --transaction-id or --trace-id")
    with to.open() as client:
        if message is not None:
            found = [client.scheduled_message(queue, message)]
        else:
            listed = list(islice(client.scheduled(queue, **which.query(), preview=0), LISTED))
            found = [client.scheduled_message(queue, one.id) for one in listed]
    if not found:
        return _none()
    for one in found:
        print_one(to, one, show_whole)
    return OK


@scheduled_app.command
def cancel(
    queue: Queue,
    messages: Messages = None,
    /,
    *,
    which: ScheduledFilters = ScheduledFilters(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Cancel scheduled messages: they never enter the log.

    Their transaction ids stay taken until the deduplication window ends.
    Exit code 4 when there are none.

    For example:
        skep scheduled cancel orders --partition customer-1 --dry-run
    """
    return _change(to, consent, "cancel", "cancelled", queue, _wish(messages, which), lambda client, **wish: (
        client.cancel_scheduled(queue, **wish)
    ))  # fmt: skip


@scheduled_app.command
def run(
    queue: Queue,
    messages: Messages = None,
    /,
    *,
    which: ScheduledFilters = ScheduledFilters(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Let scheduled messages enter the log now. Exit code 4 when there are none.

    For example:
        skep scheduled run orders --due-before 1h --yes
    """
    return _change(to, consent, "run", "ran", queue, _wish(messages, which), lambda client, **wish: (
        client.run_scheduled(queue, **wish)
    ))  # fmt: skip


@scheduled_app.command
def move(
    queue: Queue,
    messages: Messages = None,
    /,
    *,
    deliver_at: str,
    which: ScheduledFilters = ScheduledFilters(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> int:
    """Move scheduled messages to another time. Exit code 4 when there are none.

    For example:
        skep scheduled move orders --transaction-id order-1 --deliver-at 2h --yes

    Parameters
    ----------
    deliver_at
        The new time, 2026-01-31T12:00:00Z, or 10m for in ten minutes.
    """
    at = deadline(deliver_at)
    return _change(to, consent, "move", "moved", queue, _wish(messages, which), lambda client, **wish: (
        client.move_scheduled(queue, at, **wish)
    ))  # fmt: skip


def _wish(messages: list[str] | None, which: ScheduledFilters) -> dict[str, Any]:
    return {**which.query(), **({"ids": messages} if messages else {})}


def _change(
    to: ServerOptions,
    consent: Consent,
    verb: str,
    done: str,
    queue: str,
    wish: dict[str, Any],
    call: Callable[..., ScheduledChanged],
) -> int:
    """Count the messages, ask, and change them. The mark of the count leaves out messages that are scheduled meanwhile."""
    with to.open() as client:
        found = call(client, **wish, dry_run=True)
        if not found.count:
            return _none()
        if not consent.dry_run:
            consent.ask(f"this will {verb} {counted(found.count, 'scheduled message')} of {queue!r}")
            found = call(client, **wish, mark=found.mark)
    said = f"would {verb}" if found.dry_run else done
    print_said(to, found, f"{said} {counted(found.count, 'scheduled message')}")
    return OK


def _none() -> int:
    note("there are no such scheduled messages")
    return NOTHING


COLUMNS: Columns[ScheduledView] = {
    "due": lambda one: one.deliver_at,
    "queue": lambda one: one.queue,
    "partition": lambda one: one.partition,
    "id": lambda one: one.id,
    "transaction id": lambda one: one.transaction_id,
    "payload": lambda one: excerpt(one.payload, one.preview),
}
