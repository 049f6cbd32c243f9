"""The log by its seqs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import DeletedMessage, LogBounds, QueueKey, Seq
from skep.model.forgetting import ForgetStep, Forgotten, SeqRange

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange


class LogReadVerbs(Protocol):
    """The log in bulk, as columns."""

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """As many messages of a range as fit: the message that reaches ``max_bytes`` is the last.

        The walk is bounded, so a piece may be empty where the log has a gap, or only messages of other partitions. No cursor stays
        open: the next piece is another call.
        """


class LogVerbs(Protocol):
    """Positions in a log."""

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        """The seqs that the log holds."""

    async def bounds_of_logs(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        """The seqs that the logs of some queues hold, in one read, without queues that do not exist."""

    async def first_seqs_at(self, tenant: str, queues: Sequence[str], at: Instant) -> dict[str, Seq]:
        """Of each log, the first seq whose message was created at or after an instant; last seq + 1 when there is none.

        Queues that do not exist are left out, here and below.
        """

    async def last_seqs_within(
        self, tenant: str, firsts: Mapping[str, Seq], max_bytes: int, max_rows: int
    ) -> dict[str, Seq]:
        """Of each log, the last seq of a range from its first seq whose payloads have at most ``max_bytes`` together; at least one message.

        Each range has at most ``max_rows`` seqs.
        """

    async def progress_of_logs(self, tenant: str, queues: Sequence[str], group: str) -> dict[str, Seq]:
        """The progress of a group in some logs, without logs that it does not read."""

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
    ) -> DeletedMessage:
        """Delete one message from the log, for all groups. Groups that had not settled it count it as expired.

        A lease that holds it ends as by `release_lease`: its token is fenced, and its other messages are delivered again.
        The deduplication key stays. MESSAGE_NOT_FOUND when there is no message at this seq, or its id is not ``id_``;
        MESSAGE_SETTLED when all groups have settled it.
        """

    async def forget(
        self,
        key: QueueKey,
        log: Instant | None,
        ranges: Sequence[SeqRange],
        after: Seq,
        limit: int,
        now: Instant,
        dry_run: bool = False,
    ) -> ForgetStep:
        """Forget messages for good: the first ``limit`` of ascending ranges, beyond ``after``. A step is one transaction.

        They leave the log as by `delete_message`, also when all groups have settled them. With them go their dead letters, the messages
        that replays made of these, errors, events of traces, and the deduplication keys. Their seqs get tombstones, also where no message
        was left. What was forgotten before has no effect. LOG_REPLACED when ``log`` is not the queue's; INVALID_REQUEST when a range
        goes beyond the log.
        """

    async def tombstones(self, key: QueueKey, after: int, limit: int) -> Forgotten:
        """The tombstones of a log by position, those after ``after``."""
