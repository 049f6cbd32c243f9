"""The queue of operations as the engine sees it: calls are queued here, and can be listed and cancelled.

Calls to be queued go into the store in one statement, over all queues. While a call is on its way there, later calls to its partitions
follow it, so calls of one server keep their order of arrival. The number of operations is counted in memory, and corrected by a
bounded count in the store every so often. Queueing a call counts nothing in the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Protocol

import structlog

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings, OperationSettings
from skep.engine.announcer import Announcer
from skep.engine.batching import Lane
from skep.engine.encryption import Encryption
from skep.engine.inflight import InFlight
from skep.engine.push.performing import Performer
from skep.engine.push.repeats import OperationsAndRecords, Repeats
from skep.engine.timers import Timer, Timers
from skep.engine.validate import check_name, check_texts
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import (
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueuedOperation,
    QueueKey,
    Settlement,
    SettleResult,
    SettleStatus,
    Token,
)
from skep.model.operation import (
    Enqueued,
    NewOperations,
    Operation,
    OperationFigures,
    OperationFilter,
    OperationKind,
    OperationPage,
    QueuedReason,
    WaitingOperations,
    push_groups,
    settle_groups,
)
from skep.store.protocol.servers import ServerVerbs

Place = tuple[QueueKey, str]
Lease = tuple[QueueKey, Token]

CALM_SECONDS = 1.0
TRUSTED_LOOKS = 5
MOMENT_SECONDS = 0.05
TELL_SECONDS = 0.1
"""How long a server keeps its operations to itself before it notifies the other servers."""

log = structlog.get_logger("skep.operations")


class OperationsAndServers(OperationsAndRecords, ServerVerbs, Protocol):
    """The store's verbs for operations, records and other servers."""


class Operations:
    """Queues calls, performs them in their turn, and reports their state."""

    def __init__(
        self,
        store: OperationsAndServers,
        clock: Clock,
        ids: IdMint,
        timers: Timers,
        in_flight: InFlight,
        settings: EngineSettings,
        announcer: Announcer,
        encryption: Encryption,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._timers = timers
        self._in_flight = in_flight
        self._settings: OperationSettings = settings.operations
        self._shared = settings.shared
        self._sweep_rows = settings.limits.chore_rows
        self._repeats = Repeats(store, clock)
        self._lane: Lane[NewOperations, list[Enqueued] | bytes] = Lane("enqueue", self._enqueue, settings.limits)
        self._performer = Performer(store, clock, ids, settings, announcer, self._ended, encryption)
        self.completed, self.failed = self._performer.completed, self._performer.failed
        """How many operations this server has performed, and given up, by kind."""
        self._on_way: Counter[Place] = Counter()
        self._queued_leases: set[Lease] = set()
        self._depth: Counter[OperationKind] = Counter()
        self._looked = WaitingOperations({})
        self._look_timer: Timer | None = None
        self._look_task: asyncio.Task[None] | None = None
        self._tell_timer: Timer | None = None
        self._look_again = False
        self._told_blind = False
        self._changes = 0
        self._unsure = 0
        self._swept_at: Instant | None = None
        self.stuck = 0
        """How many operations are older than twice their timeout, as of the last look."""
        self._busy_at = Instant(0)
        self._waiting: set[asyncio.Future[None]] = set()
        self.ending = False
        """Whether calls must no longer wait for operations."""
        self._stopping = False

    def start(self) -> None:
        """Look for operations of an earlier run, and perform them."""
        self._look()

    def end_waits(self) -> None:
        """End the waits of pushes for operations: such pushes are queued behind them."""
        self.ending = True
        self._pass()

    async def stop(self) -> None:
        """Finish the operations under way; the others stay in the store until a server starts again."""
        self._stopping = True
        if self._look_timer is not None:
            self._look_timer.cancel()
        if self._tell_timer is not None:
            self._tell_timer.cancel()
        if self._look_task is not None:
            await asyncio.wait([self._look_task])
        await self._performer.stop()

    async def drained(self) -> None:
        """Return once no call is on its way into the queue."""
        await self._lane.drained()

    @property
    def quiet(self) -> bool:
        """Whether no operation is being performed or looked for."""
        return self._look_task is None and self._performer.idle

    @property
    def depth(self) -> int:
        """How many operations are live, as far as this server knows."""
        return max(0, self._depth.total()) if self._depth else 0

    @property
    def drain_rate(self) -> float:
        """How many operations this server performs in a second."""
        return self._performer.rate

    @property
    def oldest_at(self) -> Instant | None:
        """When the oldest live operation was queued, as of the last look."""
        return self._looked.oldest_at

    @property
    def blocked(self) -> int:
        """How many operations are blocked, as of the last look; all of them while the store refuses even claims."""
        return self.depth if self._performer.held_up is not None else self._looked.blocked

    @property
    def depth_by_kind(self) -> dict[OperationKind, int]:
        """How many operations of each kind are live."""
        return {kind: max(0, self._depth[kind]) for kind in OperationKind}

    def wake(self) -> None:
        """Start to perform operations, if there are any."""
        self._performer.wake()

    @property
    def calm(self) -> bool:
        """Whether no call was queued for load lately, and few operations are left. Then a push waits for an operation ahead of it.

        If such pushes were always queued, a partition with constant pushes would never leave the queue of operations.
        """
        quiet_since = self._busy_at + seconds(CALM_SECONDS)
        return not self.ending and self._clock.steady() >= quiet_since and self.depth <= self._settings.claim_operations

    def _note_reason(self, reason: QueuedReason) -> None:
        if reason is QueuedReason.SYSTEM_BUSY:
            self._busy_at = self._clock.steady()

    def _pass(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _finish(future)

    async def passed(self) -> None:
        """Return once this server performed operations, or after a moment, as other servers may have performed some."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        timer = self._timers.after(seconds(MOMENT_SECONDS), lambda: _finish(future))
        try:
            await future
        finally:
            timer.cancel()
            self._waiting.discard(future)

    def overtakes(self, batch: PushBatch) -> bool:
        """Whether a push to one of these partitions is just being queued, so that this batch would overtake it."""
        return bool(self._on_way) and any((m.queue, m.partition) in self._on_way for m in batch.messages)

    def settles_queued(self, settlements: Sequence[Settlement]) -> bool:
        """Whether acks of one of these leases wait as operations of this server: a nack would end the lease before them."""
        return bool(self._queued_leases) and any((s.queue, s.token) in self._queued_leases for s in settlements)

    async def push(self, batch: PushBatch, size_bytes: int, reason: QueuedReason) -> PushOutcome:
        """Queue a push to one partition, whole."""
        self._note_reason(reason)
        request = NewOperations(
            OperationKind.PUSH,
            self._ids.mint_many(push_groups(batch)),
            push=batch,
            timeout_seconds=self._settings.timeout_seconds,
            max_retries=self._settings.max_retries,
        )
        places = {(message.queue, message.partition) for message in batch.messages}
        self._on_way.update(places)
        try:
            kept = await self._lane.submit(request, len(batch.ids), size_bytes)
        finally:
            self._arrived(places)
        if isinstance(kept, bytes):
            return PushOutcome([], {}, recorded=kept)
        results = [
            PushResult(PushStatus.QUEUED, id_, None, message.transaction_id, message.trace_id or id_)
            for message, id_ in zip(batch.messages, batch.ids, strict=True)
        ]
        return PushOutcome(results, {}, operations=self._told(kept, reason))

    def _arrived(self, places: Iterable[Place]) -> None:
        for place in places:
            self._on_way[place] -= 1
            if not self._on_way[place]:
                del self._on_way[place]

    async def settle(
        self, settlements: list[Settlement], kind: OperationKind, reason: QueuedReason
    ) -> list[SettleResult]:
        """Queue all these settlements."""
        self._note_reason(reason)
        leases = {(settlement.queue, settlement.token) for settlement in settlements}
        self._queued_leases |= leases
        request = NewOperations(
            kind,
            self._ids.mint_many(settle_groups(settlements)),
            settlements=settlements,
            timeout_seconds=self._settings.timeout_seconds,
            max_retries=self._settings.max_retries,
        )
        try:
            kept = await self._lane.submit(request, len(settlements))
        except SkepError:
            self._queued_leases -= leases
            raise
        assert not isinstance(kept, bytes)
        results: list[SettleResult] = [SettleResult(SettleStatus.QUEUED)] * len(settlements)
        for told in self._told(kept, reason):
            for index in told.indexes:
                results[index] = SettleResult(SettleStatus.QUEUED, operation=told)
        return results

    async def _enqueue(self, requests: list[NewOperations]) -> Sequence[list[Enqueued] | bytes]:
        """The operations of each request, or the recorded answer of a repeated one."""
        before = await self._repeats.answers(requests)
        fresh = [request for place, request in enumerate(requests) if place not in before] if before else requests
        kept = await self._keep(fresh) if fresh else []
        if not before:
            return kept
        operations = iter(kept)
        return [before[place] if place in before else next(operations) for place in range(len(requests))]

    async def _keep(self, requests: list[NewOperations]) -> list[list[Enqueued]]:
        kept = await self._store.enqueue(requests, self._clock.now())
        for request, operations in zip(requests, kept, strict=True):
            self._depth[request.kind] += len(operations)
        self._repeats.note(requests, kept)
        self._changes += 1
        self._performer.wake()
        self._look_later()
        self._tell_later()
        return kept

    def _told(self, kept: Sequence[Enqueued], reason: QueuedReason) -> list[QueuedOperation]:
        first = max(1, self.depth - len(kept) + 1)
        return [
            QueuedOperation(one.id, one.queue, one.partition, one.indexes, place, reason, self.wait_seconds(place))
            for place, one in enumerate(kept, start=first)
        ]

    def wait_seconds(self, place: int) -> float:
        """How long until the operation at this place is done, at the recent rate."""
        return round(place / self._performer.rate, 3)

    def _tell_later(self) -> None:
        """Tell other servers of operations after a moment, unless they are done by then, as most are."""
        if self._shared and self._tell_timer is None and not self._stopping:
            self._tell_timer = self._timers.after(seconds(TELL_SECONDS), self._tell)

    def _tell(self) -> None:
        self._tell_timer = None
        if self.depth:
            self._store.announce_operations()

    def _look_later(self) -> None:
        # A look under way may have started before the new operation was stored.
        self._look_again = True
        if self._look_timer is None and self._look_task is None and not self._stopping:
            self._look_timer = self._timers.after(seconds(self._settings.look_seconds), self._look)

    def _look(self) -> None:
        self._look_timer = None
        if self._look_task is None and not self._stopping:
            self._look_task = asyncio.get_running_loop().create_task(self._look_now())

    async def _look_now(self) -> None:
        self._look_again = self._shared
        try:
            now = self._clock.now()
            changes = self._changes
            self._looked = await self._store.waiting_operations(now, self._settings.counted)
            # With changes during the count, the count may or may not have them. Then keep our own figures, for a few looks.
            self._unsure = self._unsure + 1 if changes != self._changes else 0
            if self._unsure % TRUSTED_LOOKS == 0:
                self._depth = Counter(self._looked.depth)
            self._tell_stuck()
            if not any(self._depth[kind] for kind in (OperationKind.ACK_BATCH, OperationKind.ACK_SINGLE)):
                self._queued_leases.clear()
            if not self._looked.total and changes == self._changes:
                self._repeats.forget()
            if self._looked.total:
                self._performer.wake()
                self._look_again = True
            await self._sweep(now)
            self._told_blind = False
        except SkepError as error:
            self._look_again = True
            if not self._told_blind:  # logged once per outage, not every second
                log.warning("operations cannot be looked at", error=str(error))
            self._told_blind = True
        finally:
            self._look_task = None
            if self._look_again:
                self._look_later()

    def _tell_stuck(self) -> None:
        if self._looked.stuck > self.stuck:
            log.warning(
                "operations are stuck", stuck=self._looked.stuck, waiting=self._looked.total, oldest_at=self.oldest_at
            )
        self.stuck = self._looked.stuck

    async def _sweep(self, now: Instant) -> None:
        started = self._clock.steady()
        if self._swept_at is not None and started < self._swept_at + seconds(self._settings.sweep_seconds):
            return
        while True:
            completed = Instant(now - seconds(self._settings.completed_seconds))
            failed = Instant(now - seconds(self._settings.failed_seconds))
            if await self._store.sweep_operations(completed, failed, self._sweep_rows) < self._sweep_rows:
                break
        self._swept_at = started

    def _ended(self, ended: Counter[OperationKind], leases: Iterable[Lease]) -> None:
        """Note operations that this server performed or gave up."""
        self._depth -= ended
        self._changes += 1
        self._pass()
        self._queued_leases.difference_update(leases)

    async def find(self, tenant: str, id_: Id) -> Operation:
        """An operation; OPERATION_NOT_FOUND when it does not exist, or no longer."""
        with self._in_flight:
            found = await self._store.operation(tenant, id_)
        if found is None:
            raise SkepError(Code.OPERATION_NOT_FOUND, "there is no such operation, or it ended long ago")
        return found

    async def page(self, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
        """Operations, newest first."""
        with self._in_flight:
            if wanted.queue is not None:
                check_name(wanted.queue)
            check_texts((wanted.partition,))
            return await self._store.list_operations(wanted, after, limit)

    async def figures(self, tenant: str) -> list[OperationFigures]:
        """Figures by kind and status."""
        with self._in_flight:
            return await self._store.operation_figures(tenant, self._settings.counted)

    async def cancel(self, tenant: str, id_: Id) -> Operation:
        """Cancel a pending or blocked operation; OPERATION_NOT_PENDING when it is too late."""
        with self._in_flight:
            cancelled = await self._store.cancel_operation(tenant, id_, self._clock.now())
            found = await self.find(tenant, id_)
            if not cancelled:
                raise SkepError(
                    Code.OPERATION_NOT_PENDING,
                    f"the operation is {found.status.value}: only a pending or a blocked one can be cancelled",
                    status=found.status.value,
                )
            self._depth[found.kind] -= 1
            self._performer.wake()
            return found


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
