"""One queue as the engine sees it: the lanes of its requests to the store, and the polls that wait for its messages.

Each verb has a lane with at most one store call in flight, so a pop need not wait for the fsync of a push. After the store has
answered, parked polls and timers are told of messages that are or will be ready.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Protocol, TypeVar

from msgspec import Struct

from skep.clock import Clock, Instant
from skep.config import EngineSettings
from skep.engine.batching import Lane, split
from skep.engine.chores import Chores
from skep.engine.polls import Line, Parking, Poll, Safety, Waiters
from skep.engine.timers import Timers
from skep.model import (
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    QueueKey,
    Renewal,
    RenewResult,
    Settlement,
    SettleResult,
)
from skep.store.protocol.pop import PopVerbs
from skep.store.protocol.push import PushVerbs
from skep.store.protocol.settle import SettleVerbs

GiveBack = Callable[[PopRequest, PopResult], None]
OnDead = Callable[[Sequence[Settlement], Sequence[SettleResult]], None]


Claims = list[tuple["Poll[LogicalQueue]", PopRequest]]
"""Sleeping polls, and the request to claim messages for each."""
T = TypeVar("T")


class Settlements(Struct, frozen=True):
    """One call's settlements; ``plain`` when all are acks."""

    settlements: list[Settlement]
    plain: bool


class PushAndSettle(PushVerbs, SettleVerbs, Protocol):
    """The store's verbs for lanes, besides popping."""


class Surroundings(Struct):
    """The parts that all logical queues of an engine share."""

    store: PushAndSettle
    opened: PopVerbs
    clock: Clock
    timers: Timers
    chores: Chores
    settings: EngineSettings
    give_back: GiveBack
    on_dead: OnDead
    safety: Safety


class LogicalQueue:
    """All calls of this server on one queue go through this object."""

    __slots__ = (
        "_chores",
        "_shared",
        "is_used",
        "key",
        "message_bytes",
        "parking",
        "pops",
        "pushes",
        "renewals",
        "settles",
        "used_at",
        "watched_until",
    )

    def __init__(self, key: QueueKey, shared: Surroundings) -> None:
        limits = shared.settings.limits
        self.key = key
        self.message_bytes = 0
        """The size of the largest recent message; 0 when none was popped."""
        self.used_at = shared.clock.now()
        """When the registry last saw this object in use."""
        self.is_used = True
        self.watched_until = Instant(0)
        self._shared = shared
        self._chores = shared.chores
        self.pushes: Lane[tuple[PushBatch, Instant | None], PushOutcome] = Lane("push", self._push, limits)
        self.pops: Lane[PopRequest, PopResult] = Lane("pop", self._pop, limits, abandoned=shared.give_back)
        self.settles: Lane[Settlements, list[SettleResult]] = Lane("settle", self._settle, limits)
        self.renewals: Lane[list[Renewal], list[RenewResult]] = Lane("renew", self._renew, limits)
        self.parking: Parking[LogicalQueue] = Parking(
            lambda: Waiters(self, self._shared.clock, self._shared.timers, self._shared.safety)
        )

    @property
    def idle(self) -> bool:
        """Whether no call waits here, so that this object may be dropped."""
        return self.pushes.idle and self.pops.idle and self.settles.idle and self.renewals.idle and not self.parking

    @property
    def wait_seconds(self) -> float:
        """The longest expected wait of a push, pop or settlement that arrives now."""
        return max(self.pushes.wait_seconds, self.pops.wait_seconds, self.settles.wait_seconds)

    def gave(self, largest_bytes: int) -> None:
        """Note the largest message of a pop. The known size shrinks slowly while messages are smaller."""
        known = self.message_bytes * 7 // 8
        self.message_bytes = largest_bytes if largest_bytes > known else known or 1

    def pushed(self, batches: Sequence[PushBatch], served: Collection[Line] = ()) -> None:
        """Wake polls for pushed messages, except in lines that the push itself ``served``."""
        if not self.parking.has_lines:
            return
        messages = [message for batch in batches for message in batch.messages if message.queue == self.key]
        self.parking.wake(len(messages), partitions={message.partition for message in messages}, served=served)

    def wake(self, group: str | None = None) -> None:
        """Wake a poll of each line, as messages may have become ready."""
        self.parking.wake(1, group)

    async def drained(self) -> None:
        """Return once no store call is under way."""
        for lane in (self.pushes, self.pops, self.settles, self.renewals):
            await lane.drained()

    # Polls and timers are told here and not by the caller, who may have been cancelled meanwhile.

    async def _push(self, requests: list[tuple[PushBatch, Instant | None]]) -> Sequence[PushOutcome]:
        shared = self._shared
        now = shared.clock.now()
        batches = [batch for batch, _ in requests]
        claims = self._offered(batches)
        served: Collection[Line] = ()
        create = shared.settings.create_queues_on_push
        if claims:
            outcomes, served = await self._serving(
                claims, lambda wanted: shared.opened.push_and_pop(batches, wanted, now, create)
            )
        else:
            outcomes = await shared.store.push(batches, now, create)
        self._chores.pushed(self.key, now, earliest([deliver_at for _, deliver_at in requests]))
        self.pushed(batches, served)
        return outcomes

    def _offered(self, batches: Sequence[PushBatch]) -> Claims:
        """The sleeping polls that the push's own transaction claims messages for, with their requests."""
        if not self.parking:
            return []
        partitions = [m.partition for batch in batches for m in batch.messages if m.deliver_at is None]
        return _claims(self.parking.offered(len(partitions), set(partitions)) if partitions else [])

    def _owed(self, settlements: Sequence[Settlement]) -> Claims:
        """The first poll in each line that waits for these partitions; the settling transaction claims messages for it."""
        groups = {settlement.group for settlement in settlements}
        if not self.parking or len(groups) != 1:
            return []
        (group,) = groups
        return _claims(self.parking.offered(1, {settlement.partition for settlement in settlements}, group))

    async def _serving(
        self, claims: Claims, call: Callable[[list[PopRequest]], Awaitable[tuple[T, list[PopResult | None]]]]
    ) -> tuple[T, Collection[Line]]:
        """Make a store call that also claims messages for polls; returns its answer and the lines that were served."""
        polls = [poll for poll, _ in claims]
        requests = [request for _, request in claims]
        popped: Sequence[PopResult | None] = [None] * len(polls)
        try:
            done, popped = await call(requests)
        finally:
            served = self._hand_over(polls, requests, popped)
        return done, served

    def _hand_over(
        self,
        polls: Sequence[Poll[LogicalQueue]],
        requests: Sequence[PopRequest],
        popped: Sequence[PopResult | None],
    ) -> Collection[Line]:
        """Give each poll its claimed messages; returns the lines that were served, also with nothing."""
        looked = [(poll, request, found) for poll, request, found in zip(polls, requests, popped, strict=True) if found]
        results = self._leased([request for _, request, _ in looked], [found for _, _, found in looked])
        found_for = dict(zip((poll for poll, _, _ in looked), results, strict=True))
        served = set[Line]()
        for poll, request in zip(polls, requests, strict=True):
            found = found_for.get(poll)
            if not poll.claimed(found):
                if found is not None and found.deliveries:
                    self._shared.give_back(request, found)
            elif found is not None:
                served.add((poll.group, poll.partition))
        return served

    async def _pop(self, requests: list[PopRequest]) -> Sequence[PopResult]:
        return self._leased(requests, await self._shared.opened.pop(requests, self._shared.clock.now()))

    def _leased(self, requests: Sequence[PopRequest], results: Sequence[PopResult]) -> Sequence[PopResult]:
        """The results of the pops of one call. Timers are set for the lease deadlines, when the messages may be ready again."""
        for request, result in zip(requests, results, strict=True):
            if result.deliveries:
                deadline = result.deliveries[0].lease_deadline
                self._chores.leased(self.key, deadline)
                self.parking.ready_at(request.group, deadline)
        return results if len(results) <= 1 else _as_of_the_last(requests, results)

    async def _settle(self, calls: list[Settlements]) -> Sequence[list[SettleResult]]:
        now = self._shared.clock.now()
        asked = [call.settlements for call in calls]
        settlements = asked[0] if len(asked) == 1 else list(chain.from_iterable(asked))
        claims = self._owed(settlements)
        served: Collection[Line] = ()
        if claims:
            opened = self._shared.opened
            results, served = await self._serving(
                claims, lambda wanted: opened.settle_and_pop(settlements, wanted, now)
            )
        else:
            results = await self._shared.store.settle(settlements, now)
        self._chores.settled(self.key, now)
        self.settled(settlements, results, served)
        if not all(call.plain for call in calls):
            self._shared.on_dead(settlements, results)
        return [results] if len(asked) == 1 else split(results, asked)

    def settled(
        self, settlements: Sequence[Settlement], results: Sequence[SettleResult], served: Collection[Line] = ()
    ) -> None:
        """Wake polls for freed partitions, now and when a retry is due, except in lines that were ``served``."""
        freed: dict[str, Instant | None] = {}
        for settlement, result in zip(settlements, results, strict=True):
            if result.frees:
                freed[settlement.group] = earliest((freed.get(settlement.group), result.retry_at))
        for group, retry_at in freed.items():
            self.parking.wake(1, group, served=served)
            if retry_at is not None:
                self.parking.ready_at(group, retry_at)

    async def _renew(self, calls: list[list[Renewal]]) -> Sequence[list[RenewResult]]:
        renewals = calls[0] if len(calls) == 1 else list(chain.from_iterable(calls))
        results = await self._shared.store.renew(renewals, self._shared.clock.now())
        for renewal, result in zip(renewals, results, strict=True):
            if result.deadline is not None:  # it may be earlier than before
                self._chores.leased(self.key, result.deadline)
                self.parking.ready_at(renewal.group, result.deadline)
        return [results] if len(calls) == 1 else split(results, calls)


def _claims(polls: Iterable[Poll[LogicalQueue]]) -> Claims:
    return [(poll, request) for poll in polls if (request := poll.claim()) is not None]


def _as_of_the_last(requests: Sequence[PopRequest], results: Sequence[PopResult]) -> list[PopResult]:
    """The results with ``next_ready_at`` and ``more`` of the last pop, as later pops of a call may take what earlier ones left."""
    last = {(request.group, request.partition): result for request, result in zip(requests, results, strict=True)}
    known = [last[request.group, request.partition] for request in requests]
    return [
        result if result is end else PopResult(result.deliveries, end.next_ready_at, end.more)
        for result, end in zip(results, known, strict=True)
    ]


def earliest(instants: Iterable[Instant | None]) -> Instant | None:
    """The earliest instant that is not None."""
    known = [instant for instant in instants if instant is not None]
    return min(known) if known else None
