"""`skep push`: push one message, or one for each line of stdin."""

from __future__ import annotations

import os
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from msgspec import Raw, Struct

from skep.cli.connection import Flag, ServerOptions
from skep.cli.output import counted, print_lines, print_one, print_said
from skep.cli.progress import progress
from skep.cli.when import deadline, length
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.cli.payloads import InputLine
    from skep.client import Pushed
    from skep.client.outgoing import MessageOptions
    from skep.ids import IdMint
    from skep.wire.messages import PushedMessage, PushItem

BATCH = 500
STDIN = 0

Several = Annotated[list[str] | None, Parameter(negative="")]


class Counts(Struct):
    """The outcome of the pushed lines."""

    pushed: int = 0
    stored: int = 0
    scheduled: int = 0
    duplicates: int = 0
    buffered: int = 0
    queued: int = 0

    def add(self, batch: int, answer: Pushed) -> None:
        self.pushed += batch
        self.stored += len(answer.stored)
        self.scheduled += len(answer.scheduled)
        self.duplicates += len(answer.duplicates)
        self.buffered += len(answer.buffered)
        self.queued += batch if answer.queued else 0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MessageFlags:
    """Options of each pushed message."""

    partition: str | None = None
    """The partition; messages of one partition stay in order."""
    transaction_id: str | None = None
    """Your own name for one message (idempotency key); a second push with it is a duplicate."""
    trace_id: str | None = None
    """The trace id: a UUID that related messages share across queues."""
    header: Several = None
    """A header as name=value; may be given several times."""
    content_type: str | None = None
    """The content type of a payload that is not JSON."""
    deliver_at: str | None = None
    """Hold the message back until this time: 2026-01-31T12:00:00Z, or 10m for in ten minutes."""
    delay: str | None = None
    """Hold the message back for this long: 90s, 10m, 2h, 1d, or a number of seconds."""
    priority: int | None = None
    """The priority; in unordered queues a higher priority comes first."""

    def options(self) -> MessageOptions:
        """These options as arguments of the client; missing options are left out."""
        if self.deliver_at is not None and self.delay is not None:
            raise SkepError(Code.INVALID_REQUEST, "give --deliver-at or --delay, not both")
        given: dict[str, object] = {
            "partition": self.partition,
            "transaction_id": self.transaction_id,
            "trace_id": self.trace_id,
            "headers": dict(_header(text) for text in self.header) if self.header else None,
            "content_type": self.content_type,
            "deliver_at": None if self.deliver_at is None else deadline(self.deliver_at),
            "delay": None if self.delay is None else length(self.delay),
            "priority": self.priority,
        }
        options: MessageOptions = {}
        options.update({name: value for name, value in given.items() if value is not None})  # type: ignore[typeddict-item] # names as above
        return options


def push(
    queue: str | None = None,
    payload: str | None = None,
    /,
    *,
    file: Path | None = None,
    items: Flag = False,
    batch: int = BATCH,
    message: MessageFlags = MessageFlags(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Push one message, or many as NDJSON on stdin.

    A payload is JSON unless --content-type says otherwise.
    Without a payload and --file, every line of stdin is one payload. Lines
    go out in batches as they come; a batch is stored whole or not at all.

    For example:
        skep push orders '{"total": 10}' --partition c-1 --transaction-id o-1
        skep push orders --file invoice.pdf --content-type application/pdf
        skep push orders < payloads.ndjson
        skep push --items < items.ndjson

    Parameters
    ----------
    queue
        The queue. With --items, each line may name its own queue.
    payload
        The payload of one message.
    file
        A file with the payload of one message.
    items
        Each line of stdin is a whole item, as POST /api/v1/push takes it: queue, partition, transactionId, headers, payload ….
    batch
        The largest number of messages in one request.
    """
    options = message.options()
    if payload is not None or file is not None:
        if payload is not None and file is not None:
            raise SkepError(Code.INVALID_REQUEST, "give a payload or --file, not both")
        body = _content(file) if file is not None else os.fsencode(payload or "")
        _push_one(to, _named(queue), body, options)
        return
    if sys.stdin is None or sys.stdin.isatty():  # stdin is None when it was closed: <&-
        raise SkepError(Code.INVALID_REQUEST, "give a payload, --file, or NDJSON on stdin")
    if message.transaction_id is not None or message.content_type is not None:
        raise SkepError(Code.INVALID_REQUEST, "--transaction-id and --content-type are for one message; see --items")
    _push_lines(to, queue, items, max(1, batch), options)


def _header(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise SkepError(Code.INVALID_HEADERS, f"a header is name=value, not {text!r}")
    return name, value


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise SkepError(Code.INVALID_REQUEST, f"cannot read {file}: {error.strerror}") from None


def _named(queue: str | None) -> str:
    if queue is None:
        raise SkepError(Code.INVALID_REQUEST, "which queue? name it first, or on every line with --items")
    return queue


def _push_one(to: ServerOptions, queue: str, body: bytes, options: MessageOptions) -> None:
    from skep.cli import payloads

    message: bytes | Raw = body if "content_type" in options else payloads.payload(body, "the payload")
    with to.open() as client:
        pushed = client.push(queue, message, **options)
    if pushed.queued is not None:
        print_said(to, pushed.queued, f"accepted for later as operation {pushed.queued.operation_id}")
        return
    print_one(to, pushed.messages[0], _show_one)


def _show_one(one: PushedMessage) -> None:
    where = "" if one.seq is None else f" as seq {one.seq}"
    print_lines([f"{one.status}{where}, id {one.message_id}"])


def _push_lines(to: ServerOptions, queue: str | None, items: bool, most: int, options: MessageOptions) -> None:
    from skep.cli import payloads
    from skep.client import calls
    from skep.ids import IdMint

    counts = Counts()
    with to.open() as client, progress("pushing", _size(STDIN)) as bar:
        mint = IdMint(client.clock)
        try:
            for lines, read in payloads.batches(STDIN, most):
                batch = _items(lines, queue, items, options, mint)
                counts.add(len(batch), client.run(calls.push(batch)))
                bar.reached(read, f"{counts.pushed:,} pushed")
        except SkepError as error:
            if counts.pushed:
                raise SkepError(error.code, f"{error.sentence} Pushed before: {counts.pushed}.") from error
            raise
    print_one(to, counts, _show_counts)


def _items(
    lines: list[InputLine], queue: str | None, items: bool, options: MessageOptions, mint: IdMint
) -> list[PushItem]:
    """The messages of these lines, in their order."""
    from skep.cli import payloads
    from skep.client.outgoing import push_items

    if not items:
        bodies = [payloads.payload(line.text, f"line {line.number}") for line in lines]
        return push_items(_named(queue), bodies, options, mint)
    found: list[PushItem] = []
    for line in lines:
        name, message, own = payloads.item(line)
        found += push_items(_named(name or queue), message, {**options, **own}, mint)
    return found


def _size(source: int) -> int | None:
    """The size of the input in bytes; None when it is unknown, as with a pipe."""
    found = os.fstat(source)
    return found.st_size if stat.S_ISREG(found.st_mode) else None


def _show_counts(counts: Counts) -> None:
    parts = [counted(counts.pushed, "message") + " pushed"]
    parts += [
        f"{value:,} {name}" for name, value in msgspec.structs.asdict(counts).items() if value and name != "pushed"
    ]
    print_lines([": ".join([parts[0], ", ".join(parts[1:])]) if parts[1:] else parts[0]])
