"""`skep trace`: follow a trace across queues."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from skep.cli.connection import ServerOptions
from skep.cli.exits import NOTHING, OK, note
from skep.cli.old_messages import InLake
from skep.cli.output import Columns, excerpt, print_rows
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.wire.browsing import BrowsedMessage


def trace(trace_id: str, /, *, in_lake: InLake = InLake(), to: ServerOptions = ServerOptions()) -> int:
    """Follow a trace across queues, oldest message first, then scheduled ones.

    With --lake also the messages that retention took from the logs.

    Exit code 4 when no message has this trace id.

    For example:
        skep trace 0199a1b2-3c4d-7e5f-8a9b-0c1d2e3f4a5b

    Parameters
    ----------
    trace_id
        The trace id, a UUID. A message that was pushed without one has its own id as trace id.
    """
    try:
        UUID(trace_id)
    except ValueError:
        raise SkepError(
            Code.INVALID_TRACE_ID,
            f"a trace id is a UUID, not {trace_id!r}; skep message show QUEUE --transaction-id {trace_id} tells the trace id "
            "of the message with a transaction id",
        ) from None
    with to.open() as client:
        found = client.trace(trace_id)
        old = in_lake.of_trace(str(UUID(trace_id)), to)
        found = sorted([*old, *found], key=lambda one: (one.deliver_at is not None, one.created_at))
    if not found:
        note("no message carries this trace id")
        return NOTHING
    print_rows(to, found, COLUMNS)
    return OK


COLUMNS: Columns[BrowsedMessage] = {
    "created": lambda one: one.created_at,
    "queue": lambda one: one.queue,
    "partition": lambda one: one.partition,
    "seq": lambda one: one.seq or None,
    "due": lambda one: one.deliver_at,
    "transaction id": lambda one: one.transaction_id,
    "payload": lambda one: excerpt(one.payload, one.preview),
}
