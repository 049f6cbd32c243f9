"""Popping for asyncio: the messages of a pop, with a span where the program traces."""

from __future__ import annotations

from typing import TypeVar

from skep.client import tracing
from skep.client.async_sender import AsyncSender
from skep.client.exchange import ApiCall
from skep.errors import SkepError

M = TypeVar("M", bound=tracing.Headed)


async def popped(client: AsyncSender, source: str, call: ApiCall[list[M]]) -> list[M]:
    """The messages that a pop leases. ``source`` is the name of the queue or filter in the span of a failed pop."""
    since = tracing.began()
    try:
        found = await client.run(call)
    except SkepError as error:
        tracing.not_received(source, since, error)
        raise
    if since:
        tracing.received(since, found)
    return found
