"""`skep tail`: follow the log of a queue, without leasing anything."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from skep.cli.connection import Queue, ServerOptions
from skep.cli.exits import OK
from skep.cli.old_messages import InLake, first_in_lake, tell_gap, wanted
from skep.cli.output import PAYLOAD_COLUMNS, chosen, excerpt, print_json_line, print_lines
from skep.cli.when import position

if TYPE_CHECKING:
    from skep.client import Client
    from skep.client.exchange import ApiCall
    from skep.spark.lake.old_messages import OldMessages
    from skep.wire.log import LoggedMessage, LogResponse

PAGE_MESSAGES = 500
POLL_SECONDS = 0.5


def tail(
    queue: Queue,
    /,
    *,
    start: Annotated[str, Parameter(name="--from")] = "end",
    partition: str | None = None,
    follow: bool = True,
    in_lake: InLake = InLake(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Follow the log of a queue, without leasing anything; Ctrl-C ends it.

    With --lake it begins with the messages that retention took from the log.

    For example:
        skep tail orders --from 10m --partition customer-1
        skep tail orders --from beginning --no-follow -o ndjson

    Parameters
    ----------
    start
        The first position: beginning, end, a seq (offset), a time, or 10m, 2h, 1d ago.
    partition
        Only messages of this partition.
    follow
        At the end of the log, wait for new messages.
    """
    try:
        with to.open(interrupted=OK) as client:
            old = None if start == "end" else in_lake.of(queue, to)
            for message in _messages(client, queue, start, old, follow):
                if partition is None or message.partition == partition:
                    _print(to, message)
    except KeyboardInterrupt:
        return


def _messages(client: Client, queue: str, start: str, old: OldMessages | None, follow: bool) -> Iterator[LoggedMessage]:
    """The messages from a position on: those of the lake, then those of the log."""
    if old is None:
        yield from _log(client, queue, _first(client, queue, start), follow)
        return
    from skep.wire.log import LoggedMessage

    tell_gap(old)
    first = first_in_lake(old, position(start))
    if first is None:
        yield from _log(client, queue, _first(client, queue, start), follow)
        return
    for one in old.messages(wanted(first=first), preview_bytes=None):
        yield LoggedMessage(**{name: getattr(one, name) for name in LoggedMessage.__struct_fields__})
    yield from _log(client, queue, old.bounds.first_seq, follow)


def _first(client: Client, queue: str, start: str) -> int:
    """The seq of the message to begin with."""
    place = position(start)
    if place == "beginning":
        return 1
    end = client.log_bounds(queue).last_seq + 1
    if place == "end":
        return end
    if isinstance(place, int):
        return place
    found = next(client.messages(queue, since=place, preview=0), None)
    return end if found is None else found.seq


def _log(client: Client, queue: str, first: int, follow: bool) -> Iterator[LoggedMessage]:
    waiting = threading.Event()  # never set: Ctrl-C ends the wait at once
    while True:
        page = client.run(_stretch(queue, first)).messages
        yield from page
        if page:
            first = page[-1].seq + 1
        elif not follow:
            return
        else:
            waiting.wait(POLL_SECONDS)


def _stretch(queue: str, first: int) -> ApiCall[LogResponse]:
    from skep.client.exchange import path_part
    from skep.client.method import get
    from skep.wire.log import LogResponse

    return get(f"/api/v1/log/{path_part(queue)}", LogResponse, {"from": first, "limit": PAGE_MESSAGES})


def _print(to: ServerOptions, message: LoggedMessage) -> None:
    if chosen(to.output) != "table":
        print_json_line(message)
        return
    time = message.created_at.astimezone().strftime("%H:%M:%S")
    start = f"{time}  {message.seq:>8}  {message.partition:<12}  "
    room = shutil.get_terminal_size().columns - len(start)
    print_lines([start + excerpt(message.payload, most=max(PAYLOAD_COLUMNS, room))])
    sys.stdout.flush()
