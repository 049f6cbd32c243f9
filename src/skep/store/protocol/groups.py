"""Consumer groups and their progress."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from skep.clock import Instant
from skep.model import GroupStats, QueueKey, Seq, Start


class GroupVerbs(Protocol):
    """The positions of groups in logs."""

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
        """Move a group to a position; a missing group is made. Its leases end, and its counters start again."""

    async def report_progress(
        self, key: QueueKey, group: str, seq: Seq, now: Instant, archived: bool = False
    ) -> GroupStats:
        """Note that an external group has done all messages up to ``seq``. Progress never goes back (I7): an earlier seq changes nothing.

        A missing group is made, and begins at ``seq``. A seq beyond the log is INVALID_REQUEST. A group that pops is
        GROUP_NOT_EXTERNAL; a pop of an external group is GROUP_EXTERNAL. With ``archived`` the group is an archive, and these messages
        are safe in its lake: retention that requires an archive may delete them. A seek forward is no such report.
        """

    async def report_progress_of_logs(
        self, tenant: str, group: str, seqs: Mapping[str, Seq], now: Instant, archived: bool = False
    ) -> dict[str, Seq]:
        """Note the progress of an external group in many logs, by queue, as `report_progress` does in one; returns its progress in each.

        Queues that do not exist are left out. An error names its queue; reports of other queues may have been noted by then.
        """

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> bool:
        """Delete a group and its leases; False when there is none."""
