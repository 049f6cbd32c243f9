"""`skep pop`: lease messages of a queue."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

from skep.cli.connection import Flag, Queue, ServerOptions
from skep.cli.exits import NOTHING, OK, USER, note
from skep.cli.output import Columns, chosen, excerpt, print_lines, print_rows
from skep.cli.when import position
from skep.errors import SkepError

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.calls import PopOptions, Start
    from skep.wire.messages import PoppedMessage

HINTS = 3
"""The largest number of leases for which the command prints how to settle them."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PopFlags:
    """Options of the pop."""

    group: str | None = None
    """The consumer group (default: the shared queue group)."""
    batch: int = 1
    """The largest number of messages to lease."""
    wait: float = 0.0
    """How many seconds to wait for the first message."""
    partition: str | None = None
    """Only messages of this partition."""
    partitions: int | None = None
    """The largest number of partitions to lease from."""
    lease_seconds: float | None = None
    """How long the lease (visibility timeout) lasts, in seconds (default: the queue's setting)."""
    start: str | None = None
    """Where a new group starts: all, new, a seq (offset) or a time."""

    def options(self) -> PopOptions:
        """These options as arguments of the client; missing options are left out."""
        options: PopOptions = {"batch": self.batch, "wait_seconds": self.wait}
        for name in ("group", "partition", "partitions", "lease_seconds"):
            if (said := getattr(self, name)) is not None:
                options[name] = said
        if self.start is not None:
            options["start"] = _start(self.start)
        return options


def pop(
    queue: Queue,
    /,
    *,
    flags: PopFlags = PopFlags(),
    ack: Flag = False,
    to: ServerOptions = ServerOptions(),
) -> int:
    """Lease messages of a queue; exit code 4 when there are none.

    Settle the messages with `skep ack` before their lease ends, or they
    are delivered again. --ack settles them as soon as they are printed.

    For example:
        skep pop orders --group billing --batch 10 --wait 30
        skep pop orders --ack -o ndjson | jq .payload

    Parameters
    ----------
    ack
        Settle the messages as completed once they are printed.
    """
    from skep.client import calls
    from skep.client.lease_acks import leases_of, shortened
    from skep.wire.messages import Ack

    with to.open() as client:
        messages = client.run(calls.pop(queue, flags.options()))
        if not messages:
            note(_why_nothing(client, queue))
            return NOTHING
        print_rows(to, messages, COLUMNS)
        if not ack:
            _hint(to, messages)
            return OK
        sys.stdout.flush()  # a message that was not printed must not be settled
        short = shortened([Ack(one.lease_id, one.seq) for one in messages], leases_of(messages))
        refused = [result for result in short.results(client.settle(short.sent)) if result.code]
    for result in refused:
        note(f"{result.code}: Seq {result.seq} was not settled and comes again.")
    return USER if refused else OK


def _why_nothing(client: Client, queue: str) -> str:
    """Why a pop got nothing: the queue is paused, or empty. A key that may not read the queue gets the plain answer."""
    try:
        is_paused = client.stats(queue).settings.paused
    except SkepError:
        is_paused = False
    return (
        f"queue {queue!r} is paused: `skep queue resume` lets it hand out messages"
        if is_paused
        else "there is nothing to pop"
    )


def _start(text: str) -> Start:
    match position({"all": "beginning", "new": "end"}.get(text, text)):
        case "beginning":
            return "all"
        case "end":
            return "new"
        case place:
            return place


def _hint(to: ServerOptions, messages: list[PoppedMessage]) -> None:
    if chosen(to.output) != "table":
        return
    leases = dict.fromkeys(message.lease_id for message in messages)
    for lease in list(leases)[:HINTS]:
        seqs = " ".join(str(message.seq) for message in messages if message.lease_id == lease)
        print_lines([f"skep ack {lease} {seqs}"])


COLUMNS: Columns[PoppedMessage] = {
    "partition": lambda one: one.partition,
    "seq": lambda one: one.seq,
    "attempt": lambda one: one.attempt,
    "lease until": lambda one: one.lease_deadline,
    "payload": lambda one: excerpt(one.payload),
}
