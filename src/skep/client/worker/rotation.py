"""The rotation of tenants: whose messages of a queue are popped next.

With one tenant a pop waits for a message. With several tenants such a wait would hold up the others, so each is asked in turn;
a tenant without messages is asked less and less often. With ``fair`` a turn is one batch; without it a tenant is
worked off before the next one's turn comes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from skep.client.worker.source import Source

WAIT_SECONDS = 2.0
"""How long one long poll lasts, and so how long a stop may have to wait for one."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
"""A tenant that has nothing is asked again after the first, then after twice as long, and never later than the longest."""


class Turn:
    """A tenant in the rotation. ``due`` is on the event loop's clock."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.due = 0.0
        self.pause = 0.0


class Rotation:
    """The tenants of one queue."""

    def __init__(self, fair: bool, time: Callable[[], float]) -> None:
        self._fair = fair
        self._time = time
        self._turns: deque[Turn] = deque()
        self._tenants: set[str] = set()

    @property
    def sources(self) -> list[Source]:
        """The sources of all tenants."""
        return [turn.source for turn in self._turns]

    @property
    def wait_seconds(self) -> float:
        """How long a pop may wait for a message."""
        return WAIT_SECONDS if len(self._turns) == 1 else 0.0

    def lacks(self, tenant: str) -> bool:
        """Whether the rotation lacks a tenant."""
        return tenant not in self._tenants

    def add(self, source: Source) -> None:
        """Add a tenant."""
        self._tenants.add(source.tenant)
        self._turns.append(Turn(source))

    def next(self) -> Turn | None:
        """The tenant whose turn it is; None when none is due."""
        now = self._time()
        return next((turn for turn in self._turns if turn.due <= now), None)

    def due_in(self) -> float:
        """Seconds until somebody is due."""
        return max(0.0, min((turn.due for turn in self._turns), default=0.0) - self._time())

    def share(self, free: int) -> int:
        """The share of the free slots that one turn may take."""
        if not self._fair or len(self._turns) == 1:
            return free
        now = self._time()
        due = sum(turn.due <= now for turn in self._turns)
        return max(1, -(-free // max(1, due)))

    def found(self, turn: Turn) -> None:
        """The pop got messages: with ``fair`` the tenant goes to the end of the line."""
        turn.pause, turn.due = 0.0, 0.0
        if self._fair:
            self._turns.remove(turn)
            self._turns.append(turn)

    def nothing(self, turn: Turn, waited: bool) -> None:
        """The pop got nothing: the tenant comes later, after the others, unless the server has waited for a message."""
        turn.pause = 0.0 if waited else min(max(turn.pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        self.put_off(turn, turn.pause)

    def put_off(self, turn: Turn, seconds: float) -> None:
        """Do not ask this tenant before the pause is over."""
        turn.due = self._time() + seconds
        self._turns.remove(turn)
        self._turns.append(turn)
