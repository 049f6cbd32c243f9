"""Consumer groups as data: special names, and the position where a group starts."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.errors import Code, SkepError

QUEUE_MODE_GROUP = "__QUEUE_MODE__"
NO_GROUP = ""
"""The group of a dead letter that no group gave up, as the message never entered its queue. Its replay is for all groups."""


class StartMode(StrEnum):
    """Where in the log a group starts, or is moved to."""

    ALL = "all"
    NEW = "new"
    TIME = "time"
    SEQ = "seq"


class Start(Struct, frozen=True):
    """A position: the beginning, the end, the first message at or after an instant, or a seq (inclusive)."""

    mode: StartMode = StartMode.ALL
    value: int = 0


FROM_BEGINNING = Start(StartMode.ALL)
FROM_NOW = Start(StartMode.NEW)


def no_group(queue: str, group: str) -> SkepError:
    """The error for a group that a queue does not have."""
    return SkepError(Code.GROUP_NOT_FOUND, f"queue {queue!r} has no group {group!r}", queue=queue, group=group)
