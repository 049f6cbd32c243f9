"""One pop under way: its deliveries, its remaining limits, and the messages that discovery has read for it."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from skep.clock import Instant
from skep.model import Delivery, PopRequest
from skep.store.lease import Effects
from skep.store.sqlite.bury import apply
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session

MAX_BURIALS_PER_CLAIM = 20
"""How many messages one pop buries whose last attempt ran out; `expire` buries the others in the background."""


class AtHand:
    """Whole messages that a pop has just discovered, by partition, so that it need not read them again.

    They are kept while there is room. A partition is incomplete if one of its messages was not kept.
    """

    def __init__(self, room_bytes: int) -> None:
        self._room_bytes = room_bytes
        self._messages: dict[str, list[Row]] = {}

    def keep(self, message: Row) -> None:
        """Keep a message, if there is room."""
        self._room_bytes -= len(message[9]) + len(message[8] or b"")
        if self._room_bytes >= 0:
            self._messages.setdefault(message[4], []).append(message)

    def take(self, partition: str, delivered_seq: int, pending: int) -> list[Row] | None:
        """The messages of a partition beyond ``delivered_seq``; None when these are not all its ``pending`` messages.

        Messages up to ``delivered_seq`` have expired since they were read.
        """
        found = [row for row in self._messages.pop(partition, ()) if row[0] & MAX_SEQ > delivered_seq]
        return found if len(found) == pending else None


class Claim(Struct):
    """One request under way: its deliveries, and its remaining limits."""

    request: PopRequest
    deadline: Instant
    deliveries: list[Delivery]
    partitions: set[str]
    expiries_left: int
    room_bytes: int
    """How many bytes of payloads and headers still fit."""
    burials_left: int = MAX_BURIALS_PER_CLAIM
    effects: Effects = field(default_factory=Effects)
    """The burials, history rows and counts that `apply` will write together."""
    is_closed: bool = False
    """Whether no message may be added any more."""
    at_hand: AtHand | None = None
    """The messages that were read when they were discovered."""

    @property
    def wanted(self) -> int:
        """How many more messages fill the batch."""
        return 0 if self.is_closed else self.request.batch - len(self.deliveries)

    def apply(self, session: Session, queue: QueueRow, group: GroupRow, now: Instant) -> None:
        """Write the gathered effects: burials, history rows and counts."""
        apply(session, queue, group, self.effects, now)
        self.effects = Effects()

    def fitting(self, rows: Iterable[Row]) -> list[Row]:
        """As many message rows as there is room for, at least the first of a claim. A row without room closes the claim.

        Rows are read one by one, so at most one row too many is in memory.
        """
        taken: list[Row] = []
        room = self.room_bytes
        for row in rows:
            headers = row[8]
            room -= len(row[9]) if headers is None else len(row[9]) + len(headers)
            if room < 0 and (taken or self.deliveries):
                self.is_closed = True
                break
            taken.append(row)
        self.room_bytes = room
        return taken
