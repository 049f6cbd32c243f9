# Written by dev/twins.py from async_popping.py: change that, and run it.

"""Popping for threads: what a pop brings, with a span for it where somebody traces."""

from __future__ import annotations

from typing import TypeVar

from skep.client import tracing
from skep.client.exchange import ApiCall
from skep.client.sender import Sender
from skep.errors import SkepError

M = TypeVar("M", bound=tracing.Headed)


def popped(client: Sender, source: str, call: ApiCall[list[M]]) -> list[M]:
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
