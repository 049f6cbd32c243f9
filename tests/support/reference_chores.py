"""Expiry and retention in the reference model."""

from __future__ import annotations

import itertools

from skep.clock import Instant, seconds
from skep.model import (
    FROM_BEGINNING,
    QUEUE_MODE_GROUP,
    DeadReason,
    QueueKey,
    Seq,
)
from skep.model.chores import Chore
from skep.model.history import RetentionPass
from tests.support.reference import EXPIRED_LEASE, Group, Lease, Log
from tests.support.reference_claims import ReferenceClaims


class ReferenceChores(ReferenceClaims):
    """The chores of the reference that change groups and logs."""

    passes: list[Instant]

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        log = self.log(key)
        done = 0
        if log.settings.max_age_seconds and not log.groups and log.logical and not self._goes_at_its_age(log):
            self.group(log, QUEUE_MODE_GROUP, FROM_BEGINNING, now)
        for group in [group for group in log.groups.values() if not group.external]:
            for lease in [lease for lease in group.leases if lease.deadline <= now]:
                done += self._bury_worn_out(log, group, lease, now)
            for lease in [lease for lease in group.leases if lease.deadline <= now]:
                if not set(lease.held) <= set(log.entries):
                    self.reclaim(log, group, lease, now)
            self.drop_gone(log, group)
            if log.settings.max_age_seconds or log.settings.max_wait_seconds:
                self.discover(log, group, now)
                for lease in [lease for lease in group.leases if lease.deadline <= now]:
                    if any(self.is_old(log, seq, now) for seq in lease.held):
                        self.reclaim(log, group, lease, now)
                # Behind a live lease nothing of an ordered partition moves, so expiry waits there, too.
                leased = {lease.partition for lease in group.leases} if log.is_ordered else set()
                free = [seq for seq in group.unsettled() if log.written[seq].partition not in leased]
                done += self.expire_old(log, group, free, now, limit - done)
                for partition in list(group.rest_until):
                    self.forget_rest(log, group, partition)
        return Chore(done, done == limit, self._next_expiry(log))

    def _goes_at_its_age(self, log: Log) -> bool:
        """Whether retention takes what is past max_age, and nothing has to be buried for that."""
        return log.queue.holds_dead_letters and self.grave_name(log.queue.key) is None

    def _bury_worn_out(self, log: Log, group: Group, lease: Lease, now: Instant) -> int:
        limit = log.settings.max_attempts
        worn_out = [seq for seq in lease.held if 0 < limit <= group.marks[seq].attempts and seq in log.entries]
        if log.is_ordered:
            if lease.held[0] in worn_out:
                self.reclaim(log, group, lease, now)
            return int(lease.held == [])
        if worn_out:
            self.note(log, group, lease, worn_out, 0, "dead", now)
        for seq in worn_out:
            self.fail(log, group, lease, seq, "dead", "lease ran out", now)
            self.bury(log, group, seq, DeadReason.MAX_ATTEMPTS, group.marks[seq].error or EXPIRED_LEASE, now)
            lease.held.remove(seq)
        if not lease.held:
            group.leases.remove(lease)
        return len(worn_out)

    def _next_expiry(self, log: Log) -> Instant | None:
        longest = seconds(max(log.settings.max_age_seconds, log.settings.max_wait_seconds))
        unsettled = {seq for group in log.groups.values() for seq in group.unsettled()}
        return Instant(log.written[min(unsettled)].created_at + longest) if longest and unsettled else None

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        log, settings = self.log(key), self.log(key).settings
        self._mark_idle(log, now)
        settled = min((self.progress(group) for group in log.in_use), default=0)
        needed = {seq for group in log.groups.values() for seq in group.unsettled()}
        doomed = {seq for seq in log.entries if seq < log.first_seq and seq not in needed}
        until = 0
        if settings.retention_seconds:
            old = self._last_older(log, now - seconds(settings.retention_seconds))
            until = max(until, old if settings.retention_ignores_groups else min(old, settled))
        if settings.completed_retention_seconds and not settings.retention_ignores_groups:
            long_ago = now - seconds(settings.completed_retention_seconds)
            passes = [p.settled_seq for p in log.retention_history if p.at <= long_ago]
            until = max(until, min(settled, max(passes, default=0)))
        has_age = log.queue.holds_dead_letters and settings.max_age_seconds
        if has_age:
            old = self._last_older(log, now - seconds(settings.max_age_seconds))
            poppers = [self.progress(group) for group in log.groups.values() if not group.external]
            until = max(until, old if self._goes_at_its_age(log) else min(old, min(poppers, default=0)))
        if settings.retention_requires_archive:
            until = min(until, log.archived or 0)
        doomed |= {seq for seq in log.entries if seq <= until}
        victims = sorted(doomed)[:limit]
        for seq in victims:
            self.take_away(log, seq, now)
        more = len(doomed) > len(victims)
        log.first_seq = max(log.first_seq, (victims[-1] if more else until) + 1)
        if settings.retention_seconds or settings.completed_retention_seconds or has_age:
            settled_seq, first_seq = Seq(settled), Seq(log.first_seq)
            log.retention_history.append(
                RetentionPass(queue=key, at=now, deleted=len(victims), first_seq=first_seq, settled_seq=settled_seq)
            )
        oldest = min((entry.created_at for entry in log.entries.values()), default=now)
        return Chore(len(victims), more, Instant(oldest + seconds(settings.max_age_seconds)) if has_age else None)

    def _mark_idle(self, log: Log, now: Instant) -> None:
        """Whoever was not used for too long is idle, unless nobody was used since."""
        self.passes = [at for at in self.passes if at <= now] + [now]
        # An hour of passes, none of them far apart, is enough for everybody to show up.
        breaks = [later for at, later in itertools.pairwise(self.passes) if later - at > seconds(7200)]
        attended = now - (breaks[-1] if breaks else self.passes[0]) >= seconds(3600)
        limit = log.settings.group_idle_seconds
        order = sorted(log.groups.values(), key=lambda group: (group.active_at, group.id))
        for group in order:
            is_held = any(lease.deadline > now for lease in group.leases)
            is_long_ago = group.active_at + max(seconds(limit), seconds(120)) <= now
            idle = bool(limit) and is_long_ago and not is_held and group is not order[-1]
            group.idle = idle and (group.idle or attended)

    def _last_older(self, log: Log, than: int) -> int:
        """The last seq before the first message that is younger."""
        return min((seq for seq, e in log.entries.items() if e.created_at > than), default=log.last_seq + 1) - 1
