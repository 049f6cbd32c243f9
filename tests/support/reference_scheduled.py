"""Scheduled messages of the reference store: a list, and everything by looking at all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skep.clock import Instant
from skep.model import QueueKey, Seq
from skep.model.chores import Chore
from skep.model.scheduled import (
    Change,
    Changed,
    ScheduledChange,
    ScheduledCount,
    ScheduledFilter,
    ScheduledMessage,
    ScheduledPage,
    ScheduledPosition,
    ScheduledRow,
)
from tests.support.reference import Log, Scheduled

if TYPE_CHECKING:
    from tests.support.reference_store import ReferenceStore


class ReferenceScheduled:
    """What waits, by time and arrival."""

    def __init__(self, store: ReferenceStore) -> None:
        self._store = store
        self._arrivals = 0

    async def page(
        self, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int, preview_bytes: int | None
    ) -> ScheduledPage:
        found = self._found(wanted, after)
        shown = [_shown(log, one, preview_bytes) for log, one in found[:limit]]
        return ScheduledPage(shown, shown[-1].place if len(found) > limit else None)

    async def count(self, wanted: ScheduledFilter, after: ScheduledPosition | None) -> ScheduledCount:
        return ScheduledCount(len(self._found(wanted, after)), None)

    async def mark(self, key: QueueKey) -> int:
        self._store.log(key)
        return self._arrivals

    async def change(
        self,
        wanted: ScheduledFilter,
        what: Change,
        deliver_at: Instant | None,
        after: ScheduledPosition | None,
        limit: int,
        now: Instant,
    ) -> ScheduledChange:
        found = self._found(wanted, after)
        changed = []
        for log, one in found[:limit]:
            seq = None
            log.scheduled.remove(one)
            if what is Change.RUN:
                seq = Seq(self._enter_log(log, one, now))
            elif what is Change.MOVE:
                assert deliver_at is not None
                log.scheduled.append(Scheduled(deliver_at, one.message, one.id, self.arrive()))
            elif what is Change.FORGET:
                log.dedup = {key: kept for key, kept in log.dedup.items() if kept[0] != one.id}
            changed.append(Changed(one.id, seq))
        last = found[limit - 1][1] if len(found) > limit else None
        return ScheduledChange(changed, None if last is None else ScheduledPosition(last.due_at, last.arrival))

    def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        log = self._store.log(key)
        due = sorted((s for s in log.scheduled if s.due_at <= now), key=lambda s: (s.due_at, s.arrival))
        for entry in due[:limit]:
            log.scheduled.remove(entry)
            self._enter_log(log, entry, now)
        next_at = min((s.due_at for s in log.scheduled), default=None)
        return Chore(len(due[:limit]), len(due) > limit, next_at)

    def arrive(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def _enter_log(self, log: Log, entry: Scheduled, now: Instant) -> int:
        seq = self._store.append(log, entry.message, entry.id, now).seq
        for dedup_key, (id_, _, expires_at) in log.dedup.items():
            if id_ == entry.id:
                log.dedup[dedup_key] = (id_, seq, expires_at)
        return seq

    def _found(self, wanted: ScheduledFilter, after: ScheduledPosition | None) -> list[tuple[Log, Scheduled]]:
        logs = [log for key, log in self._store.logs.items() if key.tenant == wanted.tenant]
        if wanted.queue is not None:
            logs = [self._store.log(wanted.key)]
        found = [(log, one) for log in logs for one in log.scheduled if _waiting(log, one).fits(wanted)]
        found = [(log, one) for log, one in found if after is None or (one.due_at, one.arrival) > after]
        return sorted(found, key=lambda pair: (pair[1].due_at, pair[1].arrival))


def _waiting(log: Log, one: Scheduled) -> ScheduledRow:
    message = one.message
    return ScheduledRow(
        log.queue.key.name, log.queue.id, one.due_at, one.arrival, one.id, message.partition, message.transaction_id,
        message.trace_id or one.id, len(message.payload) + len(message.headers or b""),
    )  # fmt: skip


def _shown(log: Log, one: Scheduled, preview_bytes: int | None) -> ScheduledMessage:
    message = one.message
    return ScheduledMessage(
        queue=log.queue.key, place=ScheduledPosition(one.due_at, one.arrival), id=one.id, partition=message.partition,
        transaction_id=message.transaction_id, trace_id=message.trace_id or one.id, headers=message.headers,
        content_type=message.content_type, payload=message.payload[:preview_bytes], payload_bytes=len(message.payload),
        priority=message.priority,
    )  # fmt: skip
