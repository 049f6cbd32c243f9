"""`skep group`: see the progress of consumer groups; move and delete groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from skep.cli.accounts import QUEUE, WITHIN_QUEUE
from skep.cli.connection import GroupName, Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.exits import note
from skep.cli.old_messages import InLake, first_in_lake
from skep.cli.output import counted, print_rows, print_said
from skep.cli.when import position

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.queue_calls import Position
    from skep.wire.groups import SeekResponse

group_app = App(
    name="group", help="See the progress of consumer groups; move and delete groups.", help_format="plaintext"
)


@group_app.command(name="list")
def list_groups(*, queue: str | None = None, to: ServerOptions = ServerOptions()) -> None:
    """List groups with their figures, queue by queue.

    For example:
        skep group list --queue orders

    Parameters
    ----------
    queue
        Only groups of this queue.
    """
    with to.open() as client:
        print_rows(to, client.groups(queue), {**QUEUE, **WITHIN_QUEUE}, empty="there are no groups")


@group_app.command
def seek(
    queue: Queue,
    group: GroupName,
    place: str,
    /,
    *,
    in_lake: InLake = InLake(),
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Move a group (seek). A missing group is created. The group's leases end.

    A group moves within the log. When the position is before the log's first message, the group moves to that one. With --lake the
    command says what the lake has before it, and how to replay that.

    For example:
        skep group seek orders billing beginning --dry-run
        skep group seek orders billing 2026-01-31T12:00:00Z

    Parameters
    ----------
    place
        The new position: beginning, end, a seq (offset), a time, or 10m, 2h, 1d ago. The message there comes next.
    """
    where = position(place)
    with to.open() as client:
        found = client.seek(queue, group, where, dry_run=True)
        if where != "end":
            _tell_earlier(client, found, where, in_lake, to)
        named = f"group {group!r} of queue {queue!r}"
        moves, moved, moving = "moves", "moved", f"{named} from seq {found.from_seq} to {found.to_seq}"
        if found.from_seq is None:
            moves, moved, moving = "makes", "made", f"{named}, which is not there, at seq {found.to_seq}"
        then = f"{counted(found.pending, 'message')} come after it, {found.in_flight:,} in flight lose their lease"
        if not consent.dry_run:
            consent.ask(f"this {moves} {moving}: {then}")
            found = client.seek(queue, group, where)
    print_said(to, found, f"{f'would {moves[:-1]}' if found.dry_run else moved} {moving}")


def _tell_earlier(client: Client, found: SeekResponse, where: Position, in_lake: InLake, to: ServerOptions) -> None:
    """Say what there is before the log's first message, if the group comes to stand there."""
    begin = client.log_bounds(found.queue).first_seq
    if found.to_seq + 1 > begin or begin == 1:
        return
    old = in_lake.of(found.queue, to)
    first = None if old is None else first_in_lake(old, where)
    if old is not None and first is not None:
        note(
            f"the log of {found.queue} begins at seq {begin:,}. The lake has seqs {first} to {old.last} before it: skep message replay "
            f"{found.queue} {first}-{old.last} --group {found.consumer_group} pushes them to this group again"
        )
    elif old is None:
        note(f"the log of {found.queue} begins at seq {begin:,}. If a lake has earlier messages, --lake finds them")


@group_app.command
def delete(
    queue: Queue, group: GroupName, /, *, consent: Consent = Consent(), to: ServerOptions = ServerOptions()
) -> None:
    """Delete a group of a queue, with its progress and its leases.

    For example:
        skep group delete orders billing --yes
    """
    with to.open() as client:
        found = client.delete_group(queue, group, dry_run=True)
        what = f"group {group!r} of queue {queue!r} with {found.pending:,} pending and {found.in_flight:,} in flight"
        if not consent.dry_run:
            consent.ask(f"this forgets {what}")
            found = client.delete_group(queue, group)
    print_said(to, found, f"{'would forget' if found.dry_run else 'forgot'} {what}")
