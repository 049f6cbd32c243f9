"""`skep message`: look at messages without leasing them; push some again, delete one, or forget some for good."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import msgspec
from cyclopts import App, Parameter

from skep.cli.connection import LISTED, Flag, Limit, Queue, ServerOptions
from skep.cli.consent import Consent
from skep.cli.leases import named
from skep.cli.old_messages import InLake, from_lake, with_old
from skep.cli.output import (
    Columns,
    counted,
    duration,
    excerpt,
    print_fields,
    print_lines,
    print_one,
    print_rows,
    print_said,
    print_table,
)
from skep.cli.replay import replay
from skep.cli.seqs import one_or_range
from skep.cli.when import Since, Until, instant
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.client import Client
    from skep.wire.attempts import AttemptView
    from skep.wire.browsing import BrowsedMessage, MessageDeleted, MessageStory
    from skep.wire.forgetting import ForgetResponse

message_app = App(
    name="message",
    help="Look at messages without leasing them; replay, delete or forget them.",
    help_format="plaintext",
)

message_app.command(replay)
State = Literal["pending", "in_flight", "settled", "dead"]


@message_app.command(name="list")
def list_messages(
    queue: Queue,
    /,
    *,
    partition: str | None = None,
    group: str | None = None,
    state: State | None = None,
    transaction_id: str | None = None,
    trace_id: str | None = None,
    since: Since = None,
    until: Until = None,
    newest_first: Flag = False,
    limit: Limit = LISTED,
    in_lake: InLake = InLake(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """List messages of a queue, oldest first.

    With --lake also those that retention took from the log.

    For example:
        skep message list orders --group billing --state in_flight
        skep message list orders --since 10m --newest-first --limit 20

    Parameters
    ----------
    partition
        Only messages of this partition.
    group
        Show the state of each message for this group.
    state
        Only messages in this state for the group.
    transaction_id
        Only messages with this transaction id.
    trace_id
        Only messages of this trace.
    newest_first
        List the newest messages first.
    limit
        The largest number of messages to list.
    """
    if state is not None and group is None:
        raise SkepError(Code.INVALID_REQUEST, "a state is that of a group: name it with --group")
    wanted: dict[str, Any] = {
        "partition": partition, "transaction_id": transaction_id, "trace_id": trace_id,
        "since": None if since is None else instant(since), "until": None if until is None else instant(until),
    }  # fmt: skip
    query = {**wanted, "group": group, "state": state, "descending": newest_first or None}
    columns = COLUMNS if group is not None else {name: cell for name, cell in COLUMNS.items() if name != "state"}
    with to.open() as client:
        # What a group did with a message is known of the log alone.
        old = None if state is not None else in_lake.of(queue, to)
        found = with_old(iter(client.messages(queue, **query)), old, newest_first, limit, wanted)
        print_rows(to, islice(found, limit), columns, empty="there are no messages")


@message_app.command
def show(
    queue: Queue,
    seq: str | None = None,
    /,
    *,
    transaction_id: str | None = None,
    partition: str | None = None,
    in_lake: InLake = InLake(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Show a message with its whole payload and its attempts, by its seq, its id or its transaction id.

    With --lake also one that retention took from the log.

    A scheduled message has no seq yet: the command shows when it is due.

    For example:
        skep message show orders 17
        skep message show orders --transaction-id order-1

    Parameters
    ----------
    seq
        The seq of the message; the id of a scheduled message.
    transaction_id
        The transaction id. The newest message with it is shown.
    partition
        The partition to search, with --transaction-id; all partitions by default.
    """
    if (seq is None) == (transaction_id is None):
        raise SkepError(Code.INVALID_REQUEST, "name the message by its seq or id, or by --transaction-id")
    with to.open() as client:
        if seq is not None and not (seq.isascii() and seq.isdecimal()):
            print_one(to, client.scheduled_message(queue, _checked_id(seq)), show_whole)
            return
        found = _found(client, queue, None if seq is None else int(seq), transaction_id, partition, in_lake, to)
        attempts = [] if found.deliver_at else _attempts(client, found)
    from skep.wire.browsing import MessageStory

    print_one(to, MessageStory(**msgspec.structs.asdict(found), attempts=attempts), _show)


def _found(
    client: Client,
    queue: str,
    seq: int | None,
    transaction_id: str | None,
    partition: str | None,
    in_lake: InLake,
    to: ServerOptions,
) -> BrowsedMessage:
    """The message at a seq, or the newest one with a transaction id: of the log, else of the lake."""
    try:
        if transaction_id is None:
            return client.message(queue, seq or 0)
        where = partition or _partition_of(client, queue, transaction_id)
        return client.message_pushed_as(queue, transaction_id, partition=where)
    except SkepError as error:
        if transaction_id is None:
            return from_lake(error, in_lake, queue, to, first=seq, last=seq)
        return from_lake(error, in_lake, queue, to, transaction_id=transaction_id, partition=partition)


def _attempts(client: Client, message: BrowsedMessage) -> list[AttemptView]:
    """The attempts of a message, as far as the server still knows them."""
    try:
        return client.attempts(message.queue, message.seq)
    except SkepError as error:
        if error.code is Code.MESSAGE_NOT_FOUND:  # it is in the lake alone
            return []
        raise


@message_app.command
def delete(
    queue: Queue,
    seq: int | None = None,
    /,
    *,
    transaction_id: str | None = None,
    partition: str = "Default",
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Delete an unsettled message for all groups: it is not delivered again.

    A consumer that holds the message loses its lease. The other messages of the lease are delivered again. The transaction
    id stays taken until the deduplication window ends. To delete a scheduled message, use skep scheduled cancel.

    For example:
        skep message delete orders 17 --dry-run
        skep message delete orders --transaction-id order-1 --partition customer-1 --yes

    Parameters
    ----------
    seq
        The seq of the message.
    transaction_id
        The transaction id. The newest message with it is deleted.
    partition
        The partition, with --transaction-id.
    """
    if (seq is None) == (transaction_id is None):
        raise SkepError(Code.INVALID_REQUEST, "name the message by its seq, or by --transaction-id")
    with to.open() as client:
        if transaction_id is not None:
            found = client.delete_message_pushed_as(queue, transaction_id, partition=partition, dry_run=True)
        else:
            found = client.delete_message(queue, seq or 0, dry_run=True)
        if not consent.dry_run:
            consent.ask(f"this deletes {_told(found)}")
            found = client.delete_message(queue, found.seq, message_id=found.id)
    print_said(to, found, f"{'would delete' if found.dry_run else 'deleted'} {_told(found)}")


@message_app.command
def forget(
    queue: Queue,
    seqs: Annotated[list[str] | None, Parameter(negative="")] = None,
    /,
    *,
    partition: str | None = None,
    transaction_id: str | None = None,
    trace_id: str | None = None,
    consent: Consent = Consent(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Erase messages for good, settled or not, with their dead letters and all else that stems from them.

    The messages must match everything that is given. They are gone from the log, and so are their errors, their transaction
    ids, and what replays made of them. Only their seqs stay known as forgotten, so that copies elsewhere can follow.

    For example:
        skep message forget orders 17 20-29 --dry-run
        skep message forget orders --partition customer-1 --yes

    Parameters
    ----------
    seqs
        Seqs, and ranges of them: 17 20-29.
    partition
        Messages of this partition.
    transaction_id
        Messages with this transaction id.
    trace_id
        Messages of this trace.
    """
    named = {"partition": partition, "transaction_id": transaction_id, "trace_id": trace_id}
    wanted: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if seqs:
        wanted["seqs"] = [one_or_range(text) for text in seqs]
    if not wanted:
        raise SkepError(
            Code.INVALID_REQUEST, "say which messages: by seqs, --partition, --transaction-id or --trace-id"
        )
    with to.open() as client:
        found = client.forget(queue, **wanted, dry_run=True)
        if not consent.dry_run:
            consent.ask(f"this erases {_erased(found)}, for good")
            found = client.forget(queue, **wanted, log=found.log)
    print_said(to, found, f"{'would erase' if found.dry_run else 'erased'} {_erased(found)}")


def _erased(found: ForgetResponse) -> str:
    """What is forgotten, in words; what there is none of is left out."""
    counts = {
        "message": found.messages, "dead letter": found.dead_letters, "message that a replay made": found.copies,
        "scheduled message": found.scheduled, "queued push": found.operations,
    }  # fmt: skip
    told = [
        f"{number:,} {_PLURALS.get(word, word + 's') if number != 1 else word}"
        for word, number in counts.items()
        if number
    ]
    return f"{', '.join(told) or 'no message'} of queue {found.queue!r}"


_PLURALS = {"message that a replay made": "messages that replays made", "queued push": "queued pushes"}


def _told(message: MessageDeleted) -> str:
    """The message in words: its seq, its groups, and the leases that held it."""
    held = f", {counted(message.leases_ended, 'lease')} held it" if message.leases_ended else ""
    groups = counted(len(message.consumer_groups), "group")
    return f"message {message.seq:,} of {message.queue!r}, unsettled in {groups}{held}"


def _partition_of(client: Client, queue: str, transaction_id: str) -> str:
    """The partition of the newest message with this transaction id, or of one that is scheduled."""
    found = next(iter(client.messages(queue, transaction_id=transaction_id, descending=True)), None)
    waiting = next(iter(client.scheduled(queue, transaction_id=transaction_id)), None) if found is None else None
    if (one := found or waiting) is None:
        raise SkepError(
            Code.MESSAGE_NOT_FOUND, f"there is no message with the transaction id {transaction_id!r} in {queue!r}"
        )
    return one.partition


def _checked_id(text: str) -> str:
    try:
        return str(UUID(text))
    except ValueError:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"{text!r} is neither a seq nor an id; if it is a transaction id, say --transaction-id {text}",
        ) from None


def show_whole(message: msgspec.Struct) -> None:
    """A scheduled message or a dead letter, field by field, with its whole payload."""
    _show_fields(message, {"payload_bytes", "preview"})


def _show(message: MessageStory) -> None:
    hidden = {"payload_bytes", "preview", "state", "attempts"}
    _show_fields(message, hidden if message.deliver_at else {*hidden, "deliver_at"})
    if message.attempts:
        print_table(message.attempts, ATTEMPTS)
    for one in message.attempts:
        if one.error is not None and "\n" in one.error:
            print_lines(["", f"attempt {one.attempt} of {one.consumer_group}:", *one.error.splitlines()])


def _show_fields(message: msgspec.Struct, hidden: set[str]) -> None:
    fields = {name: value for name, value in msgspec.structs.asdict(message).items() if name not in hidden}
    print_fields({
        name.replace("_", " "): bytes(value).decode() if isinstance(value, msgspec.Raw) else value
        for name, value in fields.items()
    })  # fmt: skip


ATTEMPTS: Columns[AttemptView] = {
    "group": lambda one: one.consumer_group,
    "attempt": lambda one: one.attempt,
    "began": lambda one: one.leased_at,
    "took": lambda one: None if one.ended_at is None else duration((one.ended_at - one.leased_at).total_seconds()),
    "outcome": lambda one: one.outcome,
    "consumer": lambda one: named(one.consumer),
    "error": lambda one: None if one.error is None else (one.error.splitlines() or [""])[0],
}


COLUMNS: Columns[BrowsedMessage] = {
    "seq": lambda one: one.seq,
    "partition": lambda one: one.partition,
    "created": lambda one: one.created_at,
    "state": lambda one: one.state,
    "transaction id": lambda one: one.transaction_id,
    "payload": lambda one: excerpt(one.payload, one.preview),
}
