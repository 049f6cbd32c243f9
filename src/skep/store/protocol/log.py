"""The log by its seqs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import DeletedMessage, LogBounds, QueueKey, Seq

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import LogPiece, LogRange


class LogReadVerbs(Protocol):
    """The log in bulk, as columns."""

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """As many messages of a range as fit: it ends with the one that reaches ``max_bytes``.

        The walk is bounded, so a piece may be empty where a stretch of the log is, or is of other partitions. It holds nothing
        open: reading on is another call.
        """


class LogVerbs(Protocol):
    """Places in a log."""

    async def log_bounds(self, key: QueueKey) -> LogBounds:
        """Which seqs the log holds."""

    async def bounds_of_logs(self, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
        """Which seqs the logs of some queues hold, all in one look; queues that are not there are left out."""

    async def first_seq_at(self, key: QueueKey, at: Instant) -> Seq:
        """The first seq whose message was created at or after an instant; the one after the last when there is none."""

    async def last_seq_within(self, key: QueueKey, first: Seq, max_bytes: int, max_rows: int) -> Seq:
        """The last seq from ``first`` on such that payloads have at most ``max_bytes`` together, or just one has more.

        It looks at ``max_rows`` seqs at most.
        """

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
    ) -> DeletedMessage:
        """Delete one message from the log, for all groups; those that had not settled it count it as expired.

        A lease that holds it ends as by `release_lease`, its token is fenced, and what else it holds is delivered again.
        The deduplication key stays. MESSAGE_NOT_FOUND when there is none at this seq, or it has another id than ``id_``;
        MESSAGE_SETTLED when no group has anything to do with it.
        """
