"""Consumer groups and their progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.model import GroupStats, QueueKey, Seq, Start

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class GroupVerbs(Protocol):
    """Where a group is in a log."""

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        """Move a group, making it when there is none: its leases end, its account starts anew."""

    async def report_progress(self, key: QueueKey, group: str, seq: Seq, now: Instant) -> GroupStats:
        """Note that an external group is done with all up to ``seq``; it never goes back (I7), and an earlier seq changes nothing.

        Made on first sight, it begins at ``seq``. A seq beyond the log is INVALID_REQUEST; a group that messages were leased to
        is GROUP_NOT_EXTERNAL, as popping from an external one is GROUP_EXTERNAL.
        """

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:
        """Forget a group and its leases."""
