"""A store's verbs, with every call and answer noted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from skep.clock import Instant
from skep.ids import Id
from skep.model import (
    Cleared,
    ClearScope,
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    MessageFilter,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    QueueKey,
    QueueStats,
    Renewal,
    RenewResult,
    Replayed,
    Seq,
    Settlement,
    SettleResult,
    Start,
    StoredMessage,
)
from skep.model.forgetting import SeqRange
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.protocol import Store
from torture.history import Call

PAGE_ROWS = 1_000


class Recorder:
    """A store's verbs, with every call and answer noted."""

    def __init__(self, store: Store, client: str, tick: Callable[[], int] = time.monotonic_ns) -> None:
        self.store = store
        self.client = client
        self.tick = tick
        self.calls: list[Call] = []

    async def _record(self, verb: str, now: Instant, request: Any, call: Any) -> Any:
        started = self.tick()
        try:
            answer = await call
        except BaseException:
            self.calls.append(Call(self.client, verb, started, None, now, request))
            raise
        self.calls.append(Call(self.client, verb, started, self.tick(), now, request, answer))
        return answer

    async def push(self, batches: Sequence[PushBatch], now: Instant) -> list[PushOutcome]:
        answer: list[PushOutcome] = await self._record("push", now, batches, self.store.push(batches, now))
        return answer

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        answer: list[PopResult] = await self._record("pop", now, requests, self.store.pop(requests, now))
        return answer

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """A push that claims for who waits, noted as the push and the pop that it stands for."""
        call = self.store.push_and_pop(batches, requests, now)
        outcomes, popped = await self._record_two("push", batches, requests, now, call)
        return outcomes, popped

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """Settlements that claim for who waits, noted as what they stand for."""
        call = self.store.settle_and_pop(settlements, requests, now)
        results, popped = await self._record_two("settle", settlements, requests, now, call)
        return results, popped

    async def _record_two(
        self, verb: str, first: Any, requests: Sequence[PopRequest], now: Instant, call: Coroutine[Any, Any, Any]
    ) -> Any:
        begun: list[asyncio.Future[tuple[Any, list[PopResult | None]]]] = []

        async def begin() -> Any:
            begun.append(asyncio.ensure_future(call))
            return (await begun[0])[0]

        async def pop() -> list[PopResult | None]:
            return (await begun[0])[1]

        # The first is noted first and begins the call, which takes its first step once the pop is noted, too.
        return tuple(
            await asyncio.gather(self._record(verb, now, first, begin()), self._record("pop", now, requests, pop()))
        )

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        call = self.store.settle(settlements, now)
        answer: list[SettleResult] = await self._record("settle", now, settlements, call)
        return answer

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        answer: list[RenewResult] = await self._record("renew", now, renewals, self.store.renew(renewals, now))
        return answer

    async def transact(self, transactions: Sequence[Transaction], now: Instant) -> list[TransactionOutcome]:
        call = self.store.transact(transactions, now)
        answer: list[TransactionOutcome] = await self._record("transact", now, transactions, call)
        return answer

    async def seek(self, key: QueueKey, group: str, start: Start, now: Instant) -> None:
        await self._record("seek", now, (key, group, start), self.store.seek(key, group, start, now))

    async def clear(self, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
        answer: Cleared = await self._record("clear", now, (key, scope), self.store.clear(key, scope, now))
        return answer

    async def delete_group(self, key: QueueKey, group: str, now: Instant) -> None:
        await self._record("delete_group", now, (key, group), self.store.delete_group(key, group, now))

    async def delete_message(self, key: QueueKey, seq: Seq, now: Instant) -> None:
        await self._record("delete_message", now, (key, seq), self.store.delete_message(key, seq, None, now))

    async def forget(self, key: QueueKey, seq: Seq, now: Instant) -> None:
        step = self.store.forget(key, None, [SeqRange(seq, seq)], Seq(seq - 1), 1, now)
        await self._record("forget_message", now, (key, seq), step)

    async def release(self, delivery: Delivery, now: Instant) -> None:
        request = (delivery.queue, delivery.group, delivery.partition, delivery.token)
        await self._record("release", now, request, self.store.release_lease(*request, now))

    async def replay(self, wanted: DeadLetterFilter, ids: Sequence[Id], until: Seq, now: Instant) -> list[Replayed]:
        """Replay, noting for each dead letter which group gave it up."""
        letters = await self.store.dead_letters(wanted, None, len(ids))
        groups = {letter.seq: letter.group for letter in letters}

        async def replay() -> list[Replayed]:
            return (await self.store.replay(wanted, ids, until, now)).replayed

        answer: list[Replayed] = await self._record("replay", now, (ids, groups), replay())
        return answer

    async def dead(self, key: QueueKey, dead_letter_queue: QueueKey, now: Instant) -> list[DeadLetter]:
        """All dead letters of a queue, page by page."""
        wanted = DeadLetterFilter(queue=dead_letter_queue, source_queue=key.name)
        answer: list[DeadLetter] = await self._record("dead", now, key, self._read_dead(wanted))
        return answer

    async def _read_dead(self, wanted: DeadLetterFilter) -> list[DeadLetter]:
        page = await self.store.dead_letters(wanted, None, PAGE_ROWS)
        letters = list(page)
        while len(page) == PAGE_ROWS:
            page = await self.store.dead_letters(wanted, page[-1].seq, PAGE_ROWS)
            letters += page
        return letters

    async def stats(self, key: QueueKey, now: Instant) -> QueueStats:
        answer: QueueStats = await self._record("stats", now, key, self.store.queue_stats(key, now))
        return answer

    async def log(self, key: QueueKey, now: Instant) -> list[StoredMessage]:
        """The whole log of a queue, page by page."""
        answer: list[StoredMessage] = await self._record("log", now, key, self._read_log(key, now))
        return answer

    async def _read_log(self, key: QueueKey, now: Instant) -> list[StoredMessage]:
        page = await self.store.messages(MessageFilter(queue=key, limit=PAGE_ROWS), now)
        messages = list(page.messages)
        while page.after is not None:
            page = await self.store.messages(MessageFilter(queue=key, limit=PAGE_ROWS, after=page.after), now)
            messages += page.messages
        return messages
