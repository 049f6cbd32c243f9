"""`skep group`: see the progress of consumer groups; move and delete groups."""

from __future__ import annotations

from cyclopts import App

from skep.cli.accounts import QUEUE, WITHIN_QUEUE
from skep.cli.connection import GroupName, Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.output import counted, print_rows, print_said
from skep.cli.when import position

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
    queue: Queue, group: GroupName, place: str, /, *, consent: Consent = Consent(), to: ServerOptions = ServerOptions()
) -> None:
    """Move a group (seek). A missing group is created. The group's leases end.

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
        named = f"group {group!r} of queue {queue!r}"
        moves, moved, moving = "moves", "moved", f"{named} from seq {found.from_seq} to {found.to_seq}"
        if found.from_seq is None:
            moves, moved, moving = "makes", "made", f"{named}, which is not there, at seq {found.to_seq}"
        then = f"{counted(found.pending, 'message')} come after it, {found.in_flight:,} in flight lose their lease"
        if not consent.dry_run:
            consent.ask(f"this {moves} {moving}: {then}")
            found = client.seek(queue, group, where)
    print_said(to, found, f"{f'would {moves[:-1]}' if found.dry_run else moved} {moving}")


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
