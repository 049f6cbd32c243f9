"""Groups that were moved by hand: by seek, by clear, by deletion. A move took effect between its call and its answer.

A group is not excused because it was moved: a call is judged by the moves that may have been the last before it. When the
moves before it are certain, there is one; a call that overlaps a move has several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from msgspec import Struct

from skep.model import ClearScope, QueueKey, Start, StartMode
from torture.history import Call, Entry, GroupKey, History


class Move(Struct, frozen=True, eq=False):
    """One move. ``group`` None is all groups of the queue; ``start`` None leaves nothing to deliver of what was there.

    ``ends_leases`` is false for a clear of pending messages: what is leased stays so, and may come again.
    """

    call: Call
    group: str | None
    start: Start | None
    ends_leases: bool = True

    def may_pass(self, entry: Entry) -> bool:
        """Whether the move may have put the group past a message of the log; never past one that was not there yet."""
        if not entry.call.may_precede(self.call):
            return False
        if self.start is None or self.start.mode is StartMode.NEW:
            return True
        if self.start.mode is StartMode.SEQ:
            return entry.seq < self.start.value
        return self.start.mode is StartMode.TIME and entry.call.now < self.start.value

    def must_pass(self, entry: Entry) -> bool:
        """Whether the move has certainly put the group past a message of the log, as far as it took effect."""
        if not self.ends_leases or not entry.is_answered or not entry.call.is_before(self.call):
            return False  # a seq beyond the end of the log is its end: what comes later is not passed
        if self.start is None or self.start.mode is StartMode.NEW:
            return True
        return self.start.mode is StartMode.SEQ and entry.seq < self.start.value


class Moves:
    """The moves of one group in the order of their calls, and what they mean for other calls."""

    def __init__(self, moves: list[Move]) -> None:
        self.all = sorted(moves, key=lambda move: move.call.started)
        self._resets = [move for move in self.all if move.start is not None]
        self._last: dict[Call, list[Move | None]] = {}
        self._epochs: dict[Call, int | None] = {}

    def last_before(self, call: Call) -> list[Move | None]:
        """The moves that may have been the last before the call; None among them when perhaps there was none."""
        if not self.all:
            return [None]
        found = self._last.get(call)
        if found is None:
            certain = [move for move in self.all if move.call.is_before(call)]
            latest = max((move.call.started for move in certain), default=None)
            found = [
                move
                for move in self.all
                if move.call.may_precede(call) and (latest is None or move.call.last_tick >= latest)
            ]
            if latest is None:
                found = [None, *found]
            self._last[call] = found
        return found

    def epoch(self, call: Call) -> int | None:
        """How often the group had begun anew before the call: a clear settles, and begins nothing. None when that cannot be told."""
        if not self._resets:
            return 0
        if call not in self._epochs:
            certain = sum(move.call.is_before(call) for move in self._resets)
            doubtful = sum(not move.call.is_before(call) and not call.is_before(move.call) for move in self._resets)
            self._epochs[call] = None if doubtful else certain
        return self._epochs[call]

    def may_lie_between(self, first: Call, last: Call) -> bool:
        """Whether one may have taken effect after the first call and before the last."""
        return any(first.may_precede(move.call) and move.call.may_precede(last) for move in self.all)

    def ended_lease(self, claim: Call, later: Call) -> Move | None:
        """A move that certainly came after a claim and before a later call, and ended the lease."""
        between = (m for m in self.all if m.ends_leases and claim.is_before(m.call) and m.call.is_before(later))
        return next(between, None)

    def clears_of(self, entry: Entry) -> list[Move]:
        """The moves that may have taken the message from all groups for good: no seek brings it back."""
        return [move for move in self.all if move.group is None and move.may_pass(entry)]


def moves_by_group(history: History) -> Callable[[GroupKey], Moves]:
    """A function that tells the moves of a group, those of all groups of its queue among them."""
    by_queue: dict[QueueKey, list[Move]] = defaultdict(list)
    for call in history.verb("seek"):
        queue, group, start = call.request
        by_queue[queue].append(Move(call, group, start))
    for call in history.verb("delete_group"):
        queue, group = call.request
        by_queue[queue].append(Move(call, group, Start()))
    for call in history.verb("delete_queue"):
        by_queue[call.request[0]].append(Move(call, None, None))
    for call in history.verb("clear"):
        queue, scope = call.request
        if scope is not ClearScope.SCHEDULED:
            by_queue[queue].append(Move(call, None, None, ends_leases=scope is ClearScope.ALL))
    return lambda key: Moves([move for move in by_queue.get(key[0], ()) if move.group in (None, key[1])])
