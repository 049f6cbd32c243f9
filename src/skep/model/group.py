"""Consumer groups as data: special names, and the position where a group starts."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

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
