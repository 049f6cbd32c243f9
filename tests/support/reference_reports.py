"""Reports of readers of the raw log in the reference: external groups, and archives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import GroupStats, QueueKey, Seq, Start, StartMode
from tests.support.reference import Log
from tests.support.reference_views import ReferenceViews


class ReferenceReports(ReferenceViews):
    """Groups that follow a reader of the raw log."""

    def those_of(self, tenant: str, queues: Iterable[str]) -> dict[str, Log]:
        keys = [QueueKey(name, tenant) for name in queues]
        return {key.name: self.logs[key] for key in keys if key in self.logs}

    async def report_progress(
        self, key: QueueKey, group: str, seq: Seq, now: Instant, archived: bool = False
    ) -> GroupStats:
        log = self.log(key)
        if seq > log.last_seq:
            raise SkepError(Code.INVALID_REQUEST, f"{seq} is beyond the log of {key.name!r}")
        if group not in log.groups:
            found = self.group(log, group, Start(StartMode.SEQ, seq + 1), now)
            found.external = True
        found = log.groups[group]
        if not found.external:
            raise SkepError(Code.GROUP_NOT_EXTERNAL, f"messages of {key.name!r} are leased to it")
        if seq > found.scan_seq:
            passed = set(range(found.scan_seq + 1, seq + 1))
            found.passed += len(passed - found.counted)
            found.counted -= passed
            found.scan_seq = seq
        if archived:
            found.archived = max(seq, found.archived or 0)
        found.used(now)
        return self.group_stats(log, found, now)

    async def report_progress_of_logs(
        self, tenant: str, group: str, seqs: Mapping[str, Seq], now: Instant, archived: bool = False
    ) -> dict[str, Seq]:
        keys = {name: QueueKey(name, tenant) for name in self.those_of(tenant, seqs)}
        return {
            name: (await self.report_progress(key, group, seqs[name], now, archived)).progress_seq
            for name, key in keys.items()
        }
