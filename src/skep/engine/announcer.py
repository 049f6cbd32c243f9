"""The consequences of a call, once the store has answered: polls to wake, and timers to set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from skep.clock import Clock, Instant
from skep.engine.chores import Chores
from skep.engine.registry import Registry
from skep.model import PushBatch, QueueKey, Settlement, SettleResult, SettleStatus

log = structlog.get_logger("skep.engine")


@dataclass(eq=False)
class Announcer:
    """Tells parked polls and timers about calls that did not use the lanes of their queues."""

    _clock: Clock
    _chores: Chores
    _registry: Registry

    def pushed(self, batch: PushBatch, deliver_at: Instant | None) -> None:
        """Announce a stored batch, of one or several queues."""
        now = self._clock.now()
        for key in {message.queue for message in batch.messages}:
            self._chores.pushed(key, now, deliver_at)
            queue = self._registry.peek(key)
            if queue is not None:
                queue.pushed([batch])

    def stored(self, batch: PushBatch) -> None:
        """Announce a batch that was stored later: from the spool or from operations."""
        self.pushed(batch, min((m.deliver_at for m in batch.messages if m.deliver_at is not None), default=None))

    def settled(self, settlements: Sequence[Settlement], results: Sequence[SettleResult]) -> None:
        """Announce settled messages, of one or several queues."""
        now = self._clock.now()
        for key in {settlement.queue for settlement in settlements}:
            self._chores.settled(key, now)
            queue = self._registry.peek(key)
            if queue is not None:
                queue.settled(settlements, results)

    def died(self, settlements: Sequence[Settlement], results: Sequence[SettleResult]) -> None:
        """Announce new dead letters to their dead-letter queues, and log those that are discarded."""
        queues: set[QueueKey] = set()
        for settlement, result in zip(settlements, results, strict=True):
            if result.dead_letter_queue is not None:
                queues.add(QueueKey(result.dead_letter_queue, settlement.queue.tenant))
            if result.status is SettleStatus.DISCARDED and not result.repeated:
                log.warning(
                    "dead letter discarded", queue=settlement.queue.name, seq=settlement.seq, group=settlement.group
                )
        for key in queues:
            self._chores.pushed(key, self._clock.now())
            self._registry.wake(key)
