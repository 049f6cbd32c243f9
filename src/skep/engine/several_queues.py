"""Calls over several queues. They use lanes of their own, and are merged with each other. Each call is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from skep.clock import Clock, Instant
from skep.config import EngineSettings
from skep.engine.announcer import Announcer
from skep.engine.batching import Lane, split
from skep.engine.logical_queue import PushAndSettle, Settlements
from skep.model import (
    PushBatch,
    PushOutcome,
    Renewal,
    RenewResult,
    SettleResult,
)
from skep.model.transaction import Transaction, TransactionOutcome


class SeveralQueues:
    """The lanes of calls that touch more than one queue, or settle and push at once."""

    def __init__(self, store: PushAndSettle, clock: Clock, settings: EngineSettings, announcer: Announcer) -> None:
        limits = settings.limits
        self._store = store
        self._clock = clock
        self._create_queues = settings.create_queues_on_push
        self._announcer = announcer
        self.pushes: Lane[tuple[PushBatch, Instant | None], PushOutcome] = Lane("push", self._push, limits)
        self.settles: Lane[Settlements, list[SettleResult]] = Lane("settle", self._settle, limits)
        self.renewals: Lane[list[Renewal], list[RenewResult]] = Lane("renew", self._renew, limits)
        self.transactions: Lane[tuple[Transaction, Instant | None], TransactionOutcome] = Lane(
            "transact", self._transact, limits
        )

    async def drained(self) -> None:
        """Return once no store call is under way."""
        for lane in (self.pushes, self.settles, self.renewals, self.transactions):
            await lane.drained()

    async def _push(self, requests: list[tuple[PushBatch, Instant | None]]) -> Sequence[PushOutcome]:
        batches = [batch for batch, _ in requests]
        outcomes = await self._store.push(batches, self._clock.now(), self._create_queues)
        for batch, deliver_at in requests:
            self._announcer.pushed(batch, deliver_at)
        return outcomes

    async def _settle(self, calls: list[Settlements]) -> Sequence[list[SettleResult]]:
        asked = [call.settlements for call in calls]
        settlements = list(chain.from_iterable(asked))
        results = await self._store.settle(settlements, self._clock.now())
        self._announcer.settled(settlements, results)
        if not all(call.plain for call in calls):
            self._announcer.died(settlements, results)
        return split(results, asked)

    async def _renew(self, calls: list[list[Renewal]]) -> Sequence[list[RenewResult]]:
        results = await self._store.renew(list(chain.from_iterable(calls)), self._clock.now())
        return split(results, calls)

    async def _transact(self, requests: list[tuple[Transaction, Instant | None]]) -> Sequence[TransactionOutcome]:
        transactions = [transaction for transaction, _ in requests]
        outcomes = await self._store.transact(transactions, self._clock.now(), self._create_queues)
        for (transaction, deliver_at), outcome in zip(requests, outcomes, strict=True):
            if outcome.committed and not outcome.repeated:
                self._announcer.settled(transaction.settlements, outcome.settled)
                self._announcer.died(transaction.settlements, outcome.settled)
                self._announcer.pushed(transaction.push, deliver_at)
        return outcomes
