"""Popping for asyncio: the messages of a pop, with a span where the program traces."""

from __future__ import annotations

from typing import TypeVar

from skep.client import tracing
from skep.client.async_sender import AsyncSender
from skep.client.exchange import ApiCall
from skep.errors import SkepError
from skep.model import QUEUE_MODE_GROUP

M = TypeVar("M", bound=tracing.Headed)


async def popped(client: AsyncSender, source: str, call: ApiCall[list[M]]) -> list[M]:
    """The messages that a pop leases. ``source`` is the name of the queue or filter in the span of a failed pop."""
    since = tracing.began()
    url = client.settings.urls[0]
    try:
        found = await client.run(call)
    except SkepError as error:
        group = (call.request.query or {}).get("consumerGroup", QUEUE_MODE_GROUP)
        tracing.not_received(url, source, str(group), since, error)
        raise
    if since:
        tracing.received(url, since, found)
    return found
