"""`skep queue`: list, create, change, empty and delete queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from cyclopts import App

from skep.cli.accounts import WITHIN_QUEUE
from skep.cli.connection import Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.output import (
    Columns,
    counted,
    duration,
    print_fields,
    print_one,
    print_rows,
    print_said,
    print_table,
    setting,
)
from skep.cli.queue_settings import QueueFlags, changes
from skep.errors import Code, SkepError
from skep.model.queue import no_queue

if TYPE_CHECKING:
    from skep.client import Client
    from skep.model import QueueSettings
    from skep.wire.queues import ArchiveFigures, ClearResponse, ListedQueue, QueueDeleted, QueueDetail, QueueView

queue_app = App(name="queue", help="List, create, change, empty and delete queues.", help_format="plaintext")

Scope = Literal["pending", "scheduled", "all"]


@queue_app.command(name="list")
def list_queues(*, namespace: str | None = None, task: str | None = None, to: ServerOptions = ServerOptions()) -> None:
    """List queues by name, with their figures.

    For example:
        skep queue list --namespace billing

    Parameters
    ----------
    namespace
        Only queues of this namespace.
    task
        Only queues of this task.
    """
    with to.open() as client:
        found = client.queues(namespace=namespace, task=task)
        print_rows(to, found, LISTED, empty="there are no queues")


@queue_app.command
def show(queue: Queue, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Show a queue: its settings, its figures, and the figures of every group.

    For example:
        skep queue show orders
    """
    with to.open() as client:
        print_one(to, client.stats(queue), _show_detail)


@queue_app.command
def create(queue: Queue, /, *, flags: QueueFlags = QueueFlags(), to: ServerOptions = ServerOptions()) -> None:
    """Create a queue; exit code 1 when it exists already.

    For example:
        skep queue create orders --max-attempts 5 --lease-seconds 60
    """
    with to.open() as client:
        if _exists(client, queue):
            raise SkepError(Code.QUEUE_EXISTS, f"there is a queue {queue!r} already; skep queue update changes it")
        print_one(to, client.configure(queue, **changes(flags)), _show_view)


@queue_app.command
def update(queue: Queue, /, *, flags: QueueFlags = QueueFlags(), to: ServerOptions = ServerOptions()) -> None:
    """Change settings of a queue. Settings that are not given stay as they are.

    For example:
        skep queue update orders --max-attempts 10 --reset lease_seconds
    """
    wanted = changes(flags)
    if not wanted:
        raise SkepError(Code.INVALID_REQUEST, "say what to change, such as --max-attempts 10")
    with to.open() as client:
        if not _exists(client, queue):
            raise no_queue(queue)
        print_one(to, client.configure(queue, **wanted), _show_view)


@queue_app.command
def delete(queue: Queue, /, *, consent: Consent = Consent(), to: ServerOptions = ServerOptions()) -> None:
    """Delete a queue with all its messages and groups.

    For example:
        skep queue delete orders --dry-run
    """
    with to.open() as client:
        found = client.delete_queue(queue, dry_run=True)
        if not consent.dry_run:
            consent.ask(f"this deletes {_with(found)}")
            found = client.delete_queue(queue)
    print_said(to, found, f"{'would delete' if found.dry_run else 'deleted'} {_with(found)}")


@queue_app.command
def pause(queue: Queue, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Pause a queue: pops get no messages. Pushes and acks go on.

    For example:
        skep queue pause orders
    """
    with to.open() as client:
        print_said(to, client.pause(queue), f"queue {queue!r} is paused")


@queue_app.command
def resume(queue: Queue, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Resume a paused queue: pops get messages again.

    For example:
        skep queue resume orders
    """
    with to.open() as client:
        print_said(to, client.resume(queue), f"queue {queue!r} hands out messages again")


@queue_app.command
def clear(
    queue: Queue,
    /,
    *,
    scope: Scope = "pending",
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Delete messages of a queue, and keep the queue.

    For example:
        skep queue clear orders --scope all --yes

    Parameters
    ----------
    scope
        The messages to delete: pending, scheduled, or all (both, and leased messages too).
    """
    with to.open() as client:
        found = client.clear(queue, scope, dry_run=True)
        if not consent.dry_run:
            consent.ask(f"this deletes {_taken(found)}")
            found = client.clear(queue, scope)
    print_said(to, found, f"{'would delete' if found.dry_run else 'deleted'} {_taken(found)}")


def _exists(client: Client, queue: str) -> bool:
    try:
        client.stats(queue)
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise
        return False
    return True


def _with(one: QueueDeleted) -> str:
    messages = f"{counted(one.depth, 'unsettled message')} ({one.in_flight:,} in flight, {one.scheduled:,} scheduled)"
    return f"queue {one.queue!r} with {messages} and {counted(one.groups, 'group')}"


def _taken(one: ClearResponse) -> str:
    return f"{counted(one.pending, 'message')} and {one.scheduled:,} scheduled of queue {one.queue!r}"


def _settings(queue: str, settings: QueueSettings) -> dict[str, object]:
    from skep.model import DEAD_LETTER_SUFFIX, NO_DEAD_LETTER_QUEUE

    shown = {name: setting(value) for name, value in msgspec.structs.asdict(settings).items()}
    if settings.dead_letter_queue is None:
        shown["dead_letter_queue"] = f"{queue}{DEAD_LETTER_SUFFIX} (the default)"
    elif settings.dead_letter_queue == NO_DEAD_LETTER_QUEUE:
        shown["dead_letter_queue"] = f"{NO_DEAD_LETTER_QUEUE} (dead letters are discarded)"
    return shown


def _show_view(view: QueueView) -> None:
    print_fields({"queue": view.name, **_settings(view.name, view.settings)})


def _show_detail(detail: QueueDetail) -> None:
    stats = detail.stats
    print_fields({
        "queue": detail.name,
        "messages": f"seq {stats.first_seq:,} to {stats.last_seq:,}" if stats.last_seq >= stats.first_seq else "none",
        "depth": stats.depth,
        "in flight": stats.in_flight,
        "scheduled": stats.scheduled,
        "dead letters": stats.dead_letters,
        "oldest": duration(stats.oldest_age_seconds),
        **({} if stats.archive is None else {"not archived": _unarchived(stats.archive)}),
        "created": detail.created_at,
        **_settings(detail.name, detail.settings),
    })  # fmt: skip
    if detail.groups:
        print_table(detail.groups, WITHIN_QUEUE)


def _unarchived(archive: ArchiveFigures) -> str:
    """The messages that retention keeps until an archive has them."""
    reached = (
        "no archive has reported yet" if archive.archived_seq is None else f"archived to seq {archive.archived_seq:,}"
    )
    if not archive.unarchived:
        return f"nothing; {reached}"
    return f"{counted(archive.unarchived, 'message')}, the oldest {duration(archive.unarchived_seconds)} old; {reached}"


LISTED: Columns[ListedQueue] = {
    "queue": lambda one: one.name,
    "depth": lambda one: one.stats and one.stats.depth,
    "in flight": lambda one: one.stats and one.stats.in_flight,
    "dead": lambda one: one.stats and one.stats.dead_letters,
    "oldest": lambda one: one.stats and duration(one.stats.oldest_age_seconds),
    "pushed/s": lambda one: one.stats and one.stats.rates.pushed,
    "done/s": lambda one: one.stats and one.stats.rates.completed,
    "": lambda one: "paused" if one.settings.paused else "",
}
