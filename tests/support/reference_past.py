"""What the reference model remembers: figures by the minute, events of traces, deliveries, deaths. Naively, by looking at all."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import DeadLetter, QueueKey, Seq, SettleStatus
from skep.model.history import (
    Death,
    FailedAttempt,
    FinishedLease,
    Journey,
    LeaseTime,
    Moment,
    ReplayRecord,
    TraceEvent,
    TraceName,
)
from tests.support.reference import Log
from tests.support.reference_views import ReferenceViews


class ReferencePast(ReferenceViews):
    """The verbs of a store that look back."""

    moments: dict[tuple[str, str | None], dict[int, Moment]]
    told: list[tuple[str, TraceEvent]]

    def note_past(self, now: Instant) -> None:
        """Note how queues stand, and each tenant as a whole."""
        self.moments = getattr(self, "moments", {})
        totals: dict[str, list[int]] = {}
        for key, log in self.logs.items():
            figures = self._figures(log)
            self._see((key.tenant, key.name), Moment(now, *figures))
            if not log.queue.holds_dead_letters:
                before = totals.setdefault(key.tenant, [0] * 5)
                totals[key.tenant] = [a + b for a, b in zip(before, figures, strict=True)]
        for key, log in self.logs.items():
            self._born((key.tenant, key.name), log.queue.created_at, now)
        for tenant in totals:
            times = [
                log.queue.created_at
                for key, log in self.logs.items()
                if key.tenant == tenant and not log.queue.holds_dead_letters
            ]
            self._born((tenant, None), min(times), now)
        for tenant, sums in totals.items():
            self._see((tenant, None), Moment(now, *sums))

    def _see(self, what: tuple[str, str | None], moment: Moment) -> None:
        """A minute tells the last change that was seen in it."""
        minutes = self.moments.setdefault(what, {})
        known = minutes.get(moment.at // seconds(60))
        if known is None or msgspec.structs.replace(known, at=moment.at) != moment:
            minutes[moment.at // seconds(60)] = moment

    def _born(self, what: tuple[str, str | None], at: Instant, now: Instant) -> None:
        """What was made in the last two minutes began with nothing."""
        if now - seconds(120) < at <= now:
            self.moments.setdefault(what, {}).setdefault(
                at // seconds(60) - 1, Moment(Instant(min(at, now - seconds(10))), 0, 0, 0, 0, 0)
            )

    def _figures(self, log: Log) -> tuple[int, int, int, int, int]:
        counters = [self.counters(log, group) for group in log.groups.values()]
        return (
            log.last_seq, sum(c[1] for c in counters), sum(c[2] for c in counters), sum(c[3] for c in counters), log.depth,
        )  # fmt: skip

    async def past(self, tenant: str, names: Sequence[str] | None, since: Instant) -> list[list[Moment]]:
        kept = getattr(self, "moments", {})
        wanted = [None] if names is None else [name if QueueKey(name, tenant) in self.logs else "" for name in names]
        return [_since(_told_once(kept.get((tenant, name), {})), since // seconds(60)) for name in wanted]

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        return [
            [one for one in (self.logs[key].failures if key in self.logs else []) if one.seq == seq][-100:]
            for key, seq in places
        ]

    def _as_told(self, log: Log, lease: FinishedLease, seq: int) -> FinishedLease:
        """A lease as one of its messages saw it."""
        if lease.outcome != "retried":
            return lease
        said = [
            answer.result.status
            for answer in log.answers
            if answer.at == lease.settled_at and answer.settlement.seq == seq and answer.settlement.group == lease.group
        ]
        outcomes = {SettleStatus.COMPLETED: "completed", SettleStatus.RETRYING: "retried"}
        return msgspec.structs.replace(lease, outcome=outcomes.get(said[0], "dead") if said else "returned")

    async def deliveries(self, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
        return [
            [
                self._as_told(self.logs[journey.queue], lease, journey.seq)
                for lease in (self.logs[journey.queue].lease_history if journey.queue in self.logs else [])
                if lease.partition == journey.partition and lease.first_seq <= journey.seq <= lease.last_seq
            ]
            for journey in journeys
        ]

    async def lease_times(self, key: QueueKey, since: Instant) -> list[LeaseTime]:
        log = self.log(key)
        told = {(answer.at, answer.settlement.group, answer.settlement.seq) for answer in log.answers}
        return [
            LeaseTime(
                one.group, one.settled_at,
                one.leased_at - log.entries[one.first_seq].created_at if one.attempt == 1 and one.first_seq in log.entries else None,
                one.settled_at - one.leased_at
                if one.outcome != "released" and any(
                    (one.settled_at, one.group, seq) in told for seq in range(one.first_seq, one.last_seq + 1)
                ) else None,
            )
            for one in reversed(log.lease_history[-2000:])
            if one.settled_at >= since
        ]  # fmt: skip

    async def note_trace_events(self, tenant: str, events: Sequence[TraceEvent]) -> None:
        self.told = getattr(self, "told", [])
        for event in events:
            self.told.append((tenant, msgspec.structs.replace(event, position=len(self.told) + 1)))

    def _told(self, tenant: str) -> list[TraceEvent]:
        return [event for whose, event in getattr(self, "told", []) if whose == tenant]

    async def trace_events(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
        return [event for event in self._told(tenant) if event.trace_id == trace_id][:limit]

    async def named_trace_events(
        self, tenant: str, name: str, before: int | None = None, limit: int = 100
    ) -> list[TraceEvent]:
        named = [event for event in self._told(tenant) if event.name == name]
        return [event for event in reversed(named) if before is None or event.position < before][:limit]

    async def trace_names(self, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
        last = {event.name: event.at for event in self._told(tenant)}
        return [TraceName(name, last[name]) for name in sorted(last) if name > after][:limit]

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        log = self.log(key)
        if not (log.queue.holds_dead_letters or self.is_used(key)):
            raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"{key.name} is no dead-letter queue")
        known = [
            one if one.queue is not None and QueueKey(one.queue, key.tenant) in self.logs else _without_queue(one)
            for one in sorted(log.replays, key=lambda one: -one.dead_seq)
        ]
        fitting = [one for one in known if source_queue in (None, one.queue)]
        return [one for one in fitting if before is None or one.dead_seq < before][:limit]

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        log = self.log(key)
        if not (log.queue.holds_dead_letters or self.is_used(key)):
            raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"{key.name} is no dead-letter queue")
        letters = [letter for _, letter in sorted(log.dead.items(), reverse=True)][:limit]
        return [
            Death(one.seq, one.source_queue, one.group, one.reason, one.error, one.attempts, one.failed_at)
            for one in letters
        ]


def replay_record(letter: DeadLetter, queue: str, seq: int, id_: Id, now: Instant) -> ReplayRecord:
    """What is written down of a replay."""
    return ReplayRecord(
        dead_seq=letter.seq, dead_id=letter.id, queue=queue, seq=Seq(seq), id=id_, group=letter.group,
        reason=letter.reason, error=letter.error, attempts=letter.attempts, replayed_at=now,
    )  # fmt: skip


def _told_once(moments: dict[int, Moment]) -> list[tuple[int, Moment]]:
    """By minute, without those that say nothing new: the same as the one before, and as the one after or the last."""
    told = sorted(moments.items())
    figures = [msgspec.structs.astuple(moment)[1:] for _, moment in told]
    return [
        one
        for place, one in enumerate(told)
        if place == 0 or figures[place] != figures[place - 1] or figures[place] != [*figures, figures[place]][place + 1]
    ]


def _since(told: list[tuple[int, Moment]], minute: int) -> list[Moment]:
    """Those from a minute on, after the last one before it."""
    return [one for _, one in [one for one in told if one[0] < minute][-1:] + [one for one in told if one[0] >= minute]]


def _without_queue(one: ReplayRecord) -> ReplayRecord:
    return msgspec.structs.replace(one, queue=None)
