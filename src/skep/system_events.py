"""What servers of one store tell each other: that something changed which they may hold in memory."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.model import Queue, QueueKey


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


class SystemEvents(Struct, frozen=True):
    """Changes in the order in which they were made, and the position to read on from.

    ``complete`` says whether all since the last position are among them; if not, some have aged out meanwhile.
    """

    position: int
    events: list[SystemEvent]
    complete: bool = True
