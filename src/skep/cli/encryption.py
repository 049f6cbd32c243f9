"""`skep encryption`: master keys, and the keys of encrypted queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App

from skep.cli.connection import Flag, Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.output import Columns, counted, print_lines, print_rows, print_said
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.wire.encryption import DataKeyView

encryption_app = App(name="encryption", help="Look after the keys of encrypted queues.", help_format="plaintext")


@encryption_app.command
def master(name: str, /) -> None:
    """Print a new master key. Skep does not keep it: without it, no encrypted payload can ever be read.

    For example:
        (umask 077; skep encryption master 2026-01 > master.keys)

    Parameters
    ----------
    name
        The name of the master key, which tells it from the next one.
    """
    from skep.crypto.master import MasterKeys, new_master_line

    line = new_master_line(name)
    MasterKeys(line)  # it refuses a bad name, with the reason
    print_lines([line])


@encryption_app.command(name="list")
def list_keys(*, to: ServerOptions = ServerOptions()) -> None:
    """List the keys of encrypted queues, oldest first. The last key of a queue encrypts its new messages.

    For example:
        skep encryption list
    """
    with to.open() as client:
        print_rows(to, client.data_keys(), LISTED, empty="no queue has ever been encrypted")


@encryption_app.command
def rotate(queue: Queue, /, *, to: ServerOptions = ServerOptions()) -> None:
    """Give a queue a new key for new messages. The old keys go on decrypting older messages.

    For example:
        skep encryption rotate payments
    """
    with to.open() as client:
        made = client.rotate_data_key(queue)
        print_said(to, made, f"queue {made.queue!r} has the new key {made.id}")


@encryption_app.command
def rewrap(*, to: ServerOptions = ServerOptions()) -> None:
    """Wrap all queue keys by the current master key, after you put a new master key first. No payload is touched.

    For example:
        skep encryption rewrap
    """
    with to.open() as client:
        done = client.rewrap_data_keys()
        print_said(to, done, f"{counted(done.rewrapped, 'key')} wrapped by the current master key")


@encryption_app.command
def shred(
    queue: str | None = None,
    /,
    *,
    all_queues: Flag = False,
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Destroy the keys of a queue, or of all queues of the tenant. Nobody can ever read their encrypted payloads again.

    For example:
        skep encryption shred payments --dry-run
        skep encryption shred --all-queues --yes

    Parameters
    ----------
    queue
        The queue.
    all_queues
        Destroy the keys of all queues of the tenant instead.
    """
    if (queue is None) is not all_queues:
        raise SkepError(Code.INVALID_REQUEST, "name a queue, or say --all-queues: one of the two")
    whose = "all queues" if queue is None else f"queue {queue!r}"
    with to.open() as client:
        found = client.shred_data_keys(queue, dry_run=True)
        if not consent.dry_run:
            if found.keys:
                consent.ask(
                    f"this destroys {counted(found.keys, 'key')} of {whose}; nobody can ever read their encrypted payloads again"
                )
            # Also when no key is left: an earlier shred may have been interrupted before the files were clean.
            found = client.shred_data_keys(queue)
        verb = "would be" if consent.dry_run else "was" if found.keys == 1 else "were"
        print_said(to, found, f"{counted(found.keys, 'key')} of {whose} {verb} destroyed")


LISTED: Columns[DataKeyView] = {
    "queue": lambda one: one.queue,
    "key": lambda one: one.id,
    "master key": lambda one: one.master,
    "made": lambda one: one.created_at,
}
