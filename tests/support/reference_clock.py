"""A clock that is put back, in the reference store: everything is looked at, and whatever lies ahead is moved."""

from __future__ import annotations

import msgspec

from skep.clock import Instant, seconds
from skep.ids import minted_at
from skep.model.chores import Chore
from skep.model.operation import OperationStatus
from tests.support.reference import Group, Log
from tests.support.reference_access import ReferenceAccess
from tests.support.reference_operations import ReferenceOperations

TEN_MINUTES = seconds(600)
NOTICED = seconds(15)
LONGEST_WAIT = seconds(60)


class ReferenceClock(ReferenceOperations):
    """The verb that notes the time."""

    access: ReferenceAccess

    def __init__(self) -> None:
        super().__init__()
        self.latest_at = 0
        self.put_back_at: int | None = None

    async def put_right(self, now: Instant, limit: int) -> Chore:
        back = self.latest_at - now
        if back > NOTICED:
            self.latest_at = self.put_back_at = now
            for log in self.logs.values():
                for group in log.groups.values():
                    self._shift(group, seconds(log.settings.lease_seconds), now, back)
            for kept in self.living_operations:
                ready_at, started_at = kept.shown.ready_at or 0, kept.shown.started_at or 0
                if ready_at > now and kept.shown.status is not OperationStatus.PROCESSING:
                    kept.change(ready_at=min(ready_at, max(now + LONGEST_WAIT, ready_at - back)))
                elif ready_at > now and started_at > now:
                    kept.change(ready_at=_from_now(ready_at, started_at, now), started_at=now)
            for at, known in self.endpoints_kept.items():
                if (known.open_until or 0) > now:
                    rests = _sooner(known.open_until or 0, now, back)
                    self.endpoints_kept[at] = msgspec.structs.replace(known, open_until=rests)
            for id_, one in self.access.sessions.items():
                if one.used_at > now:
                    ends = Instant(one.expires_at - max(0, one.created_at - now))
                    self.access.sessions[id_] = msgspec.structs.replace(
                        one, created_at=min(one.created_at, now), used_at=now, expires_at=ends
                    )
            return Chore(1)
        self.latest_at = max(self.latest_at, now)
        if self.put_back_at is None or now < self.put_back_at + TEN_MINUTES:
            return Chore()
        put_back_at, self.put_back_at = self.put_back_at, None
        for log in self.logs.values():
            self._stamp(log, put_back_at, now)
            for group in log.groups.values():
                group.active_at = min(group.active_at, now)
        for kept in self.ledger.kept:
            for name in ("created_at", "started_at", "blocked_at", "error_at", "processed_at"):
                if (getattr(kept.shown, name) or 0) > now:
                    kept.change(**{name: now})
        return Chore(1)

    def _shift(self, group: Group, longest: int, now: Instant, back: int) -> None:
        """What a clock from ahead wrote lasts as long as it was asked for, from now on; what the right one wrote is left alone."""
        for lease in group.leases:
            if lease.leased_at > now:
                renewed_until = max(lease.deadline - back, now + longest)
                lease.deadline = Instant(min(_from_now(lease.deadline, lease.leased_at, now), renewed_until))
                lease.leased_at = now
        for partition, at in group.rest_until.items():
            if group.rest_from[partition] > now:
                group.rest_until[partition] = _from_now(at, group.rest_from[partition], now)
                group.rest_from[partition] = now
        for mark in group.marks.values():
            mark.found_at = min(mark.found_at, now)
            if mark.retry_at is not None and mark.said_at > now:
                mark.retry_at, mark.said_at = _from_now(mark.retry_at, mark.said_at, now), now

    def _stamp(self, log: Log, put_back_at: int, now: Instant) -> None:
        wrong = [entry for _, entry in sorted(log.entries.items()) if entry.created_at > now]
        right = max((entry.created_at for entry in log.entries.values() if entry.created_at <= now), default=0)
        for place, entry in enumerate(wrong):
            known = [max(minted_at(later.id) or now, put_back_at) for later in wrong[place:]]
            entry.created_at = Instant(max(right, min([*known, now])))
        log.last_created_at = max((entry.created_at for entry in log.entries.values()), default=0)
        log.lease_history = [
            msgspec.structs.replace(one, settled_at=min(one.settled_at, now), leased_at=min(one.leased_at, now))
            for one in log.lease_history
        ]
        log.failures = [
            msgspec.structs.replace(one, failed_at=min(one.failed_at, now), leased_at=min(one.leased_at, now))
            for one in log.failures
        ]
        log.retention_history = [one for one in log.retention_history if one.at <= now]
        window = seconds(log.settings.dedup_window_seconds)
        log.dedup = {
            key: (id_, seq, Instant(min(expires_at, now + window))) for key, (id_, seq, expires_at) in log.dedup.items()
        }


def _from_now(at: int, said_at: int, now: Instant) -> Instant:
    return Instant(max(now, now + at - said_at))


def _sooner(at: int, now: Instant, back: int) -> Instant:
    return Instant(max(now, at - back))
