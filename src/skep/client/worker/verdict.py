"""The outcome of a message by its function: a return completes it, an exception fails it, and three exceptions say more."""

from __future__ import annotations

from datetime import datetime, timedelta

from skep.client import message_data
from skep.client.error_texts import error_text
from skep.client.message_data import MessageData
from skep.clock import Clock
from skep.errors import Code, SkepError
from skep.wire.messages import Ack


class Reject(Exception):  # noqa: N818 - it is what the function wants, not an error of its own
    """Give the message up: it becomes a dead letter at once."""


class Retry(Exception):  # noqa: N818 - as above
    """Try the message again after a number of seconds or a timedelta, instead of the queue's backoff."""

    def __init__(self, reason: str = "", *, delay: float | timedelta = 0.0) -> None:
        super().__init__(reason)
        self.delay = delay


class RetryAt(Exception):  # noqa: N818 - as above
    """Try the message again at that time."""

    def __init__(self, retry_at: datetime, reason: str = "") -> None:
        super().__init__(reason)
        if getattr(retry_at, "tzinfo", None) is None:  # no datetime, or one without an offset
            raise SkepError(Code.INVALID_TIME, f"a time is a datetime with its offset from UTC, not {retry_at!r}")
        self.retry_at = retry_at


def verdict(message: MessageData, clock: Clock, error: BaseException | None) -> Ack:
    """The settlement of a message by how its function ended. An invalid delay does not prevent the settlement."""
    try:
        return _verdict(message, clock, error)
    except (SkepError, OverflowError, ValueError, TypeError) as unusable:
        return message_data.failed(message, clock, error=f"the time to wait cannot be used: {unusable}")


def _verdict(message: MessageData, clock: Clock, error: BaseException | None) -> Ack:
    match error:
        case None:
            return message_data.completed(message)
        case Reject():
            return message_data.rejected(message, error=str(error) or None)
        case Retry():
            return message_data.failed(message, clock, error=str(error) or None, delay=error.delay)
        case RetryAt():
            return message_data.failed(message, clock, error=str(error) or None, retry_at=error.retry_at)
        case _:
            return message_data.failed(message, clock, error=error_text(error))
