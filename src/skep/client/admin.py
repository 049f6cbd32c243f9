# Written by dev/twins.py from async_admin.py: change that, and run it.

"""Looking around and managing, for threads: the part of the client that moves no messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from skep.client.queue_options import QUEUE_DEFAULTS, QueueOptions
from skep.client.scheduled import Scheduled
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


class Admin(Scheduled):
    """What a client can see and change besides messages on their way."""

    # queues

    @spelled_out(QueueOptions, QUEUE_DEFAULTS)
    def configure(self, queue: str, **settings: Unpack[QueueOptions]) -> QueueView:
        """Make a queue, or change the settings that are given; see docs/settings.md for what they mean."""
        return self.run(admin_calls.configure(queue, settings))

    @spelled_out(QueueQuery, QUERY_DEFAULTS)
    def queues(self, **query: Unpack[QueueQuery]) -> Iterator[ListedQueue]:
        """All queues by name, page by page."""
        after: str | None = None
        while True:
            page = self.run(admin_calls.queues(query, after))
            yield from page.queues
            if (after := page.after) is None:
                return

    def stats(self, queue: str) -> QueueDetail:
        """A queue with its settings, its figures, and every group's account."""
        return self.run(admin_calls.queue(queue))

    def pause(self, queue: str) -> QueueView:
        """Hand out nothing more; pushes and acks go on."""
        return self.run(admin_calls.pause(queue))

    def resume(self, queue: str) -> QueueView:
        """Hand out messages again."""
        return self.run(admin_calls.resume(queue))

    def clear(
        self,
        queue: str,
        scope: ClearScope | Literal["pending", "scheduled", "all"] = "pending",
        *,
        dry_run: bool = False,
    ) -> ClearResponse:
        """Take messages away: what waits, what is scheduled, or all with the leases too."""
        return self.run(admin_calls.clear(queue, scope, dry_run))

    def delete_queue(self, queue: str, *, dry_run: bool = False) -> QueueDeleted:
        """Delete a queue with all it holds."""
        return self.run(admin_calls.delete_queue(queue, dry_run))

    def namespaces(self) -> list[Labelled]:
        """The namespaces that queues name, and how many do."""
        return (self.run(admin_calls.namespaces())).namespaces

    def tasks(self) -> list[Labelled]:
        """The tasks that queues name, and how many do."""
        return (self.run(admin_calls.tasks())).tasks

    def overview(self) -> Overview:
        """All queues added up."""
        return self.run(admin_calls.overview())

    def status(self) -> StatusResponse:
        """The tenant at one look, with what may need attention."""
        return self.run(admin_calls.status())

    def buffers(self) -> BuffersResponse:
        """What the server process that answers has taken and not stored yet: on its disk, and in its memory."""
        return self.run(admin_calls.buffers())

    def leases(
        self, queue: str | None = None, *, expiring_within: float | None = None, limit: int = admin_calls.PAGE_ROWS
    ) -> list[LiveLease]:
        """Who holds leases, those that run out first before the others; ``expiring_within`` is in seconds."""
        return (self.run(admin_calls.leases(queue, expiring_within, limit))).leases

    def pace(self, queue: str) -> PaceResponse:
        """How a queue keeps up: what goes in and out, why it is slow, and wait and handler times by group."""
        return self.run(admin_calls.pace(queue))

    def consumers(self, queue: str | None = None) -> list[ConnectedConsumer]:
        """Who waits for messages, popped in the last five minutes, or holds leases, of a queue or of all."""
        return (self.run(admin_calls.consumers(queue))).consumers

    # groups

    def groups(self, queue: str | None = None) -> Iterator[GroupFigures]:
        """The groups of a queue, or of all, with their lag."""
        after: str | None = None
        while True:
            page = self.run(admin_calls.groups(queue, after))
            yield from page.consumer_groups
            if (after := page.after) is None:
                return

    def group(self, name: str, queue: str | None = None) -> GroupDetail:
        """A group in every queue that it reads, or in one."""
        return self.run(admin_calls.group(name, queue))

    def seek(self, queue: str, group: str, to: Position, *, dry_run: bool = False) -> SeekResponse:
        """Move a group to the beginning, the end, a time or a seq; the message there comes next. Its leases end."""
        return self.run(admin_calls.seek(queue, group, to, dry_run))

    def release_partition(self, queue: str, group: str, partition: str) -> LeasesReleased:
        """End the leases of a partition, whoever holds them: its messages are delivered again at once."""
        return self.run(admin_calls.release_partition(queue, group, partition))

    def delete_group(self, queue: str, group: str, *, dry_run: bool = False) -> GroupDeleted:
        """Forget a group of a queue, and its leases."""
        return self.run(admin_calls.delete_group(queue, group, dry_run))

    # dead letters

    @spelled_out(OperationQuery, QUERY_DEFAULTS)
    def operations(self, **query: Unpack[OperationQuery]) -> Iterator[OperationView]:
        """Calls that were queued under load, newest first."""
        after: int | None = None
        while True:
            page = self.run(admin_calls.operations(query, after))
            yield from page.operations
            if (after := page.after) is None:
                return

    def operation(self, operation_id: str) -> OperationView:
        """How far a queued call is, with its result once it is completed."""
        return self.run(admin_calls.operation(operation_id))

    def cancel_operation(self, operation_id: str) -> OperationView:
        """Cancel a queued call that nobody has begun to perform."""
        return self.run(admin_calls.cancel_operation(operation_id))

    def operation_stats(self) -> OperationStatsResponse:
        """How the queue of operations stands."""
        return self.run(admin_calls.operation_stats())

    @spelled_out(DeadLetterQuery, QUERY_DEFAULTS)
    def dead_letters(self, queue: str, **query: Unpack[DeadLetterQuery]) -> Iterator[DeadLetterView]:
        """The dead letters of a queue, or those in a dead-letter queue, in the order of dying."""
        after: int | None = None
        while True:
            page = self.run(admin_calls.dead_letters(queue, query, after))
            yield from page.dead_letters
            if (after := page.after) is None:
                return

    def dead_letter(self, queue: str, letter: str | int) -> DeadLetterView:
        """One dead letter, by its id or seq, with its whole payload."""
        return self.run(admin_calls.dead_letter(queue, letter))

    @spelled_out(DeadLetterWish, QUERY_DEFAULTS)
    def replay(self, queue: str, **wish: Unpack[DeadLetterWish]) -> ReplayResponse:
        """Send dead letters back to their queues, in order; each to the group that gave it up."""
        return self.run(admin_calls.replay(queue, wish))

    def replay_edited(self, queue: str, letter: str | int, payload: object) -> ReplayResponse:
        """Send one dead letter, by its id or seq, back to its queue with another payload."""
        return self.run(admin_calls.replay_edited(queue, letter, payload))

    def replays(self, queue: str, *, source_queue: str | None = None) -> Iterator[ReplayView]:
        """The dead letters of a queue that were replayed, the newest first: as which message, and what became of that."""
        after: int | None = None
        while True:
            page = self.run(admin_calls.replays(queue, source_queue, after))
            yield from page.replays
            if (after := page.after) is None:
                return

    def bury(self, queue: str, letters: Mapping[int, str], *, name: str) -> Buried:
        """Put messages of the log, by their seqs and with an error each, among the dead letters: once for every ``name``.

        For who reads the log and not by leases. The log and its groups keep the messages.
        """
        return self.run(admin_calls.bury(queue, letters, name))

    @spelled_out(DeadLetterWish, QUERY_DEFAULTS)
    def purge(self, queue: str, **wish: Unpack[DeadLetterWish]) -> PurgeResponse:
        """Delete dead letters for good."""
        return self.run(admin_calls.purge(queue, wish))

    # messages

    @spelled_out(MessageQuery, QUERY_DEFAULTS)
    def messages(self, queue: str, **query: Unpack[MessageQuery]) -> Iterator[BrowsedMessage]:
        """The log of a queue, without leasing anything."""
        after: int | None = None
        while True:
            page = self.run(admin_calls.messages(queue, query, after))
            yield from page.messages
            if (after := page.after) is None:
                return

    def message(self, queue: str, seq: int) -> BrowsedMessage:
        """The message at a seq, with its whole payload."""
        return self.run(admin_calls.message(queue, seq))

    def attempts(self, queue: str, seq: int) -> list[AttemptView]:
        """The attempts of the message at a seq over all groups: who had it, how that ended, and why it failed."""
        return (self.run(admin_calls.attempts(queue, seq))).attempts

    def message_pushed_as(self, queue: str, transaction_id: str, *, partition: str) -> BrowsedMessage:
        """The newest message with a transaction id in a partition, with its whole payload."""
        return self.run(admin_calls.message_pushed_as(queue, partition, transaction_id))

    def delete_message(
        self, queue: str, seq: int, *, message_id: str | None = None, dry_run: bool = False
    ) -> MessageDeleted:
        """Delete a message that is not settled, for all groups: nobody gets it again. Whoever holds it loses the lease.

        With ``message_id`` only if the message at this seq has that id. MESSAGE_SETTLED when every group has settled it.
        """
        return self.run(admin_calls.delete_message(queue, seq, message_id, dry_run))

    def delete_message_pushed_as(
        self, queue: str, transaction_id: str, *, partition: str, dry_run: bool = False
    ) -> MessageDeleted:
        """Delete the newest message with a transaction id in a partition, as `delete_message` does."""
        return self.run(admin_calls.delete_message_pushed_as(queue, partition, transaction_id, dry_run))

    def trace(self, trace_id: str) -> list[BrowsedMessage]:
        """All messages of a trace across queues, oldest first."""
        return (self.run(admin_calls.trace(trace_id))).messages

    def trace_events(self, trace_id: str) -> list[TraceEventView]:
        """What workers told of a trace, in the order of telling."""
        return (self.run(admin_calls.trace(trace_id))).events

    def trace_names(self) -> Iterator[NamedTrace]:
        """The names that events of traces have, and when each last happened."""
        after: str | None = None
        while True:
            page = self.run(admin_calls.trace_names(after))
            yield from page.names
            if (after := page.after) is None:
                return

    def traces_by_name(self, name: str) -> Iterator[TraceEventView]:
        """Events of traces by their name, newest first."""
        after: int | None = None
        while True:
            page = self.run(admin_calls.traces_by_name(name, after))
            yield from page.events
            if (after := page.after) is None:
                return
