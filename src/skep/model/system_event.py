"""Changes that the servers of one store announce to each other, so that each can update its caches."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.model.queue import Queue, QueueKey


class SystemEventKind(StrEnum):
    """The kind of a change."""

    QUEUE = "queue"
    KEY_MADE = "key_made"
    KEY_REVOKED = "key_revoked"
    DATA_KEY = "data_key"


class SystemEvent(Struct, frozen=True):
    """One change, with the present state of the queue; None when the queue is gone.

    For a changed access key, the name in ``key`` is its id. An ended session is announced like a revoked key: its id has another form.
    """

    kind: SystemEventKind
    key: QueueKey
    queue: Queue | None


class EventPosition(Struct, frozen=True):
    """A server's position in the log of changes, and the identity of that log.

    A number alone is not enough: after a failover without the last commits, or a restored backup, the same numbers name other
    changes. ``mark`` identifies the change at ``number``; ``timeline`` changes when another database server took over.
    """

    number: int = 0
    mark: str = ""
    timeline: str = ""


class SystemEvents(Struct, frozen=True):
    """Changes in the order in which they were made, and the position to read on from.

    ``complete``: these are all changes since the last position. If not, some changes have aged out, or the store went back to an
    earlier state; then every cache may be wrong.
    """

    position: EventPosition
    events: list[SystemEvent]
    complete: bool = True
