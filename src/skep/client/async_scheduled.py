"""Scheduled messages, for asyncio: the part of the client for what waits for its time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Unpack

from skep.client import scheduled_calls
from skep.client.admin_calls import QUERY_DEFAULTS
from skep.client.async_records import AsyncRecords
from skep.client.scheduled_calls import ScheduledQuery, ScheduledWish
from skep.client.spelling import spelled_out
from skep.wire.scheduled import ScheduledChanged, ScheduledView


class AsyncScheduled(AsyncRecords):
    """What a client can see and change of messages that are not due yet."""

    @spelled_out(ScheduledQuery, QUERY_DEFAULTS)
    async def scheduled(
        self, queue: str | None = None, **query: Unpack[ScheduledQuery]
    ) -> AsyncIterator[ScheduledView]:
        """Scheduled messages of a queue, or of all, those that are due first before the others."""
        after: str | None = None
        while True:
            page = await self.run(scheduled_calls.scheduled(queue, query, after))
            for message in page.messages:
                yield message
            if (after := page.after) is None:
                return

    async def scheduled_message(self, queue: str, message_id: str) -> ScheduledView:
        """A scheduled message with its whole payload; MESSAGE_NOT_FOUND when it has entered the log, or was cancelled."""
        return await self.run(scheduled_calls.scheduled_message(queue, message_id))

    @spelled_out(ScheduledWish, QUERY_DEFAULTS)
    async def cancel_scheduled(self, queue: str, **wish: Unpack[ScheduledWish]) -> ScheduledChanged:
        """Cancel scheduled messages: they never enter the log. Their transaction ids stay taken."""
        return await self.run(scheduled_calls.cancel(queue, wish))

    @spelled_out(ScheduledWish, QUERY_DEFAULTS)
    async def run_scheduled(self, queue: str, **wish: Unpack[ScheduledWish]) -> ScheduledChanged:
        """Let scheduled messages enter the log now, in the order of their time."""
        return await self.run(scheduled_calls.run(queue, wish))

    @spelled_out(ScheduledWish, QUERY_DEFAULTS)
    async def move_scheduled(self, queue: str, deliver_at: datetime, **wish: Unpack[ScheduledWish]) -> ScheduledChanged:
        """Move scheduled messages to another time."""
        return await self.run(scheduled_calls.move(queue, deliver_at, wish))
