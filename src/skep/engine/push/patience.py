"""How long an accepted call is retried: one rule for operations and for the spool (I13).

A call that the store cannot take now waits without limit. A call that a rule forbids is given up at once. A full queue and an
unexpected failure are in between: each has its own time limit, as it may pass, but must not hold its partition for ever.
"""

from __future__ import annotations

from msgspec import Struct

from skep.clock import MICROS_PER_SECOND, Instant, seconds
from skep.errors import Code, Outlook, outlook


class Patience(Struct, frozen=True):
    """The time limits and waits of an operation, or of a spooled push."""

    full_seconds: float
    fault_seconds: float
    first_wait_seconds: float
    longest_wait_seconds: float

    def lasts(self, code: Code, since: Instant, now: Instant) -> bool:
        """Whether to retry a call that has failed with this code ``since`` an instant."""
        match outlook(code):
            case Outlook.LATER:
                return True
            case Outlook.NEVER:
                return False
            case Outlook.DOUBTFUL:
                limit = self.full_seconds if code is Code.QUEUE_FULL else self.fault_seconds
                return now - since < seconds(limit)

    def retry_at(self, since: Instant, now: Instant) -> Instant:
        """The time of the next try. The wait is as long as the call has failed already, so it doubles each time, up to a limit."""
        failed_seconds = (now - since) / MICROS_PER_SECOND
        wait = min(self.longest_wait_seconds, max(self.first_wait_seconds, failed_seconds))
        return Instant(now + seconds(wait))
