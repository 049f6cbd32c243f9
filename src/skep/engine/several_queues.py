"""Calls over several queues: they belong to no queue's lane, are merged among themselves, and each is one transaction."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Sequence
from itertools import chain
from typing import Protocol

from skep.clock import Clock, Instant
from skep.config import EngineSettings
from skep.engine.announcer import Announcer
from skep.engine.batching import Lane, split
from skep.model import (
    PushBatch,
    PushOutcome,
    Renewal,
    RenewResult,
    Settlement,
    SettleResult,
)
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.protocol.push import PushVerbs
from skep.store.protocol.settle import SettleVerbs


class PushAndSettle(PushVerbs, SettleVerbs, Protocol):
    """What goes to several queues at once."""


class SeveralQueues:
    """The lanes of calls that touch more than one queue, or settle and push at once."""

    def __init__(self, store: PushAndSettle, clock: Clock, settings: EngineSettings, announcer: Announcer) -> None:
        limits = settings.limits
        self._store = store
        self._clock = clock
        self._create_queues = settings.create_queues_on_push
        self._announcer = announcer
        self._push_lane: Lane[tuple[PushBatch, Instant | None], PushOutcome] = Lane("push", self._push, limits)
        self._settle_lane: Lane[list[Settlement], list[SettleResult]] = Lane("settle", self._settle, limits)
        self._renew_lane: Lane[list[Renewal], list[RenewResult]] = Lane("renew", self._renew, limits)
        self._transact_lane: Lane[tuple[Transaction, Instant | None], TransactionOutcome] = Lane(
            "transact", self._transact, limits
        )

    @property
    def push_wait_seconds(self) -> float:
        """How long a push that comes now would wait."""
        return self._push_lane.wait_seconds

    @property
    def settle_wait_seconds(self) -> float:
        """The same of settlements."""
        return self._settle_lane.wait_seconds

    def push(self, batch: PushBatch, size_bytes: int, deliver_at: Instant | None) -> Future[PushOutcome]:
        """Append a batch."""
        return self._push_lane.submit((batch, deliver_at), len(batch.ids), size_bytes)

    def settle(self, settlements: list[Settlement]) -> Future[list[SettleResult]]:
        """Settle each message on its own merits."""
        return self._settle_lane.submit(settlements, len(settlements))

    def renew(self, renewals: list[Renewal]) -> Future[list[RenewResult]]:
        """Keep leases."""
        return self._renew_lane.submit(renewals, len(renewals))

    def transact(
        self, transaction: Transaction, size_bytes: int, deliver_at: Instant | None
    ) -> Future[TransactionOutcome]:
        """Settle, push and record, whole or not at all."""
        messages = len(transaction.settlements) + len(transaction.push.ids)
        messages += len(transaction.effects) + len(transaction.receipts)
        return self._transact_lane.submit((transaction, deliver_at), messages, size_bytes)

    async def drained(self) -> None:
        """Return once no store call is under way."""
        for lane in (self._push_lane, self._settle_lane, self._renew_lane, self._transact_lane):
            await lane.drained()

    async def _push(self, requests: list[tuple[PushBatch, Instant | None]]) -> Sequence[PushOutcome]:
        batches = [batch for batch, _ in requests]
        outcomes = await self._store.push(batches, self._clock.now(), self._create_queues)
        for batch, deliver_at in requests:
            self._announcer.pushed(batch, deliver_at)
        return outcomes

    async def _settle(self, calls: list[list[Settlement]]) -> Sequence[list[SettleResult]]:
        settlements = list(chain.from_iterable(calls))
        results = await self._store.settle(settlements, self._clock.now())
        self._announcer.settled(settlements, results)
        self._announcer.died(settlements, results)
        return split(results, calls)

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
