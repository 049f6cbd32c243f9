"""The log lines of failed messages: a warning while a message comes again, an error once it is a dead letter.

Only the server knows whether an attempt was the last one. So the line is written when the settlement is answered.
"""

from __future__ import annotations

import logging

from msgspec import Struct

from skep.client.error_texts import error_line, is_tame, own_frames, shortened, traceback_text, writable
from skep.client.message_data import MessageData
from skep.client.worker.verdict import Reject, Retry, RetryAt
from skep.model import QUEUE_MODE_GROUP, SettleStatus
from skep.wire.messages import AckResult, AckStatus, PoppedMessage

REASON_CHARACTERS = 2_000

log = logging.getLogger("skep.worker")

_ENDS = {
    SettleStatus.DEAD: "and is a dead letter now",
    SettleStatus.DISCARDED: "and is discarded",
    SettleStatus.RETRYING: "and comes again",
    SettleStatus.QUEUED: "and is settled by the server soon",
    SettleStatus.COMPLETED: "and is completed",
}
_GIVEN_UP = frozenset({SettleStatus.DEAD, SettleStatus.DISCARDED})


class FailedMessage(Struct, frozen=True):
    """A message that failed, and why: the exception, or a reason that is no fault of the program's."""

    message: MessageData | PoppedMessage
    why: BaseException | str

    def log(self, result: AckResult | None) -> None:
        """Log the failure, once the server has answered the settlement; None means that the message could not be settled."""
        if result is None or result.status is SettleStatus.REFUSED:
            self._write(logging.WARNING, "and could not be settled: it comes again when its lease runs out")
            return
        level = logging.WARNING
        if result.status in _GIVEN_UP:
            level = logging.ERROR
        elif isinstance(self.why, Retry | RetryAt):
            level = logging.INFO  # the function wants it again, which is no failure of its own
        self._write(level, _ENDS[result.status])

    def log_settled(self, status: AckStatus) -> None:
        """Log a function that failed after it had settled its message itself."""
        self._write(logging.WARNING, f"after its function had settled it ({status})")

    def _write(self, level: int, end: str) -> None:
        if log.isEnabledFor(level):
            failed(level, f"{self._name()} failed on attempt {self.message.attempt} {end}", self.why)

    def _name(self) -> str:
        one = self.message
        group = one.group if isinstance(one, MessageData) else one.consumer_group
        of_group = "" if group == QUEUE_MODE_GROUP else f", group {group}"
        return f"seq {one.seq} of {one.queue} (partition {one.partition}{of_group})"


def failed(level: int, what: str, why: BaseException | str) -> None:
    """A log line that says what failed and why, with the traceback of an exception that nobody raised on purpose."""
    if isinstance(why, Reject | Retry | RetryAt):
        why = str(why) or type(why).__name__
    if isinstance(why, str):
        log.log(level, "%s: %s", what, writable(shortened(why, REASON_CHARACTERS)))
        return
    line = error_line(why)
    if is_tame(why):
        log.log(level, "%s: %s", what, line, exc_info=(type(why), why, own_frames(why)))
    else:
        # A handler that writes UTF-8 would lose the whole line, and one that takes anything would get a flood.
        log.log(level, "%s: %s\n%s", what, line, traceback_text(why))
