"""What servers of one store tell each other: that something changed which they may hold in memory."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.model.queue import Queue, QueueKey


class SystemEventKind(StrEnum):
    """What changed."""

    QUEUE = "queue"
    KEY_MADE = "key_made"
    KEY_REVOKED = "key_revoked"
    DATA_KEY = "data_key"


class SystemEvent(Struct, frozen=True):
    """One change, with the queue as it is by now, None when it is gone.

    Of a changed key, ``key`` has the id as its name. A session that ended is told as a key that was revoked: its id is of another form.
    """

    kind: SystemEventKind
    key: QueueKey
    queue: Queue | None


class EventPosition(Struct, frozen=True):
    """Where in the log of changes a server has come to, and in which log.

    A number alone would not do: a standby that took over without the last commits, or a backup that was put back, gives the same
    numbers to other changes. ``mark`` tells the change at ``number`` from any other; ``timeline`` changes when another server
    of the database took over.
    """

    number: int = 0
    mark: str = ""
    timeline: str = ""


class SystemEvents(Struct, frozen=True):
    """Changes in the order in which they were made, and the position to read on from.

    ``complete`` says that these are all changes since the last position. If not, some have aged out meanwhile, or the store
    went back to an earlier state: whatever is held in memory may be wrong.
    """

    position: EventPosition
    events: list[SystemEvent]
    complete: bool = True
