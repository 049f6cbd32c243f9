"""The engine: everything one can do with queues, checked at the edge, merged on the way, and safe to stop.

This is what HTTP, workers and the command line stand on. Nothing here knows SQL, and nothing above it needs to. Each answer
is the store's: on an error nothing of the call happened, except that a store lost during a commit is ambiguous
(STORE_UNAVAILABLE), which is what transaction ids are for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from skep.clock import Clock, Instant
from skep.config import EngineSettings
from skep.crypto.master import MasterKeys
from skep.engine import validate
from skep.engine.access import Access
from skep.engine.admission import Admission, Decision, Recent
from skep.engine.announcer import Announcer
from skep.engine.answers import Room
from skep.engine.browse import Browse
from skep.engine.caches import Caches
from skep.engine.clearing import would_clear
from skep.engine.dead_letters import DeadLetters
from skep.engine.declared import Declared
from skep.engine.decryption import Decryption
from skep.engine.door import Door
from skep.engine.encryption import Encryption
from skep.engine.groups import Groups
from skep.engine.history import History
from skep.engine.inflight import InFlight
from skep.engine.lifecycle import Lifecycle
from skep.engine.log import Logs
from skep.engine.logical import LogicalQueue, Settlements, Surroundings
from skep.engine.polls import Safety
from skep.engine.pop.consumers import Consumed, Consumers
from skep.engine.pop.dispenser import Dispenser
from skep.engine.pop.matching import Match
from skep.engine.pop.want import Want
from skep.engine.push.buffer import Buffer
from skep.engine.push.entrance import Entrance
from skep.engine.push.operations import Operations
from skep.engine.push.spool.spool import Spool
from skep.engine.record_checks import Recording, check_effects, check_receipts, check_size, receipt_of
from skep.engine.records import Records
from skep.engine.refusals import Refusals
from skep.engine.registry import Registry
from skep.engine.scheduled import Scheduled
from skep.engine.settings import check_settings
from skep.engine.several_queues import SeveralQueues
from skep.engine.staging import Staging
from skep.engine.system_events import Follower
from skep.engine.timers import Timers
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import (
    DEFAULT_TENANT,
    Appended,
    Cleared,
    ClearScope,
    DeletedMessage,
    Delivery,
    NewMessage,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    Queue,
    QueueChanges,
    QueueKey,
    QueueSettings,
    Renewal,
    RenewResult,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.model.operation import Kind, QueuedReason
from skep.model.record import Effect, Receipt
from skep.model.transaction import Transaction, TransactionOutcome, fingerprint_of
from skep.model.upkeep import Connections
from skep.store.protocol import PayloadVerbs, Store

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

    from skep.arrow.log import NewRows

CONFIGURE_TRIES = 10


class Engine:
    """The public face. Start it before use; stop it before the store is closed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdMint,
        random: Random,
        settings: EngineSettings | None = None,
        spool_folder: Path | None = None,
        masters: MasterKeys | None = None,
    ) -> None:
        """With a ``spool_folder`` pushes are kept there while the store is away.

        ``masters`` wrap the keys of encrypted queues; without them there can be none.
        """
        self.settings = settings or EngineSettings()
        self.encryption = Encryption(store, clock, ids, masters)
        opened: PayloadVerbs = store if masters is None else Decryption(store, self.encryption)
        self.declared: Declared | None = None
        """Looks at messages before they are stored; None while no spec declares a queue, so that nothing is paid."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._random = random
        self._limits = self.settings.limits
        self._in_flight = InFlight()
        self._timers = Timers(clock)
        self._lifecycle = Lifecycle(
            store,
            clock,
            random,
            self._timers,
            self.settings,
            self._wake,
            self._queue_found,
            self._tick,
            self.encryption.learn,
        )
        self._registry = Registry(self._make_queue, clock, self.settings)
        self._dispenser = Dispenser(store, clock, ids, self._timers, self._in_flight, self.settings, self._registry.get)
        self._announcer = Announcer(clock, self._lifecycle, self._registry)
        self._surroundings = Surroundings(
            store,
            opened,
            clock,
            self._timers,
            self._lifecycle,
            self.settings,
            self._dispenser.abandoned,
            self._announcer.died,
            Safety(random, self.settings),
        )
        self.access = Access(store.access, clock, self._in_flight)
        self.refusals = Refusals(store.refusals, clock, self._timers, self._in_flight)
        self.caches = Caches(
            clock,
            self._timers,
            self._in_flight,
            self._lifecycle,
            self._registry,
            self._dispenser,
            self.encryption,
            self.access,
        )
        self._follower = Follower(store, clock, self.settings.follow_seconds, self.caches.heard, self.caches.missed)
        self._across = SeveralQueues(store, clock, self.settings, self._announcer)
        self.operations = Operations(
            store,
            clock,
            ids,
            self._timers,
            self._in_flight,
            self.settings,
            self._announcer,
            self.encryption,
        )
        self.admission = Admission(
            self.settings.admission,
            Door(clock, self._timers, self.settings.admission.backlog_seconds),
            Recent(store.connections),
            lambda: self.operations.depth,
            lambda: self.operations.drain_rate,
        )
        self.spool = (
            None
            if spool_folder is None
            else Spool(spool_folder, store, clock, ids, self.settings, self._announcer.stored, self.encryption)
        )
        self._entrance = Entrance(
            self._registry, self._across, self.admission, self.operations, self.encryption, clock, self.spool
        )
        self.buffer = Buffer(
            partial(self._entrance.push, was_taken=True), clock, self._timers, self.settings.buffer, self._limits
        )
        self.log = Logs(store, opened, clock, self._in_flight, self.settings, self._dispenser, self._lifecycle)
        self.staging = Staging(
            store, clock, ids, self._in_flight, self.settings, lambda: self.declared, self._announce, self.encryption
        )
        self.look = Browse(store, opened, clock, self._in_flight, self._limits)
        self.dead_letters = DeadLetters(
            store,
            opened,
            clock,
            ids,
            self._in_flight,
            self._limits,
            self._announce,
            self.encryption.seal,
            self.settings.published_seconds,
        )
        self.scheduled = Scheduled(
            store.scheduled, clock, self._in_flight, self._limits, self.encryption, self._lifecycle, self._wake
        )
        self.groups = Groups(store, clock, self._in_flight, self._lifecycle.inspect, self._wake)
        self.consumers = Consumers(clock)
        self.past = History(store, opened, clock, self._in_flight, self.settings)
        self.records = Records(
            store.records, store, clock, ids, self._in_flight, self._limits, self._announce, self.encryption
        )

    async def start(self) -> None:
        """Begin to run timers and to hear of other servers."""
        self._store.on_news(self._wake)
        self._store.on_operations(self.operations.wake)
        if self.settings.shared:
            # Before anything is loaded: a key that is destroyed meanwhile would stay here for good.
            await self._follower.note_position()
        await self.encryption.load()
        if self.spool is not None:
            # First, so that no push can overtake what was spooled before.
            await self.spool.open()
        if self.settings.shared:
            self._follower.start()
        self._lifecycle.start()
        self.operations.start()

    async def stop(self) -> None:
        """Refuse what is new, answer who waits, finish what is under way, end the timers. Nothing is lost."""
        self._in_flight.close()
        self._dispenser.end_polls()
        self.admission.end_waits()
        self.operations.end_waits()
        await self._follower.stop()
        await self._lifecycle.stop()
        await self._in_flight.drain()
        await self.buffer.stop()
        await self.operations.stop()
        # A call whose caller was cancelled is still under way, and may have messages to give back.
        await self._drain_lanes()
        while not self._in_flight.idle:
            await self._in_flight.drain()
            await self._drain_lanes()
        await self.refusals.stop()
        if self.spool is not None:
            await self.spool.stop()
        self._timers.close()

    def end_polls(self) -> None:
        """Answer every pop that waits, with nothing: the server is about to close its connections."""
        self._dispenser.end_polls()

    async def _drain_lanes(self) -> None:
        await self._registry.drained()
        await self._across.drained()
        await self.operations.drained()

    @property
    def parked_polls(self) -> int:
        """How many pops sleep until there are messages."""
        return self._dispenser.parked

    @property
    def known_queues(self) -> int:
        """How many queues this server looks after."""
        return self._lifecycle.queues

    @property
    def logical_queues(self) -> int:
        """How many queues are held ready."""
        return len(self._registry)

    @property
    def is_quiet(self) -> bool:
        """Whether no timer is overdue and no chore runs: what tests wait for after they moved the clock."""
        return not self._timers.overdue and not self._lifecycle.under_way and self.operations.quiet

    def connections(self) -> Connections:
        """How busy the store's connections are."""
        return self._store.connections()

    @property
    def store_away(self) -> bool:
        """Whether the store is known to be away."""
        return self.spool is not None and self.spool.away

    async def check_writable(self) -> None:
        """Raise why the store takes no writes. Where pushes can be spooled, the spool watches the store and knows."""
        if self.spool is None:
            await self._store.probe()

    def now(self) -> Instant:
        """The present instant by the clock that deadlines go by."""
        return self._clock.now()

    async def push(
        self, messages: Sequence[NewMessage], *, json_checked: bool = False, receipt: Recording | None = None
    ) -> PushOutcome:
        """Store messages, whole or not at all, with a result for each in order; with a receipt, once.

        ``json_checked`` says that the caller has parsed the payloads already, so that they are not parsed twice.
        """
        with self._in_flight:
            prepared = await self._prepared(messages, json_checked)
            if isinstance(prepared, PushOutcome):
                return prepared
            messages, ids, weight = prepared
            if self.buffer.holds([m.queue for m in messages] if weight.queue is None else (weight.queue,)):
                await self.buffer.flushed([m.queue for m in messages])
            made = None if receipt is None else receipt_of(receipt, ids[0], self._limits)
            batch = PushBatch(await self.encryption.seal(messages, ids), ids, made)
            return await self._entrance.push(batch, weight)

    async def push_buffered(
        self,
        messages: Sequence[NewMessage],
        *,
        wait_ms: int | None = None,
        most: int | None = None,
        json_checked: bool = False,
    ) -> PushOutcome:
        """Take messages and store them soon (QoS 0): after ``wait_ms``, or when ``most`` wait for their queue.

        They may be lost when this process dies, and are never stored twice. A push over several queues is divided by them.
        """
        with self._in_flight:
            prepared = await self._prepared(messages, json_checked)
            if isinstance(prepared, PushOutcome):
                return prepared
            messages, ids, weight = prepared
            sealed = await self.encryption.seal(messages, ids)
            return self.buffer.add(PushBatch(sealed, ids), weight, wait_ms, most)

    async def _prepared(
        self, messages: Sequence[NewMessage], json_checked: bool
    ) -> tuple[list[NewMessage], list[Id], validate.Weight] | PushOutcome:
        """Messages that may be pushed, with their ids and their weight; the outcome of those that may not."""
        fitting = list(messages) if self.declared is None else await self.declared.fit(list(messages))
        weight = validate.check_push(fitting, self._limits, json_checked)
        ids = self._ids.mint_many(len(fitting))
        return (fitting, ids, weight) if isinstance(weight, validate.Weight) else validate.refused(weight, fitting, ids)

    async def push_columns(self, key: QueueKey, batch: pa.RecordBatch, headers: bytes | None = None) -> Appended:
        """Store a batch of columns ``partition`` and ``payload`` (JSON), whole or not at all: the fast way for very many.

        All messages have the same ``headers``.
        """
        from skep.arrow.log import NewRows
        from skep.engine.bulk import appended, checked_columns, messages_of

        with self._in_flight:
            validate.check_key(key)
            partition, payload = await checked_columns(key, batch, self._limits, self.declared)
            if self.buffer.holds((key,)):
                await self.buffer.flushed((key,))
            if self.spool is not None:
                self.spool.check_nothing_ahead(PushBatch([], []), key)
            if not self.encryption.seals(key):
                ids = self._ids.mint_range(batch.num_rows)
                try:
                    return await self._append(key, NewRows(partition, payload, ids, headers))
                except SkepError as error:
                    if error.code is not Code.NOT_ENCRYPTED:
                        raise
                    self.encryption.require(key)
            # Each payload is sealed by itself. The answer names seqs, so they can neither be queued nor spooled.
            messages = await asyncio.to_thread(messages_of, key, partition, payload, headers)
            minted = self._ids.mint_many(len(messages))
            sealed = PushBatch(await self.encryption.seal(messages, minted), minted)
            size_bytes = sum(len(message.payload) for message in sealed.messages)
            return appended(key, await self._registry.get(key).pushes.submit((sealed, None), len(minted), size_bytes))

    async def _append(self, key: QueueKey, rows: NewRows) -> Appended:
        now = self._clock.now()
        appended = await self._store.push_rows(key, rows, now, self.settings.create_queues_on_push)
        self._lifecycle.pushed(key, now)
        self._registry.get(key).parking.wake(len(rows))
        return appended

    async def pop(self, request: PopRequest, *, wait_seconds: float = 0, room: Room | None = None) -> PopResult:
        """Lease messages of one queue; with ``wait_seconds`` wait that long for the first of them.

        A caller who is cancelled meanwhile loses nothing: what was leased for it is given back. What is popped is held in ``room``,
        which its owner lets go when the answer was taken.
        """
        with self._in_flight:
            validate.check_key(request.queue)
            validate.check_pop(request, wait_seconds, self._limits)
            queue = self._registry.get(request.queue)
            self.admission.decide(self.admission.pop, queue.pops.wait_seconds)
            waits = wait_seconds > 0
            consumer = self.consumers.asks(Consumed(request.queue, request.group, request.consumer), waits=waits)
            try:
                if waits:
                    return await self._dispenser.wait(queue, Want(request, room), wait_seconds)
                return await self._dispenser.take(queue, Want(request, room))
            finally:
                self.consumers.answered(consumer, waits=waits)

    async def pop_matching(
        self,
        request: PopRequest,
        *,
        namespace: str | None = None,
        task: str | None = None,
        wait_seconds: float = 0,
        allowed: Callable[[QueueKey], bool] | None = None,
        room: Room | None = None,
    ) -> PopResult:
        """Lease messages of all queues of a namespace, a task or both; those of higher priority come first.

        The request's queue has no name, only the tenant. ``allowed`` says which of the tenant's queues count.
        """
        with self._in_flight:
            match = Match(request.queue.tenant, namespace, task)
            validate.check_match(match.tenant, namespace, task)
            if namespace is None and task is None:
                raise SkepError(Code.INVALID_REQUEST, "a pop over several queues names a namespace, a task or both")
            validate.check_pop(request, wait_seconds, self._limits)
            self.admission.decide(self.admission.pop)
            waits = wait_seconds > 0
            consumer = self.consumers.asks(Consumed(request.queue, request.group, request.consumer), waits=waits)
            try:
                want = Want(request, room, matching=True)
                return await self._dispenser.pop_matching(match, want, wait_seconds, allowed)
            finally:
                self.consumers.answered(consumer, waits=waits)

    @property
    def load(self) -> float:
        """The load of the queue where calls wait longest, as admission reckons it."""
        return self.admission.figures(self._registry.wait_seconds).load

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages that could not be handed on (their client has gone), to be delivered again at once."""
        self._dispenser.give_back(deliveries)

    def lost(self, deliveries: Sequence[Delivery]) -> None:
        """Note that auto-acked messages could not be handed on: they are settled, and nothing can be taken back."""
        self._dispenser.lost(deliveries)

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Ack, nack or reject messages, each on its own merits, or ack whole leases, with a result for each in order."""
        with self._in_flight:
            settlements = list(settlements)
            key, plain = validate.check_settlements(settlements, self._limits)
            if not plain:
                settlements = await self._completed(settlements)
            lanes = self._across if key is None else self._registry.get(key)
            kind = Kind.ACK_SINGLE if len(settlements) == 1 else Kind.ACK_BATCH
            gate = self.admission.ack_single if kind is Kind.ACK_SINGLE else self.admission.ack_batch
            if self.admission.decide(gate, lanes.settles.wait_seconds) is Decision.QUEUE:
                return await self.operations.settle(settlements, kind, QueuedReason.SYSTEM_BUSY)
            if self.operations.settles_queued(settlements):
                return await self.operations.settle(settlements, kind, QueuedReason.MAINTAINING_ORDER)
            return await lanes.settles.submit(Settlements(settlements, plain), len(settlements))

    async def _completed(self, settlements: list[Settlement]) -> list[Settlement]:
        """Settlements as they may be stored: with their jitter, and with errors that are cut, and sealed where payloads are."""
        return await self.encryption.seal_errors(validate.completed(settlements, self._random, self._limits))

    async def renew(self, renewals: Sequence[Renewal]) -> list[RenewResult]:
        """Keep leases for longer, with a result for each in order."""
        with self._in_flight:
            renewals = list(renewals)
            validate.check_renewals(renewals, self._limits)
            key = renewals[0].queue
            of_one = all(renewal.queue == key for renewal in renewals)
            lanes = self._registry.get(key) if of_one else self._across
            return await lanes.renewals.submit(renewals, len(renewals))

    async def transact(
        self,
        settlements: Sequence[Settlement],
        messages: Sequence[NewMessage],
        *,
        effects: Sequence[Effect] = (),
        receipts: Sequence[Receipt] = (),
        json_checked: bool = False,
    ) -> TransactionOutcome:
        """Settle, push, and write effects and receipts together, whole or not at all (I15)."""
        with self._in_flight:
            settlements, messages = list(settlements), list(messages)
            if not (settlements or messages or effects or receipts):
                raise SkepError(Code.INVALID_REQUEST, "a transaction settles, pushes or records something")
            _, plain = validate.check_settlements(settlements, self._limits, least=0)
            # What the caller said, before anything is added to it: a repeat is told by it.
            said, asked = settlements, messages
            if not plain:
                settlements = await self._completed(settlements)
            recorded_bytes = check_effects(effects, self._limits) + check_receipts(receipts, self._limits)
            weight: validate.Weight | list[validate.Refusal | None] = validate.Weight(0, None, None)
            if messages:
                if self.declared is not None:
                    messages = await self.declared.fit(messages)
                weight = validate.check_push(messages, self._limits, json_checked)
                if self.buffer.holds(keys := [message.queue for message in messages]):
                    await self.buffer.flushed(keys)
            ids = self._ids.mint_many(len(messages))
            batch = PushBatch(await self.encryption.seal(messages, ids), ids)
            if not isinstance(weight, validate.Weight):
                nothing = [SettleResult(SettleStatus.REFUSED, Code.BATCH_REFUSED) for _ in settlements]
                return TransactionOutcome(False, nothing, validate.refused(weight, messages, batch.ids))
            if self.spool is not None:
                self.spool.check_nothing_ahead(batch)
            size_bytes = weight.size_bytes + recorded_bytes
            check_size(size_bytes, self._limits)
            # An outcome is remembered by the first settlement; without one there is nothing to compare.
            fingerprint = fingerprint_of(said, asked, effects, receipts) if said else b""
            transaction = Transaction(settlements, batch, list(effects), list(receipts), fingerprint)
            size = (len(settlements) + len(ids) + len(transaction.effects) + len(transaction.receipts), size_bytes)
            outcome = await self._across.transactions.submit((transaction, weight.deliver_at), *size)
            if outcome.committed or (sealed := await self.encryption.sealed_anew(batch, outcome.pushed)) is None:
                return outcome
            transaction = Transaction(settlements, sealed, list(effects), list(receipts), fingerprint)
            return await self._across.transactions.submit((transaction, weight.deliver_at), *size)

    async def create_queue(self, key: QueueKey, settings: QueueSettings | None = None) -> Queue:
        """Make a queue; QUEUE_EXISTS when there is one."""
        with self._in_flight:
            validate.check_key(key)
            settings = settings or QueueSettings()
            check_settings(settings)
            self.encryption.check_enabling(settings)
            return self.caches.changed(await self._store.create_queue(key, settings, self._clock.now()))

    async def update_queue(self, key: QueueKey, changes: QueueChanges) -> Queue:
        """Change the settings that are given."""
        with self._in_flight:
            validate.check_key(key)
            check_settings(changes)
            self.encryption.check_enabling(changes)
            return self.caches.changed(await self._store.update_queue(key, changes, self._clock.now()))

    async def configure_queue(self, key: QueueKey, changes: QueueChanges) -> Queue:
        """Make a queue with these settings, or change those of the one there is."""
        with self._in_flight:
            for _ in range(CONFIGURE_TRIES):
                queue = await self._store.get_queue(key)
                try:
                    if queue is None:
                        return await self.create_queue(key, changes.apply(QueueSettings()))
                    return await self.update_queue(key, changes)
                except SkepError as error:
                    # Someone else made or deleted it in between: look again.
                    if error.code is not (Code.QUEUE_EXISTS if queue is None else Code.QUEUE_NOT_FOUND):
                        raise
            raise SkepError(Code.STORE_BUSY, f"the queue {key.name!r} is being made and deleted over and over")

    async def pause_queue(self, key: QueueKey) -> Queue:
        """Hand out nothing more; pushes and settlements go on."""
        return await self.update_queue(key, QueueChanges(paused=True))

    async def resume_queue(self, key: QueueKey) -> Queue:
        """Hand out messages again."""
        return await self.update_queue(key, QueueChanges(paused=False))

    async def get_queue(self, key: QueueKey) -> Queue:
        """The queue; QUEUE_NOT_FOUND when there is none."""
        with self._in_flight:
            validate.check_key(key)
            queue = await self._store.get_queue(key)
            if queue is None:
                raise SkepError(Code.QUEUE_NOT_FOUND, f"there is no queue {key.name!r}", queue=key.name)
            return queue

    async def list_queues(
        self,
        tenant: str = DEFAULT_TENANT,
        *,
        after: str = "",
        limit: int = 100,
        namespace: str | None = None,
        task: str | None = None,
    ) -> list[Queue]:
        """A page of queues by name, those after ``after``."""
        with self._in_flight:
            validate.check_match(tenant, namespace, task)
            validate.check_page(limit, self._limits, after)
            return await self._store.list_queues(tenant, after, limit, namespace, task)

    async def tenants(self, *, after: str = "", limit: int = 100) -> list[str]:
        """A page of the tenants that have queues, by name, those after ``after``."""
        with self._in_flight:
            validate.check_page(limit, self._limits, after)
            return await self._store.tenants(after, limit)

    async def delete_queue(self, key: QueueKey) -> bool:
        """Delete a queue with all it holds; False when there is none."""
        with self._in_flight:
            validate.check_key(key)
            deleted = await self._store.delete_queue(key, self._clock.now())
            self.caches.gone(key)
            return deleted

    async def clear(self, key: QueueKey, scope: ClearScope, *, dry_run: bool = False) -> Cleared:
        """Take messages away; with ``dry_run`` only say how many that would be."""
        with self._in_flight:
            validate.check_key(key)
            if dry_run:
                return would_clear(await self._store.queue_stats(key, self._clock.now()), scope)
            cleared = await self._store.clear(key, scope, self._clock.now())
            self._lifecycle.inspect(key)
            self._wake(key)
            return cleared

    async def delete_message(
        self, key: QueueKey, seq: Seq, id_: Id | None = None, *, dry_run: bool = False
    ) -> DeletedMessage:
        """Delete a message that is not settled, for all groups, also from who holds it; with ``id_`` only if it has this id."""
        with self._in_flight:
            validate.check_key(key)
            deleted = await self._store.delete_message(key, seq, id_, self._clock.now(), dry_run)
            if not dry_run:
                # What it kept back may be had now, and so may its neighbours in a lease.
                self._lifecycle.inspect(key)
                self._wake(key)
            return deleted

    def _make_queue(self, key: QueueKey) -> LogicalQueue:
        return LogicalQueue(key, self._surroundings)

    def _queue_found(self, queue: Queue) -> None:
        if queue.settings.namespace is not None or queue.settings.task is not None:
            self._dispenser.queues_changed()

    def _announce(self, key: QueueKey, now: Instant) -> None:
        self._lifecycle.pushed(key, now)
        self._wake(key)

    def _wake(self, key: QueueKey) -> None:
        self._registry.wake(key)

    def _tick(self, now: Instant) -> None:
        self._registry.tick(now)
