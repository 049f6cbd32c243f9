"""The caches of a server, and how changes of the store reach them: queues, keys, data keys, waiting polls.

Other caches, such as that of the applied apps, register a listener for the case that all cached data may be stale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from skep.clock import seconds
from skep.engine.access import Access
from skep.engine.chores import Chores
from skep.engine.encryption import Encryption
from skep.engine.inflight import InFlight
from skep.engine.pop.dispenser import Dispenser
from skep.engine.registry import Registry
from skep.engine.timers import Timers
from skep.errors import SkepError
from skep.model import Queue, QueueKey
from skep.model.system_event import SystemEvent, SystemEventKind

READ_AGAIN_SECONDS = 1.0
"""How long to wait before data keys are read again, when the store was away."""


@dataclass(eq=False)
class Caches:
    """Brings changes of this and other servers into the caches."""

    _timers: Timers
    _in_flight: InFlight
    _chores: Chores
    _registry: Registry
    _dispenser: Dispenser
    _encryption: Encryption
    _access: Access
    _listeners: list[Callable[[], None]] = field(default_factory=list)
    _queue_listeners: list[Callable[[QueueKey], None]] = field(default_factory=list)

    def on_queue(self, listener: Callable[[QueueKey], None]) -> None:
        """Call ``listener`` when a queue was made, changed or deleted, here or on another server."""
        self._queue_listeners.append(listener)

    def on_missed(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when changes of the store were missed or undone, so that all cached data may be stale."""
        self._listeners.append(listener)

    def changed(self, queue: Queue) -> Queue:
        """Note that a queue was made, or that its settings changed."""
        self._chores.changed(queue)
        self._dispenser.queues_changed()
        self._registry.wake(queue.key)
        self._tell(queue.key)
        return queue

    def noted(self, key: QueueKey) -> None:
        """Note that what the SQS door keeps with a queue has changed."""
        self._tell(key)

    def _tell(self, key: QueueKey) -> None:
        for listener in self._queue_listeners:
            listener(key)

    def gone(self, key: QueueKey) -> None:
        """Note that a queue was deleted."""
        self._chores.forget(key)
        self._encryption.forget(key)
        self._dispenser.queues_changed()
        self._registry.wake(key)
        self._tell(key)

    def heard(self, event: SystemEvent) -> None:
        """Note a change that this or another server made."""
        match event.kind:
            case SystemEventKind.KEY_MADE | SystemEventKind.KEY_REVOKED:
                self._access.changed(event.key.name, event.kind is SystemEventKind.KEY_REVOKED)
            case SystemEventKind.DATA_KEY:
                self._read_data_keys()
            case SystemEventKind.QUEUE if event.queue is not None:
                self.changed(event.queue)
            case SystemEventKind.QUEUE:
                self.gone(event.key)

    def missed(self) -> None:
        """Read everything again, as all cached data may be stale."""
        self._chores.look_anew()
        self._access.changed(None, True)
        self._read_data_keys()
        self._dispenser.queues_changed()
        self._registry.look_anew()
        for listener in self._listeners:
            listener()

    def _read_data_keys(self) -> None:
        if not self._in_flight.closed:
            self._in_flight.spawn(self._load_data_keys(), "read the keys of encrypted queues anew")

    async def _load_data_keys(self) -> None:
        """Read the data keys, and try again while the store is away: a key that another server shredded must not stay here."""
        try:
            await self._encryption.load()
        except SkepError as error:
            if error.retryable:
                self._timers.after(seconds(READ_AGAIN_SECONDS), self._read_data_keys)
            raise
