# Written by dev/twins.py from async_popping.py: change that, and run it.

"""Popping for threads: what a pop brings, with a span for it where somebody traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.client import tracing
from skep.client.exchange import Call
from skep.errors import SkepError
from skep.wire.messages import PoppedMessage

if TYPE_CHECKING:
    from skep.client.client import Client


def popped(client: Client, source: str, call: Call[list[PoppedMessage]]) -> list[PoppedMessage]:
    """The messages that a pop leases. ``source`` names what is popped from, should it fail."""
    since = tracing.began()
    try:
        found = client.run(call)
    except SkepError as error:
        tracing.not_received(source, since, error)
        raise
    if since:
        tracing.received(since, found)
    return found
