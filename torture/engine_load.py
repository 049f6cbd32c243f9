"""The load on engines in the process of its clients, without HTTP: group commit, waiting pops, timers, caches and encryption, on a real loop.

The steps are those on a store, and some that only an engine has. There are no operations (202): `tests.simulation` has these, and the spool.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from msgspec import structs

from skep.clock import Instant, SystemClock
from skep.engine import Engine
from skep.engine.forgetting import ForgetReport
from skep.model import (
    Cleared,
    ClearScope,
    DeadLetter,
    DeadLetterFilter,
    DeletedMessage,
    GroupStats,
    MessageFilter,
    MessagePage,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushStatus,
    Queue,
    QueueKey,
    QueueSettings,
    QueueStats,
    Renewal,
    RenewResult,
    Seq,
    Settlement,
    SettleResult,
    Start,
    Token,
)
from skep.model.forgetting import ForgetFilter, SeqRange
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.protocol import Store
from torture import server_steps
from torture.history import NEVER, Call, History
from torture.load_client import LoadClient
from torture.queues import NAMESPACE
from torture.resolve import resolved
from torture.store_caller import StoreCaller
from torture.store_load import KINDS, STORE_STEPS, Steps, StoreLoad, run_in_process

SLACK_US = 50_000
"""How far an engine's time may be from ours: with PostgreSQL it is the database's."""


class EngineVerbs:
    """An engine, by the names of a store's verbs. It takes its own time, and does chores by itself.

    Some pops wait. A push that claims for somebody who waits is one beside a pop that does. Some plain pushes are buffered.
    """

    def __init__(self, engine: Engine, seed: str) -> None:
        self.engine = engine
        self._chance = random.Random(seed)

    async def create_queue(self, key: QueueKey, settings: QueueSettings, _: Instant) -> Queue:
        return await self.engine.create_queue(key, settings)

    async def push(self, batches: Sequence[PushBatch], _: Instant) -> list[PushOutcome]:
        [batch] = batches
        is_plain = all(message.transaction_id is None and message.deliver_at is None for message in batch.messages)
        push = self.engine.push_buffered if is_plain and self._chance.random() < 0.2 else self.engine.push
        return [_told(batch, await push(batch.messages))]

    async def pop(self, requests: Sequence[PopRequest], _: Instant) -> list[PopResult]:
        [request] = requests
        wait_seconds = self._chance.choice((0, 0, 0.05, 0.3))
        if not request.queue.name:
            return [await self.engine.pop_matching(request, namespace=NAMESPACE, wait_seconds=wait_seconds)]
        return [await self.engine.pop(request, wait_seconds=wait_seconds)]

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[PushOutcome], list[PopResult]]:
        [request] = requests
        popped, outcomes = await asyncio.gather(
            self.engine.pop(request, wait_seconds=0.3), self.push(batches, now)
        )  # the pop begins first, and is parked when there is nothing
        return outcomes, [popped]

    async def settle(self, settlements: Sequence[Settlement], _: Instant) -> list[SettleResult]:
        return await self.engine.settle(settlements)

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], _: Instant
    ) -> tuple[list[SettleResult], list[PopResult]]:
        [request] = requests
        wait_seconds = self._chance.choice((0, 0.05, 0.3))
        results, popped = await self.engine.settle_and_pop(settlements, request, wait_seconds=wait_seconds)
        return results, [popped]

    async def transact(self, transactions: Sequence[Transaction], _: Instant) -> list[TransactionOutcome]:
        [transaction] = transactions
        outcome = await self.engine.transact(transaction.settlements, transaction.push.messages)
        _told(transaction.push, outcome.pushed)
        return [outcome]

    async def renew(self, renewals: Sequence[Renewal], _: Instant) -> list[RenewResult]:
        return await self.engine.renew(renewals)

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, _: Instant) -> bool:
        return await self.engine.groups.release_lease(key, group, partition, token)

    async def seek(self, key: QueueKey, group: str, start: Start, _: Instant) -> GroupStats:
        return await self.engine.groups.seek(key, group, start)

    async def clear(self, key: QueueKey, scope: ClearScope, _: Instant) -> Cleared:
        return await self.engine.clear(key, scope)

    async def delete_group(self, key: QueueKey, group: str, _: Instant) -> bool:
        return await self.engine.groups.delete(key, group)

    async def delete_message(self, key: QueueKey, seq: Seq, id_: None, _: Instant) -> DeletedMessage:
        return await self.engine.delete_message(key, seq, id_)

    async def forget(
        self, key: QueueKey, log: None, ranges: Sequence[SeqRange], after: Seq, limit: int, _: Instant
    ) -> ForgetReport:
        del after, limit
        return await self.engine.forgetting.forget(ForgetFilter(queue=key, log=log, ranges=list(ranges)))

    async def queue_stats(self, key: QueueKey, _: Instant) -> QueueStats:
        return await self.engine.browse.queue_stats(key)

    async def messages(self, wanted: MessageFilter, _: Instant) -> MessagePage:
        return await self.engine.browse.messages(wanted)

    async def dead_letters(self, wanted: DeadLetterFilter, after: Seq | None, limit: int) -> Sequence[DeadLetter]:
        return await self.engine.dead_letters.page(wanted, after=after, limit=limit)

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> None:
        """An engine does its chores when they are due."""

    expire = retain = promote


def _told(batch: PushBatch, outcome: PushOutcome) -> PushOutcome:
    """The outcome of a push, whose batch takes the ids of the engine, but for duplicates, whose ids are another message's."""
    for place, result in enumerate(outcome.results):
        if result.status is not PushStatus.DUPLICATE:
            batch.ids[place] = result.id
    return outcome


async def rotate(client: LoadClient[StoreCaller]) -> None:
    """Give the encrypted queue a new key."""
    await cast(EngineVerbs, client.caller.recorder.store).engine.encryption.rotate(client.queues.of_kind["sealed"].key)


ENGINE_STEPS: Steps = {
    **{name: step for name, step in STORE_STEPS.items() if name != "chores"},
    "push_burst": (3, server_steps.push_burst),
    "pop_namespace": (4, server_steps.pop_namespace),
    "rotate": (1, rotate),
}


async def run_on_engines(clients: int, steps: int, *engines: Engine, seed: int = 1) -> History:
    """All clients at once, shared out to the engines, which have master keys and no admission."""
    load = StoreLoad(clients, steps, seed, (*KINDS, "sealed", "typed"), ENGINE_STEPS)
    began = (time.monotonic_ns(), SystemClock().now())
    stores = [cast(Store, EngineVerbs(engine, f"{seed}/engine{number}")) for number, engine in enumerate(engines)]
    history = await run_in_process(load, *stores)
    return replace(history, calls=[_timed(call, *began) for call in resolved(history.calls)])


def _timed(call: Call, tick: int, at: Instant) -> Call:
    """The call with the times that the engine may have had: it reads its clock somewhere between call and answer."""
    since, until = (at + (one - tick) // 1_000 for one in (call.started, call.last_tick))
    return structs.replace(call, now=Instant(since - SLACK_US), until=Instant(min(until + SLACK_US, NEVER)))
