"""What tests drive a store with: short verbs, a clock that stands still, and a check of the account after each step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from skep.clock import Instant, ManualClock, seconds
from skep.ids import Id, IdMint
from skep.model import (
    QUEUE_MODE_GROUP,
    WHOLE_LEASE,
    Cleared,
    ClearScope,
    DeadLetter,
    DeadLetterFilter,
    DeletedMessage,
    Delivery,
    GroupStats,
    MessageFilter,
    MessagePage,
    NewMessage,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    QueueStats,
    Renewal,
    RenewResult,
    Replayed,
    Retry,
    Seq,
    Settlement,
    SettleResult,
    Start,
    Token,
)
from skep.model.chores import Chore
from skep.model.forgetting import ForgetStep, runs_of
from skep.model.record import Effect, EntityEvent, EntityKey, EntityState, NewEvent, Receipt, ReceiptKey
from skep.model.transaction import Transaction, TransactionOutcome, fingerprint_of
from skep.store.protocol import Store

PLENTY = 1000


class Driver:
    """One tenant's view of a store. After each verb that changes something, I12 and I7 are checked for every group.

    Without ``checks`` they are not, for tests of what a verb costs or waits for.
    """

    def __init__(self, store: Store, clock: ManualClock, tenant: str, *, checks: bool = True) -> None:
        self.store = store
        self.checks = checks
        self.clock = clock
        self.tenant = tenant
        self.mint = IdMint(clock)
        self._progress: dict[tuple[int, str, Instant], int] = {}
        self._checking = asyncio.Lock()

    @property
    def now(self) -> Instant:
        return self.clock.now()

    def later(self, by_seconds: float) -> Instant:
        """Return an instant to come."""
        return Instant(self.now + seconds(by_seconds))

    def key(self, name: str = "q") -> QueueKey:
        return QueueKey(name, self.tenant)

    def token(self) -> Token:
        return Token(bytes(self.mint.mint()))

    # queues

    async def create(self, name: str = "q", **settings: Any) -> Queue:
        return await self.store.create_queue(self.key(name), QueueSettings(**settings), self.now)

    async def update(self, name: str = "q", **changes: Any) -> Queue:
        queue = await self.store.update_queue(self.key(name), QueueChanges(**changes), self.now)
        await self.check_accounts()
        return queue

    async def delete(self, name: str = "q") -> bool:
        return await self.store.delete_queue(self.key(name), self.now)

    # push

    def message(self, payload: str | bytes, queue: str = "q", **fields: Any) -> NewMessage:
        return NewMessage(queue=self.key(queue), payload=_bytes(payload), **fields)

    def batch(self, *messages: NewMessage, receipt: Receipt | None = None) -> PushBatch:
        return PushBatch(list(messages), self.mint.mint_many(len(messages)), receipt)

    async def push_batches(self, *batches: PushBatch, create_queues: bool = True) -> list[PushOutcome]:
        outcomes = await self.store.push(batches, self.now, create_queues)
        await self.check_accounts()
        return outcomes

    async def push_messages(self, *messages: NewMessage, create_queues: bool = True) -> PushOutcome:
        return (await self.push_batches(self.batch(*messages), create_queues=create_queues))[0]

    async def push(self, *payloads: str, queue: str = "q", **fields: Any) -> list[PushResult]:
        """Push one batch and return a result for each."""
        return list((await self.push_messages(*(self.message(p, queue, **fields) for p in payloads))).results)

    # pop

    def request(self, queue: str = "q", **fields: Any) -> PopRequest:
        given: dict[str, Any] = {"batch": PLENTY, "token": self.token()} | fields
        return PopRequest(queue=self.key(queue), **given)

    async def pop_result(self, queue: str = "q", **fields: Any) -> PopResult:
        (result,) = await self.store.pop([self.request(queue, **fields)], self.now)
        await self.check_accounts()
        return result

    async def pop(self, queue: str = "q", **fields: Any) -> list[Delivery]:
        """Everything that can be had, unless ``batch`` says less."""
        return (await self.pop_result(queue, **fields)).deliveries

    async def pop_one(self, queue: str = "q", **fields: Any) -> Delivery:
        (delivery,) = await self.pop(queue, batch=1, **fields)
        return delivery

    async def pop_after_creating(self, name: str = "q", **settings: Any) -> None:
        """Make a queue, and its group by a look that finds nothing."""
        await self.create(name, **settings)
        await self.pop(name)

    # settle

    def settlement(self, delivery: Delivery, outcome: Outcome = Outcome.ACK, **fields: Any) -> Settlement:
        given = {"token": delivery.token} | fields
        return Settlement(
            queue=delivery.queue,
            partition=delivery.partition,
            seq=delivery.seq,
            group=delivery.group,
            outcome=outcome,
            **given,
        )

    async def settle(self, *settlements: Settlement) -> list[SettleResult]:
        results = await self.store.settle(settlements, self.now)
        await self.check_accounts()
        return results

    async def ack(self, *deliveries: Delivery, **fields: Any) -> list[SettleResult]:
        return await self.settle(*(self.settlement(d, Outcome.ACK, **fields) for d in deliveries))

    async def ack_leases(self, *deliveries: Delivery, through: int = WHOLE_LEASE) -> list[SettleResult]:
        """Ack the leases of these, each as a whole or up to a seq, in the order of their partitions."""
        leases = {(one.partition, one.token): self.settlement(one, Outcome.ACK_THROUGH) for one in deliveries}
        return await self.settle(*(msgspec.structs.replace(leases[key], seq=Seq(through)) for key in sorted(leases)))

    async def nack(self, *deliveries: Delivery, **fields: Any) -> list[SettleResult]:
        """Give back for another try at once, unless told otherwise."""
        given = {"retry": Retry.NOW} | fields
        return await self.settle(*(self.settlement(d, Outcome.NACK, **given) for d in deliveries))

    async def reject(self, *deliveries: Delivery, **fields: Any) -> list[SettleResult]:
        return await self.settle(*(self.settlement(d, Outcome.REJECT, **fields) for d in deliveries))

    async def renew(self, delivery: Delivery, lease_seconds: float = 60.0, **fields: Any) -> RenewResult:
        given = {"token": delivery.token} | fields
        renewal = Renewal(
            queue=delivery.queue,
            partition=delivery.partition,
            group=delivery.group,
            lease_seconds=lease_seconds,
            **given,
        )
        (result,) = await self.store.renew([renewal], self.now)
        await self.check_accounts()
        return result

    async def transact(
        self,
        settlements: Sequence[Settlement],
        messages: Sequence[NewMessage],
        create_queues: bool = True,
        *,
        effects: Sequence[Effect] = (),
        receipts: Sequence[Receipt] = (),
    ) -> TransactionOutcome:
        said = (list(settlements), list(messages), list(effects), list(receipts))
        transaction = Transaction(said[0], self.batch(*messages), said[2], said[3], fingerprint_of(*said))
        (outcome,) = await self.store.transact([transaction], self.now, create_queues)
        await self.check_accounts()
        return outcome

    # receipts and entities

    def receipt(self, key: str, answer: str = '"done"', scope: str = "hook", window_seconds: float = 60.0) -> Receipt:
        return Receipt(ReceiptKey(scope, key, self.tenant), answer.encode(), self.later(window_seconds))

    async def recorded(self, *keys: str, scope: str = "hook") -> list[str | None]:
        """Return the answers of receipts."""
        wanted = [ReceiptKey(scope, key, self.tenant) for key in keys]
        return [
            None if found is None else found.answer.decode()
            for found in await self.store.records.receipts(wanted, self.now)
        ]

    def entity(self, id_: str = "1", type_: str = "Counter") -> EntityKey:
        return EntityKey(type_, id_, self.tenant)

    def effect(self, version: int, *added: int, id_: str = "1", state: int = 0, cause: Id | None = None) -> Effect:
        """Add numbers to a counter; ``state`` is the sum before."""
        events = [NewEvent("Added", b'{"by":%d}' % number) for number in added]
        return Effect(self.entity(id_), version, events, b"%d" % (state + sum(added)), cause)

    async def counters(self, *ids: str) -> list[tuple[int, int] | None]:
        """Return version and state of counters, after holding each to its events."""
        found = await self.store.records.entities([self.entity(id_) for id_ in ids])
        for entity in found:
            if entity is not None:
                check_entity(entity, await self.store.records.entity_events(entity.key, 0, PLENTY))
        return [None if entity is None else (entity.version, int(entity.state)) for entity in found]

    # dead letters

    def dead_filter(self, queue: str = "q.dead", **fields: Any) -> DeadLetterFilter:
        return DeadLetterFilter(queue=self.key(queue), **fields)

    async def dead(self, queue: str = "q.dead", **fields: Any) -> list[DeadLetter]:
        """Return the dead letters; none when their queue was never needed."""
        if await self.store.get_queue(self.key(queue)) is None:
            return []
        return await self.store.dead_letters(self.dead_filter(queue, **fields), None, PLENTY)

    async def replay(
        self, queue: str = "q.dead", limit: int = PLENTY, until: int = 2**62, **fields: Any
    ) -> list[Replayed]:
        ids = self.mint.mint_many(limit)
        step = await self.store.replay(self.dead_filter(queue, **fields), ids, Seq(until), self.now)
        await self.check_accounts()
        return step.replayed

    async def purge(self, queue: str = "q.dead", limit: int = PLENTY, **fields: Any) -> int:
        step = await self.store.purge(self.dead_filter(queue, **fields), limit, self.now)
        await self.check_accounts()
        return step.count

    # groups and progress

    async def seek(self, start: Start, queue: str = "q", group: str = QUEUE_MODE_GROUP) -> GroupStats:
        self._progress = {k: v for k, v in self._progress.items() if k[1] != group}
        stats = await self.store.seek(self.key(queue), group, start, self.now)
        await self.check_accounts()
        return stats

    async def delete_group(self, queue: str = "q", group: str = QUEUE_MODE_GROUP) -> bool:
        self._progress = {k: v for k, v in self._progress.items() if k[1] != group}
        return await self.store.delete_group(self.key(queue), group, self.now)

    async def clear(self, scope: ClearScope, queue: str = "q") -> Cleared:
        cleared = await self.store.clear(self.key(queue), scope, self.now)
        await self.check_accounts()
        return cleared

    async def delete_message(self, seq: int, queue: str = "q", **fields: Any) -> DeletedMessage:
        given: dict[str, Any] = {"id_": None} | fields
        deleted = await self.store.delete_message(self.key(queue), Seq(seq), now=self.now, **given)
        await self.check_accounts()
        return deleted

    async def forget(self, *seqs: int, queue: str = "q", limit: int = PLENTY, **fields: Any) -> ForgetStep:
        """Forget messages, step by step; what all steps did together."""
        given: dict[str, Any] = {"log": None, "ranges": runs_of(seqs)} | fields
        done, after = ForgetStep(0, [], None), Seq(0)
        while True:
            step = await self.store.forget(self.key(queue), after=after, limit=limit, now=self.now, **given)
            await self.check_accounts()
            queues = [*done.queues, *(key for key in step.queues if key not in done.queues)]
            counts = done.messages + step.messages, done.letters + step.letters, done.copies + step.copies
            done = ForgetStep(counts[0], queues, None, counts[1], counts[2])
            if step.after is None:
                return done
            assert after < step.after, "each step goes on"
            after = step.after

    async def tombstones(self, queue: str = "q", after: int = 0, limit: int = PLENTY) -> list[tuple[int, int]]:
        """The ranges of forgotten seqs."""
        found = await self.store.tombstones(self.key(queue), after, limit)
        return [(stone.first_seq, stone.last_seq) for stone in found.tombstones]

    # chores

    async def promote(self, queue: str = "q", limit: int = PLENTY) -> Chore:
        return await self._chore(await self.store.promote(self.key(queue), self.now, limit))

    async def expire(self, queue: str = "q", limit: int = PLENTY) -> Chore:
        return await self._chore(await self.store.expire(self.key(queue), self.now, limit))

    async def retain(self, queue: str = "q", limit: int = PLENTY) -> Chore:
        return await self._chore(await self.store.retain(self.key(queue), self.now, limit))

    async def _chore(self, chore: Chore) -> Chore:
        await self.check_accounts()
        return chore

    # looking

    async def queue_stats(self, queue: str = "q") -> QueueStats:
        return await self.store.queue_stats(self.key(queue), self.now)

    async def stats(self, queue: str = "q", group: str = QUEUE_MODE_GROUP) -> GroupStats:
        """Return the account of one group."""
        (stats,) = [g for g in (await self.queue_stats(queue)).groups if g.group == group]
        return stats

    async def browse(self, queue: str = "q", **fields: Any) -> MessagePage:
        return await self.store.messages(MessageFilter(queue=self.key(queue), **fields), self.now)

    async def check_accounts(self) -> None:
        """I12 and I7 for every group of every queue: the account adds up, nothing is negative, progress never falls."""
        if not self.checks:
            return
        # One at a time: of two looks at once, the one that is answered first may be the younger.
        async with self._checking:
            queues = await self.store.list_queues(self.tenant, limit=PLENTY)
            for queue, stats in zip(queues, await self.store.stats_of(queues, self.now), strict=True):
                if stats is None:
                    continue
                check_depth(stats)
                if queue.holds_dead_letters and not stats.groups:
                    await self.check_held(stats)
                for group in stats.groups:
                    check_account(group)
                    known = (queue.id, group.group, group.created_at)
                    assert group.progress_seq >= self._progress.get(known, 0), f"I7: progress fell: {group}"
                    self._progress[known] = group.progress_seq

    async def check_held(self, stats: QueueStats) -> None:
        """I12 for a queue that nobody reads: its depth is what is in the log, if nobody changed it between two looks."""
        there = await self.store.messages(MessageFilter(queue=stats.queue, limit=PLENTY), self.now)
        if there.after is None and stats.depth != len(there.messages) + stats.scheduled:
            now = await self.store.queue_stats(stats.queue, self.now)
            assert now.depth != stats.depth, f"I12: not all of it is there: {stats}"


def check_depth(stats: QueueStats) -> None:
    """Depth and lag agree: it is that of the slowest group in use, or of the slowest when none is."""
    lags = [group.lag_messages for group in stats.groups if not group.idle]
    lags = lags or [group.lag_messages for group in stats.groups]
    assert not lags or stats.depth == max(lags) + stats.scheduled, f"I12: the depth is not that of a group: {stats}"


def check_account(group: GroupStats) -> None:
    """Check I12 for one group."""
    parts = (group.completed, group.pending, group.in_flight, group.dead, group.expired)
    assert group.pushed == sum(parts), f"I12: the account does not add up: {group}"
    assert min(parts) >= 0, f"I12: a negative figure: {group}"


def check_entity(entity: EntityState, events: Sequence[EntityEvent]) -> None:
    """I15 for one counter: its version is the number of its events, its state their sum."""
    assert [event.number for event in events] == list(range(1, entity.version + 1)), f"I15: {entity}"
    total = sum(msgspec.json.decode(event.data)["by"] for event in events)
    assert int(entity.state) == total, f"I15: a state that its events do not make: {entity}"


def seqs(deliveries: Iterable[Delivery]) -> list[int]:
    return [delivery.seq for delivery in deliveries]


def payloads(deliveries: Iterable[Delivery]) -> list[str]:
    return [delivery.payload.decode() for delivery in deliveries]


def attempts(deliveries: Iterable[Delivery]) -> list[int]:
    return [delivery.attempt for delivery in deliveries]


def ids(results: Iterable[PushResult]) -> list[Id]:
    return [result.id for result in results]


def _bytes(payload: str | bytes) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload
