"""The engine: all calls on queues. It checks them, merges them into store calls, and can be stopped safely.

HTTP, workers and the command line use this class. The engine knows no SQL. Each answer is the store's. After an error nothing of the
call has happened, with one exception: when the store is lost during a commit (STORE_UNAVAILABLE), the outcome is unknown. For this
case there are transaction ids (idempotency keys).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from skep.engine import validate
from skep.engine.admission import AdmissionDecision
from skep.engine.answers import Room
from skep.engine.logical_queue import LogicalQueue, Settlements
from skep.engine.pop.consumers import Consumed
from skep.engine.pop.matching import Match
from skep.engine.pop.want import Want
from skep.engine.queues import QueueCalls
from skep.engine.record_checks import Recording, check_effects, check_receipts, check_size, receipt_of
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    Appended,
    Delivery,
    NewMessage,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    QueueKey,
    Renewal,
    RenewResult,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.model.operation import OperationKind, QueuedReason
from skep.model.record import Effect, Receipt
from skep.model.transaction import Transaction, TransactionOutcome, fingerprint_of

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

    from skep.arrow.log import NewRows


class Engine(QueueCalls):
    """The public face. Start it before use; stop it before the store is closed."""

    async def push(
        self, messages: Sequence[NewMessage], *, json_checked: bool = False, receipt: Recording | None = None
    ) -> PushOutcome:
        """Store messages, whole or not at all, with a result for each in order; with a receipt, once.

        ``json_checked``: the caller has parsed the payloads already, so they are not parsed again.
        """
        with self._in_flight:
            if self.declared is not None:
                messages = await self.declared.fit(list(messages))
            prepared = self._prepared(messages, json_checked)
            if isinstance(prepared, PushOutcome):
                return prepared
            ids, weight = prepared
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

        Messages may be lost when this process dies, and are never stored twice. A push over several queues is split by queue.
        """
        with self._in_flight:
            if self.declared is not None:
                messages = await self.declared.fit(list(messages))
            prepared = self._prepared(messages, json_checked)
            if isinstance(prepared, PushOutcome):
                return prepared
            ids, weight = prepared
            sealed = await self.encryption.seal(messages, ids)
            return self.buffer.add(PushBatch(sealed, ids), weight, wait_ms, most)

    def _prepared(
        self, messages: Sequence[NewMessage], json_checked: bool
    ) -> tuple[list[Id], validate.Weight] | PushOutcome:
        """The ids of checked messages, and their weight; or the outcome of a push that was refused."""
        weight = validate.check_push(messages, self._limits, json_checked)
        ids = self._ids.mint_many(len(messages))
        return (ids, weight) if isinstance(weight, validate.Weight) else validate.refused(weight, messages, ids)

    async def push_columns(self, key: QueueKey, batch: pa.RecordBatch, headers: bytes | None = None) -> Appended:
        """Store a batch of columns ``partition`` and ``payload`` (JSON), whole or not at all: the fastest push for many messages.

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
            # Each payload is sealed by itself. The answer has seqs, so such a push can be neither queued nor spooled.
            messages = await asyncio.to_thread(messages_of, key, partition, payload, headers)
            minted = self._ids.mint_many(len(messages))
            sealed = PushBatch(await self.encryption.seal(messages, minted), minted)
            size_bytes = sum(len(message.payload) for message in sealed.messages)
            return appended(key, await self._registry.get(key).pushes.submit((sealed, None), len(minted), size_bytes))

    async def _append(self, key: QueueKey, rows: NewRows) -> Appended:
        now = self._clock.now()
        appended = await self._store.push_rows(key, rows, now, self.settings.create_queues_on_push)
        self._chores.pushed(key, now)
        self._registry.get(key).parking.wake(len(rows))
        return appended

    async def pop(self, request: PopRequest, *, wait_seconds: float = 0, room: Room | None = None) -> PopResult:
        """Lease messages of one queue; with ``wait_seconds`` (long polling) wait that long for the first message.

        When the caller is cancelled meanwhile, its leased messages are given back. ``room`` counts the bytes of the popped messages;
        its owner lets them go when the client has read the answer.
        """
        with self._in_flight:
            queue = self._checked(request, wait_seconds)
            want, waits = Want(request, room), wait_seconds > 0
            consumer = self.consumers.asks(Consumed(request.queue, request.group, request.consumer), waits=waits)
            try:
                if waits:
                    return await self._dispenser.wait(queue, want, wait_seconds)
                return await self._dispenser.take(queue, want)
            finally:
                self.consumers.answered(consumer, waits=waits)

    async def settle_and_pop(
        self,
        settlements: Sequence[Settlement],
        request: PopRequest,
        *,
        wait_seconds: float = 0,
        room: Room | None = None,
    ) -> tuple[list[SettleResult], PopResult]:
        """Settle, and then pop: in one transaction, unless others have waited longer for the messages that become free.

        A refused settlement has its own result. When the settlements fail, nothing is leased. When only the pop fails there are no
        messages, and the caller's next pop gets the error. When the caller is cancelled, the settlements are made all the same.
        """
        with self._in_flight:
            queue = self._checked(request, wait_seconds)
            self._dispenser.check_place()
            waits = wait_seconds > 0
            consumer = self.consumers.asks(Consumed(request.queue, request.group, request.consumer), waits=waits)
            settling = asyncio.ensure_future(self.settle(settlements))
            popped = PopResult([])
            try:
                if request.auto_ack:  # what is handed out is settled, and could not be given back
                    await asyncio.shield(settling)
                with suppress(SkepError):
                    popped = await self._dispenser.wait(queue, Want(request, room), wait_seconds, settling)
                return await asyncio.shield(settling), popped
            except BaseException:
                self._dispenser.abandoned(request, popped)
                raise
            finally:
                self.consumers.answered(consumer, waits=waits)

    def _checked(self, request: PopRequest, wait_seconds: float) -> LogicalQueue:
        """The queue of a pop that is well-formed, and that the server takes now."""
        validate.check_key(request.queue)
        validate.check_pop(request, wait_seconds, self._limits)
        queue = self._registry.get(request.queue)
        self.admission.decide(self.admission.pop, queue.pops.wait_seconds)
        return queue

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

        The request's queue has a tenant and no name. ``allowed`` selects the queues that the caller may use.
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
        """The load of the queue with the longest wait, as admission computes it."""
        return self.admission.figures(self._registry.wait_seconds).load

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Return messages that could not be handed on (their client has gone), to be delivered again at once."""
        self._dispenser.give_back(deliveries)

    def lost(self, deliveries: Sequence[Delivery]) -> None:
        """Log that auto-acked messages could not be handed on. They are settled, and cannot be delivered again."""
        self._dispenser.lost(deliveries)

    async def settle(self, settlements: Sequence[Settlement]) -> list[SettleResult]:
        """Ack, nack or reject messages, or ack whole leases. Each settlement has its own result, in order."""
        with self._in_flight:
            settlements = list(settlements)
            key, plain = validate.check_settlements(settlements, self._limits)
            if not plain:
                settlements = await self._completed(settlements)
            lanes = self._across if key is None else self._registry.get(key)
            kind = OperationKind.ACK_SINGLE if len(settlements) == 1 else OperationKind.ACK_BATCH
            gate = self.admission.ack_single if kind is OperationKind.ACK_SINGLE else self.admission.ack_batch
            if self.admission.decide(gate, lanes.settles.wait_seconds) is AdmissionDecision.QUEUE:
                return await self.operations.settle(settlements, kind, QueuedReason.SYSTEM_BUSY)
            if self.operations.settles_queued(settlements):
                return await self.operations.settle(settlements, kind, QueuedReason.MAINTAINING_ORDER)
            return await lanes.settles.submit(Settlements(settlements, plain), len(settlements))

    async def _completed(self, settlements: list[Settlement]) -> list[Settlement]:
        """The settlements to store: with jitter, and with cut errors, which are sealed for encrypted queues."""
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
            # Of the caller's own values, before anything is added to them: a repeat has the same fingerprint.
            said, asked = settlements, messages
            if not plain:
                settlements = await self._completed(settlements)
            recorded_bytes = check_effects(effects, self._limits) + check_receipts(receipts, self._limits)
            weight: validate.Weight | list[validate.MessageRefusal | None] = validate.Weight(0, None, None)
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
            # The store remembers an outcome by the token of the first settlement; without one there is nothing to compare.
            fingerprint = fingerprint_of(said, asked, effects, receipts) if said else b""
            size = (len(settlements) + len(ids) + len(effects) + len(receipts), size_bytes)
            while True:
                transaction = Transaction(settlements, batch, list(effects), list(receipts), fingerprint)
                outcome = await self._across.transactions.submit((transaction, weight.deliver_at), *size)
                # Done again here, not by the entrance: a transaction is neither queued nor spooled, and has settlements, too.
                sealed = None if outcome.committed else await self.encryption.sealed_anew(batch, outcome.pushed)
                if sealed is None:
                    return outcome
                batch = sealed
