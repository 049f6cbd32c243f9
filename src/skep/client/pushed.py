"""The outcome of a push, split by status."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from skep.client.outgoing import PushOptions
from skep.errors import SkepError
from skep.model import PushStatus
from skep.wire.messages import PushedMessage, PushItem, QueueDepth


class QueuedPart(Struct, rename="camel"):
    """One operation of a call that was queued: which items of the call it has."""

    operation_id: str
    items: list[int] = []


class Queued(Struct, rename="camel"):
    """A push or ack that the server accepted for later (202): it is stored safely, and takes effect in its turn.

    The fields are those of the first operation; a call that is about several partitions has several ``operations``.
    """

    operation_id: str
    queue_position: int | None = None
    estimated_wait: float | None = None
    reason: str | None = None
    operations: list[QueuedPart] = []

    @property
    def parts(self) -> list[QueuedPart]:
        """All operations of the call."""
        return self.operations or [QueuedPart(self.operation_id)]


class Pushed(Struct):
    """One result per message, in order. ``queued`` is set too when the server queued the push (202)."""

    messages: list[PushedMessage]
    queues: dict[str, QueueDepth]
    queued: Queued | None = None
    error: SkepError | None = None
    """Why ``failed`` failed; set only where an ``on_error`` took it."""

    @property
    def stored(self) -> list[PushedMessage]:
        """The messages that are in the log now."""
        return [message for message in self.messages if message.status is PushStatus.STORED]

    @property
    def scheduled(self) -> list[PushedMessage]:
        """The messages that enter the log when they are due."""
        return [message for message in self.messages if message.status is PushStatus.SCHEDULED]

    @property
    def duplicates(self) -> list[PushedMessage]:
        """The messages that had been pushed before; each result has the first one's id and seq."""
        return [message for message in self.messages if message.status is PushStatus.DUPLICATE]

    @property
    def buffered(self) -> list[PushedMessage]:
        """The messages that the server has taken and stores soon: in its memory (QoS 0), or on its disk while the database is away."""
        return [message for message in self.messages if message.status is PushStatus.BUFFERED]

    @property
    def waiting(self) -> list[PushedMessage]:
        """The messages of a queued push: they are not in the log yet."""
        return [message for message in self.messages if message.status is PushStatus.QUEUED]

    @property
    def failed(self) -> list[PushedMessage]:
        """The refused messages. A push is stored whole or not at all, so these are all or none."""
        return [message for message in self.messages if message.status is PushStatus.REFUSED]


def told(pushed: Pushed, options: PushOptions) -> Pushed:
    """The outcome, after its callbacks were called."""
    if (on_success := options.get("on_success")) is not None and (
        fresh := pushed.stored + pushed.scheduled + pushed.buffered
    ):
        on_success(fresh)
    if (on_duplicate := options.get("on_duplicate")) is not None and (duplicates := pushed.duplicates):
        on_duplicate(duplicates)
    return pushed


def told_of_failure(error: SkepError, items: Sequence[PushItem], options: PushOptions) -> Pushed:
    """The outcome of a failed push whose ``on_error`` took the error; without ``on_error`` the error is raised."""
    on_error = options.get("on_error")
    if on_error is None:
        raise error
    pushed = Pushed(refusals(error, items), {}, error=error)
    on_error(pushed.failed, error)
    return pushed


def refusals(error: SkepError, items: Sequence[PushItem]) -> list[PushedMessage]:
    """Each message's own reason where the server gave one, else the one of them all."""
    try:
        return msgspec.convert(error.details["messages"], list[PushedMessage])
    except (KeyError, msgspec.ValidationError):
        return [
            PushedMessage(item.transaction_id, PushStatus.REFUSED, "", item.trace_id, None, error.code, error.message)
            for item in items
        ]
