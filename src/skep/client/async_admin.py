"""Looking around and managing, for asyncio: the part of the client that moves no messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Literal, Unpack

from skep.client import admin_calls
from skep.client.admin_calls import (
    QUERY_DEFAULTS,
    DeadLetterQuery,
    DeadLetterWish,
    MessageQuery,
    OperationQuery,
    Position,
    QueueQuery,
)
from skep.client.async_scheduled import AsyncScheduled
from skep.client.queue_options import QUEUE_DEFAULTS, QueueOptions
from skep.client.spelling import spelled_out
from skep.model import ClearScope
from skep.wire.attempts import AttemptView
from skep.wire.browsing import BrowsedMessage, MessageDeleted
from skep.wire.dead_letters import Buried, DeadLetterView, PurgeResponse, ReplayResponse, ReplayView
from skep.wire.groups import GroupDeleted, GroupDetail, GroupFigures, LeasesReleased, SeekResponse
from skep.wire.operations import OperationStatsResponse, OperationView
from skep.wire.pace import ConnectedConsumer, PaceResponse
from skep.wire.queues import ClearResponse, Labelled, ListedQueue, Overview, QueueDeleted, QueueDetail, QueueView
from skep.wire.status import BuffersResponse, LiveLease, StatusResponse
from skep.wire.traces import NamedTrace, TraceEventView


class AsyncAdmin(AsyncScheduled):
    """What a client can see and change besides messages on their way."""

    # queues

    @spelled_out(QueueOptions, QUEUE_DEFAULTS)
    async def configure(self, queue: str, **settings: Unpack[QueueOptions]) -> QueueView:
        """Make a queue, or change the settings that are given; see docs/settings.md for what they mean."""
        return await self.run(admin_calls.configure(queue, settings))

    @spelled_out(QueueQuery, QUERY_DEFAULTS)
    async def queues(self, **query: Unpack[QueueQuery]) -> AsyncIterator[ListedQueue]:
        """All queues by name, page by page."""
        after: str | None = None
        while True:
            page = await self.run(admin_calls.queues(query, after))
            for queue in page.queues:
                yield queue
            if (after := page.after) is None:
                return

    async def stats(self, queue: str) -> QueueDetail:
        """A queue with its settings, its figures, and every group's account."""
        return await self.run(admin_calls.queue(queue))

    async def pause(self, queue: str) -> QueueView:
        """Hand out nothing more; pushes and acks go on."""
        return await self.run(admin_calls.pause(queue))

    async def resume(self, queue: str) -> QueueView:
        """Hand out messages again."""
        return await self.run(admin_calls.resume(queue))

    async def clear(
        self,
        queue: str,
        scope: ClearScope | Literal["pending", "scheduled", "all"] = "pending",
        *,
        dry_run: bool = False,
    ) -> ClearResponse:
        """Take messages away: what waits, what is scheduled, or all with the leases too."""
        return await self.run(admin_calls.clear(queue, scope, dry_run))

    async def delete_queue(self, queue: str, *, dry_run: bool = False) -> QueueDeleted:
        """Delete a queue with all it holds."""
        return await self.run(admin_calls.delete_queue(queue, dry_run))

    async def namespaces(self) -> list[Labelled]:
        """The namespaces that queues name, and how many do."""
        return (await self.run(admin_calls.namespaces())).namespaces

    async def tasks(self) -> list[Labelled]:
        """The tasks that queues name, and how many do."""
        return (await self.run(admin_calls.tasks())).tasks

    async def overview(self) -> Overview:
        """All queues added up."""
        return await self.run(admin_calls.overview())

    async def status(self) -> StatusResponse:
        """The tenant at one look, with what may need attention."""
        return await self.run(admin_calls.status())

    async def buffers(self) -> BuffersResponse:
        """What the server process that answers has taken and not stored yet: on its disk, and in its memory."""
        return await self.run(admin_calls.buffers())

    async def leases(
        self, queue: str | None = None, *, expiring_within: float | None = None, limit: int = admin_calls.PAGE_ROWS
    ) -> list[LiveLease]:
        """Who holds leases, those that run out first before the others; ``expiring_within`` is in seconds."""
        return (await self.run(admin_calls.leases(queue, expiring_within, limit))).leases

    async def pace(self, queue: str) -> PaceResponse:
        """How a queue keeps up: what goes in and out, why it is slow, and wait and handler times by group."""
        return await self.run(admin_calls.pace(queue))

    async def consumers(self, queue: str | None = None) -> list[ConnectedConsumer]:
        """Who waits for messages, popped in the last five minutes, or holds leases, of a queue or of all."""
        return (await self.run(admin_calls.consumers(queue))).consumers

    # groups

    async def groups(self, queue: str | None = None) -> AsyncIterator[GroupFigures]:
        """The groups of a queue, or of all, with their lag."""
        after: str | None = None
        while True:
            page = await self.run(admin_calls.groups(queue, after))
            for group in page.consumer_groups:
                yield group
            if (after := page.after) is None:
                return

    async def group(self, name: str, queue: str | None = None) -> GroupDetail:
        """A group in every queue that it reads, or in one."""
        return await self.run(admin_calls.group(name, queue))

    async def seek(self, queue: str, group: str, to: Position, *, dry_run: bool = False) -> SeekResponse:
        """Move a group to the beginning, the end, a time or a seq; the message there comes next. Its leases end."""
        return await self.run(admin_calls.seek(queue, group, to, dry_run))

    async def release_partition(self, queue: str, group: str, partition: str) -> LeasesReleased:
        """End the leases of a partition, whoever holds them: its messages are delivered again at once."""
        return await self.run(admin_calls.release_partition(queue, group, partition))

    async def delete_group(self, queue: str, group: str, *, dry_run: bool = False) -> GroupDeleted:
        """Forget a group of a queue, and its leases."""
        return await self.run(admin_calls.delete_group(queue, group, dry_run))

    # dead letters

    @spelled_out(OperationQuery, QUERY_DEFAULTS)
    async def operations(self, **query: Unpack[OperationQuery]) -> AsyncIterator[OperationView]:
        """Calls that were queued under load, newest first."""
        after: int | None = None
        while True:
            page = await self.run(admin_calls.operations(query, after))
            for operation in page.operations:
                yield operation
            if (after := page.after) is None:
                return

    async def operation(self, operation_id: str) -> OperationView:
        """How far a queued call is, with its result once it is completed."""
        return await self.run(admin_calls.operation(operation_id))

    async def cancel_operation(self, operation_id: str) -> OperationView:
        """Cancel a queued call that nobody has begun to perform."""
        return await self.run(admin_calls.cancel_operation(operation_id))

    async def operation_stats(self) -> OperationStatsResponse:
        """How the queue of operations stands."""
        return await self.run(admin_calls.operation_stats())

    @spelled_out(DeadLetterQuery, QUERY_DEFAULTS)
    async def dead_letters(self, queue: str, **query: Unpack[DeadLetterQuery]) -> AsyncIterator[DeadLetterView]:
        """The dead letters of a queue, or those in a dead-letter queue, in the order of dying."""
        after: int | None = None
        while True:
            page = await self.run(admin_calls.dead_letters(queue, query, after))
            for letter in page.dead_letters:
                yield letter
            if (after := page.after) is None:
                return

    async def dead_letter(self, queue: str, letter: str | int) -> DeadLetterView:
        """One dead letter, by its id or seq, with its whole payload."""
        return await self.run(admin_calls.dead_letter(queue, letter))

    @spelled_out(DeadLetterWish, QUERY_DEFAULTS)
    async def replay(self, queue: str, **wish: Unpack[DeadLetterWish]) -> ReplayResponse:
        """Send dead letters back to their queues, in order; each to the group that gave it up."""
        return await self.run(admin_calls.replay(queue, wish))

    async def replay_edited(self, queue: str, letter: str | int, payload: object) -> ReplayResponse:
        """Send one dead letter, by its id or seq, back to its queue with another payload."""
        return await self.run(admin_calls.replay_edited(queue, letter, payload))

    async def replays(self, queue: str, *, source_queue: str | None = None) -> AsyncIterator[ReplayView]:
        """The dead letters of a queue that were replayed, the newest first: as which message, and what became of that."""
        after: int | None = None
        while True:
            page = await self.run(admin_calls.replays(queue, source_queue, after))
            for replay in page.replays:
                yield replay
            if (after := page.after) is None:
                return

    async def bury(self, queue: str, letters: Mapping[int, str], *, name: str) -> Buried:
        """Put messages of the log, by their seqs and with an error each, among the dead letters: once for every ``name``.

        For who reads the log and not by leases. The log and its groups keep the messages.
        """
        return await self.run(admin_calls.bury(queue, letters, name))

    @spelled_out(DeadLetterWish, QUERY_DEFAULTS)
    async def purge(self, queue: str, **wish: Unpack[DeadLetterWish]) -> PurgeResponse:
        """Delete dead letters for good."""
        return await self.run(admin_calls.purge(queue, wish))

    # messages

    @spelled_out(MessageQuery, QUERY_DEFAULTS)
    async def messages(self, queue: str, **query: Unpack[MessageQuery]) -> AsyncIterator[BrowsedMessage]:
        """The log of a queue, without leasing anything."""
        after: int | None = None
        while True:
            page = await self.run(admin_calls.messages(queue, query, after))
            for message in page.messages:
                yield message
            if (after := page.after) is None:
                return

    async def message(self, queue: str, seq: int) -> BrowsedMessage:
        """The message at a seq, with its whole payload."""
        return await self.run(admin_calls.message(queue, seq))

    async def attempts(self, queue: str, seq: int) -> list[AttemptView]:
        """The attempts of the message at a seq over all groups: who had it, how that ended, and why it failed."""
        return (await self.run(admin_calls.attempts(queue, seq))).attempts

    async def message_pushed_as(self, queue: str, transaction_id: str, *, partition: str) -> BrowsedMessage:
        """The newest message with a transaction id in a partition, with its whole payload."""
        return await self.run(admin_calls.message_pushed_as(queue, partition, transaction_id))

    async def delete_message(
        self, queue: str, seq: int, *, message_id: str | None = None, dry_run: bool = False
    ) -> MessageDeleted:
        """Delete a message that is not settled, for all groups: nobody gets it again. Whoever holds it loses the lease.

        With ``message_id`` only if the message at this seq has that id. MESSAGE_SETTLED when every group has settled it.
        """
        return await self.run(admin_calls.delete_message(queue, seq, message_id, dry_run))

    async def delete_message_pushed_as(
        self, queue: str, transaction_id: str, *, partition: str, dry_run: bool = False
    ) -> MessageDeleted:
        """Delete the newest message with a transaction id in a partition, as `delete_message` does."""
        return await self.run(admin_calls.delete_message_pushed_as(queue, partition, transaction_id, dry_run))

    async def trace(self, trace_id: str) -> list[BrowsedMessage]:
        """All messages of a trace across queues, oldest first."""
        return (await self.run(admin_calls.trace(trace_id))).messages

    async def trace_events(self, trace_id: str) -> list[TraceEventView]:
        """What workers told of a trace, in the order of telling."""
        return (await self.run(admin_calls.trace(trace_id))).events

    async def trace_names(self) -> AsyncIterator[NamedTrace]:
        """The names that events of traces have, and when each last happened."""
        after: str | None = None
        while True:
            page = await self.run(admin_calls.trace_names(after))
            for name in page.names:
                yield name
            if (after := page.after) is None:
                return

    async def traces_by_name(self, name: str) -> AsyncIterator[TraceEventView]:
        """Events of traces by their name, newest first."""
        after: int | None = None
        while True:
            page = await self.run(admin_calls.traces_by_name(name, after))
            for event in page.events:
                yield event
            if (after := page.after) is None:
                return
