"""How long a call that was accepted is tried again: one rule for operations and for the spool (I13).

What the store cannot do now waits without limit. What a rule forbids is given up at once. In between are a full queue, and a failure
that nobody expected: each has its own time, since either may pass and neither must hold its partition for ever.
"""

from __future__ import annotations

from msgspec import Struct

from skep.clock import MICROS_PER_SECOND, Instant, seconds
from skep.errors import Code, Outlook, outlook


class Patience(Struct, frozen=True):
    """The times of an operation, or of a spooled push."""

    full_seconds: float
    fault_seconds: float
    first_wait_seconds: float
    longest_wait_seconds: float

    def lasts(self, code: Code, since: Instant, now: Instant) -> bool:
        """Whether a call is tried again that has failed with this code ``since`` then."""
        match outlook(code):
            case Outlook.LATER:
                return True
            case Outlook.NEVER:
                return False
            case Outlook.DOUBTFUL:
                limit = self.full_seconds if code is Code.QUEUE_FULL else self.fault_seconds
                return now - since < seconds(limit)

    def retry_at(self, since: Instant, now: Instant) -> Instant:
        """When to try next: the wait is as long as it has failed already, so it doubles each time, up to a bound."""
        failed_seconds = (now - since) / MICROS_PER_SECOND
        wait = min(self.longest_wait_seconds, max(self.first_wait_seconds, failed_seconds))
        return Instant(now + seconds(wait))
