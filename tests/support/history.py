"""Recorded histories: calls and answers with their times, from any number of clients, and what they must not show.

A call took effect at some moment between ``started`` and ``ended`` (never known exactly), or, when it has no answer,
perhaps not at all. `check` reports only what no order of those moments could explain. Times are of one monotonic clock;
``now`` is what the store was given. The rules themselves are in `history_rules`, one function per promise.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from msgspec import structs

from skep.clock import Instant
from skep.ids import Id
from skep.model import (
    ClearScope,
    DeadLetterFilter,
    Delivery,
    MessageFilter,
    NewMessage,
    Ordering,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    QueueStats,
    Renewal,
    RenewResult,
    Replayed,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
    Start,
    StoredMessage,
    Token,
)
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.protocol import Store

GroupKey = tuple[QueueKey, str]


@dataclass(frozen=True)
class Call:
    """One call: who asked what and when, and the answer. ``ended`` None means that no answer came."""

    client: str
    verb: str
    started: int
    ended: int | None
    now: Instant
    request: Any
    answer: Any = None

    def is_before(self, other: Call) -> bool:
        """Whether it certainly took effect before the other."""
        return self.ended is not None and self.ended < other.started

    def may_precede(self, other: Call) -> bool:
        """Whether it may have taken effect before the other."""
        return not other.is_before(self)


@dataclass(frozen=True)
class Violation:
    """A broken promise, told so that a person can find it in the history."""

    promise: str
    text: str


@dataclass(frozen=True)
class Pushed:
    """One message of a push, with its result when there was an answer."""

    call: Call
    batch: int
    message: NewMessage
    id: Id
    result: PushResult | None

    @property
    def is_stored(self) -> bool:
        return self.result is not None and self.result.status is PushStatus.STORED

    @property
    def is_refused(self) -> bool:
        return self.result is not None and self.result.status is PushStatus.REFUSED


@dataclass(frozen=True)
class Given:
    """One delivery of a pop."""

    call: Call
    request: PopRequest
    delivery: Delivery

    @property
    def group(self) -> GroupKey:
        return (self.delivery.queue, self.delivery.group)


@dataclass(frozen=True)
class Settled:
    """One settlement, with its result when there was an answer."""

    call: Call
    settlement: Settlement
    result: SettleResult | None

    @property
    def group(self) -> GroupKey:
        return (self.settlement.queue, self.settlement.group)

    @property
    def is_final(self) -> bool:
        """Whether the message was certainly settled by it."""
        done = (SettleStatus.COMPLETED, SettleStatus.DEAD, SettleStatus.DISCARDED)
        return self.result is not None and self.result.status in done

    @property
    def took_effect(self) -> bool:
        return self.result is not None and self.result.status is not SettleStatus.REFUSED and not self.result.repeated

    @property
    def may_have_taken_effect(self) -> bool:
        return self.result is None or self.took_effect


@dataclass
class History:
    """Calls of all clients, and the settings of the queues they used (those not named have the defaults)."""

    calls: list[Call]
    settings: dict[QueueKey, QueueSettings] = field(default_factory=dict)

    def settings_of(self, queue: QueueKey) -> QueueSettings:
        return self.settings.get(queue, QueueSettings())

    def is_ordered(self, queue: QueueKey) -> bool:
        return self.settings_of(queue).ordering is not Ordering.UNORDERED

    def verb(self, name: str) -> list[Call]:
        return self._by_verb.get(name, [])

    @cached_property
    def _by_verb(self) -> dict[str, list[Call]]:
        index = defaultdict(list)
        for call in self.calls:
            index[call.verb].append(call)
        return index

    @cached_property
    def pushes(self) -> list[Pushed]:
        found = []
        for call in self.calls:
            if call.verb in ("push", "accept"):
                batches: Sequence[PushBatch] = call.request
                outcomes: Sequence[PushOutcome] | None = call.answer if call.verb == "push" else None
                found += _pushed(call, batches, outcomes)
            elif call.verb == "transact":
                transactions: Sequence[Transaction] = call.request
                answers: Sequence[TransactionOutcome] | None = call.answer
                batches = [transaction.push for transaction in transactions]
                found += _pushed(
                    call,
                    batches,
                    None if answers is None else [_as_push(a, b) for a, b in zip(answers, batches, strict=True)],
                )
        return found

    @cached_property
    def gives(self) -> list[Given]:
        pops: list[Call] = sorted(self.verb("pop"), key=lambda call: call.started)
        return [
            Given(call, request, delivery)
            for call in pops
            for request, result in zip(call.request, call.answer or (), strict=False)
            for delivery in _deliveries(result)
        ]

    @cached_property
    def settles(self) -> list[Settled]:
        found: list[Settled] = []
        for call in self.calls:
            if call.verb == "settle":
                results: Sequence[SettleResult | None] = call.answer or [None] * len(call.request)
                found += self._by_message(
                    [Settled(call, one, result) for one, result in zip(call.request, results, strict=True)], found
                )
            elif call.verb == "transact":
                answers: Sequence[TransactionOutcome | None] = call.answer or [None] * len(call.request)
                for transaction, answer in zip(call.request, answers, strict=True):
                    found += _settled(call, transaction, answer)
        return found

    def _by_message(self, settles: list[Settled], before: Sequence[Settled]) -> list[Settled]:
        """What one call settled, an ack of a lease as acks of those of its messages that neither the call nor one before it named."""
        named = [s for s in settles if s.settlement.outcome is not Outcome.ACK_THROUGH]
        whole = [s for s in settles if s.settlement.outcome is Outcome.ACK_THROUGH]
        if not whole:
            return named
        known = {(s.settlement.token, s.settlement.seq) for s in (*before, *named) if s.took_effect}
        for settled in whole:
            said = settled.settlement
            held = [
                given.delivery.seq
                for given in self.gives_under.get(said.token, ())
                if (given.delivery.partition, given.group) == (said.partition, settled.group)
                and given.delivery.seq <= said.seq
                and (said.token, given.delivery.seq) not in known
            ]
            named += [
                Settled(settled.call, structs.replace(said, seq=seq, outcome=Outcome.ACK), settled.result)
                for seq in held
            ]
        return named

    @cached_property
    def settles_of(self) -> dict[tuple[GroupKey, int], list[Settled]]:
        index: dict[tuple[GroupKey, int], list[Settled]] = defaultdict(list)
        for settled in self.settles:
            index[settled.group, settled.settlement.seq].append(settled)
        return index

    @cached_property
    def gives_of(self) -> dict[tuple[GroupKey, int], list[Given]]:
        """All deliveries of a message to a group."""
        index: dict[tuple[GroupKey, int], list[Given]] = defaultdict(list)
        for given in self.gives:
            index[given.group, given.delivery.seq].append(given)
        return index

    @cached_property
    def gives_under(self) -> dict[Token, list[Given]]:
        """All deliveries under a token."""
        index = defaultdict(list)
        for given in self.gives:
            index[given.delivery.token].append(given)
        return index

    @cached_property
    def gives_in(self) -> dict[tuple[GroupKey, str], list[Given]]:
        """All deliveries of a partition to a group."""
        index = defaultdict(list)
        for given in self.gives:
            index[given.group, given.delivery.partition].append(given)
        return index

    @cached_property
    def stored_in(self) -> dict[tuple[QueueKey, str], list[Pushed]]:
        """What was certainly stored in a partition."""
        index = defaultdict(list)
        for pushed in self.pushes:
            if pushed.is_stored:
                index[pushed.message.queue, pushed.message.partition].append(pushed)
        return index

    @cached_property
    def unanswered_pops(self) -> int:
        return sum(call.ended is None for call in self.verb("pop"))

    @cached_property
    def resets(self) -> dict[QueueKey, list[tuple[str | None, Call]]]:
        """Calls that move groups by hand: seeks of one, clearings of all."""
        index = defaultdict(list)
        for call in self.calls:
            if call.verb == "seek":
                queue, group, _ = call.request
                index[queue].append((group, call))
            elif call.verb == "clear" and call.request[1] is not ClearScope.SCHEDULED:
                index[call.request[0]].append((None, call))
        return index

    def may_be_moved(self, group: GroupKey, call: Call) -> bool:
        """Whether the group may have been moved by hand before the call."""
        return any(
            name in (None, group[1]) and reset.may_precede(call) for name, reset in self.resets.get(group[0], ())
        )

    def epoch(self, group: GroupKey, call: Call) -> int | None:
        """How often the group had been moved by hand before the call; None when that cannot be told."""
        epoch = 0
        for name, reset in self.resets.get(group[0], ()):
            if name not in (None, group[1]):
                continue
            if reset.is_before(call):
                epoch += 1
            elif not call.is_before(reset):
                return None
        return epoch


def _deliveries(result: PopResult | None) -> list[Delivery]:
    return result.deliveries if result is not None else []


def _pushed(call: Call, batches: Sequence[PushBatch], outcomes: Sequence[PushOutcome] | None) -> list[Pushed]:
    found = []
    for number, batch in enumerate(batches):
        results: Sequence[PushResult | None] = outcomes[number].results if outcomes else [None] * len(batch.messages)
        if outcomes and outcomes[number].recorded is not None:
            # A receipt says that it was pushed before; these messages were not.
            results = [PushResult(PushStatus.REFUSED, id_) for id_ in batch.ids]
        found += [
            Pushed(call, number, message, id_, result)
            for message, id_, result in zip(batch.messages, batch.ids, results, strict=True)
        ]
    return found


def _as_push(outcome: TransactionOutcome, batch: PushBatch) -> PushOutcome:
    """The pushes of a transaction that did not happen did not happen either."""
    if outcome.committed:
        return outcome.pushed
    return PushOutcome([PushResult(PushStatus.REFUSED, id_) for id_ in batch.ids], {})


def _settled(call: Call, transaction: Transaction, answer: TransactionOutcome | None) -> list[Settled]:
    if answer is None:
        return [Settled(call, one, None) for one in transaction.settlements]
    if not answer.committed:
        return [Settled(call, one, SettleResult(SettleStatus.REFUSED)) for one in transaction.settlements]
    return [Settled(call, one, r) for one, r in zip(transaction.settlements, answer.settled, strict=True)]


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

    async def replay(self, wanted: DeadLetterFilter, ids: Sequence[Id], until: Seq, now: Instant) -> list[Replayed]:
        """Replay, noting for each dead letter which group gave it up."""
        letters = await self.store.dead_letters(wanted, None, len(ids))
        groups = {letter.seq: letter.group for letter in letters}

        async def replay() -> list[Replayed]:
            return (await self.store.replay(wanted, ids, until, now)).replayed

        answer: list[Replayed] = await self._record("replay", now, (ids, groups), replay())
        return answer

    async def stats(self, key: QueueKey, now: Instant) -> QueueStats:
        answer: QueueStats = await self._record("stats", now, key, self.store.queue_stats(key, now))
        return answer

    async def log(self, key: QueueKey, now: Instant) -> list[StoredMessage]:
        """The whole log of a queue, page by page."""
        answer: list[StoredMessage] = await self._record("log", now, key, self._read_log(key, now))
        return answer

    async def _read_log(self, key: QueueKey, now: Instant) -> list[StoredMessage]:
        page = await self.store.messages(MessageFilter(queue=key, limit=1000), now)
        messages = list(page.messages)
        while page.after is not None:
            page = await self.store.messages(MessageFilter(queue=key, limit=1000, after=page.after), now)
            messages += page.messages
        return messages


def check(history: History) -> list[Violation]:
    """All promises that the history shows to be broken."""
    from tests.support.history_rules import RULES

    return [violation for rule in RULES for violation in rule(history)]
