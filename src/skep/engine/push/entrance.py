"""The way of a push: stored directly, queued or spooled. Only this module decides it, so the order within a partition has one rule.

A batch goes one way as a whole (I15). So a batch for several partitions is never queued: operations of different partitions are
performed apart. It is stored directly however busy the store is, after the operations ahead of it. A batch that comes here has been
checked and has its ids, so it stays the same messages on every way.
"""

from __future__ import annotations

from dataclasses import dataclass

from skep.clock import Clock, Instant
from skep.engine.admission import Admission, AdmissionDecision
from skep.engine.encryption import Encryption
from skep.engine.logical_queue import LogicalQueue
from skep.engine.push.operations import Operations
from skep.engine.push.spool.spool import Spool
from skep.engine.registry import Registry
from skep.engine.several_queues import SeveralQueues
from skep.engine.validate import Weight
from skep.errors import Code, SkepError
from skep.model import PushBatch, PushOutcome
from skep.model.operation import QueuedReason, operations_ahead, push_groups

Lanes = SeveralQueues | LogicalQueue

PASSES = 20
"""How often a push behind an operation tries to be stored directly."""


@dataclass(eq=False)
class Entrance:
    """Sends a checked push on its way."""

    _registry: Registry
    _across: SeveralQueues
    _admission: Admission
    _operations: Operations
    _encryption: Encryption
    _clock: Clock
    _spool: Spool | None = None

    async def push(self, batch: PushBatch, weight: Weight, *, was_taken: bool = False) -> PushOutcome:
        """Store, queue or spool a batch, whole or not at all. OVERLOADED when too many operations wait already.

        OPERATIONS_AHEAD for a batch of several partitions when operations of one of them do not finish in time. A batch that
        ``was_taken`` (was answered already) is neither refused nor queued because of load.
        """
        spool, operations = self._spool, self._operations
        if spool is not None and spool.takes(batch):
            return await spool.push(batch)
        lanes = self._lanes(weight)
        if not was_taken:
            decision = self._admission.decide(self._admission.push, lanes.pushes.wait_seconds)
            if decision is AdmissionDecision.QUEUE and push_groups(batch) == 1:
                return await self._queue(batch, weight, QueuedReason.SYSTEM_BUSY)
        if not operations.overtakes(batch):
            since = Instant(0) if spool is None else self._clock.now()  # only the spool asks for it
            try:
                outcome = await lanes.pushes.submit((batch, weight.deliver_at), len(batch.ids), weight.size_bytes)
            except SkepError as error:
                return await self._tried(batch, since, error)
            if outcome.held:
                outcome = await self._behind(batch, weight)
        elif push_groups(batch) == 1:
            return await self._queue(batch, weight, QueuedReason.MAINTAINING_ORDER)
        else:
            outcome = await self._behind(batch, weight)
        if outcome.refused and (sealed := await self._encryption.sealed_anew(batch, outcome)) is not None:
            # From the start: by now the spool may be ahead of it, or operations.
            return await self.push(sealed, weight, was_taken=was_taken)
        return outcome

    def _lanes(self, weight: Weight) -> Lanes:
        """The lanes of a direct push: those of its queue, or those of calls over several queues."""
        return self._across if weight.queue is None else self._registry.get(weight.queue)

    async def _queue(self, batch: PushBatch, weight: Weight, reason: QueuedReason) -> PushOutcome:
        """Queue a push as an operation.

        If the store is lost meanwhile, this is an error: the push may be queued, and the spool could not find out.
        """
        try:
            return await self._operations.push(batch, weight.size_bytes, reason)
        except SkepError as error:
            if self._spool is not None and error.code is Code.STORE_UNAVAILABLE:
                self._spool.doubt()  # so that later pushes are spooled
            raise

    async def _behind(self, batch: PushBatch, weight: Weight) -> PushOutcome:
        """Store a batch behind an operation of one of its partitions.

        If the operation will soon be done, the batch waits for it and is stored directly; else it is queued. A batch that cannot be
        queued always waits, for a second or so.
        """
        can_queue = push_groups(batch) == 1
        for _ in range(PASSES):
            if self._operations.ending or (can_queue and not self._operations.calm):
                break
            await self._operations.passed()
            if self._operations.overtakes(batch):
                continue
            # Get the lanes again: while this push waited, its queue may have been dropped as idle.
            since = self._clock.now()
            try:
                outcome = await self._lanes(weight).pushes.submit(
                    (batch, weight.deliver_at), len(batch.ids), weight.size_bytes
                )
            except SkepError as error:
                return await self._tried(batch, since, error)
            if not outcome.held:
                return outcome
        if not can_queue:
            raise operations_ahead()
        return await self._queue(batch, weight, QueuedReason.MAINTAINING_ORDER)

    async def _tried(self, batch: PushBatch, since: Instant, error: SkepError) -> PushOutcome:
        """Handle a failed push. If the store was lost, the push may be stored; the spool finds out when the store is back."""
        if self._spool is None or error.code is not Code.STORE_UNAVAILABLE:
            raise error
        return await self._spool.push_tried(batch, since)
