"""What a server holds in memory of its store, and how it is kept true: queues, keys, data keys, polls that wait.

Whatever else remembers something of the store, such as the applied apps, is told when nothing remembered counts any more.
"""

from __future__ import annotations

from collections.abc import Callable

from skep.clock import Clock, Instant, seconds
from skep.engine.access import Access
from skep.engine.encryption import Encryption
from skep.engine.inflight import InFlight
from skep.engine.pop.dispenser import Dispenser
from skep.engine.registry import Registry
from skep.engine.timers import Timers
from skep.engine.upkeep import Upkeep
from skep.errors import SkepError
from skep.model import Queue, QueueKey
from skep.model.system_event import SystemEvent, SystemEventKind

READ_AGAIN_SECONDS = 1.0
"""After so long data keys are read again that could not be read because the store was away."""


class Caches:
    """Takes over what changed, here or elsewhere."""

    def __init__(
        self,
        clock: Clock,
        timers: Timers,
        in_flight: InFlight,
        upkeep: Upkeep,
        registry: Registry,
        dispenser: Dispenser,
        encryption: Encryption,
        access: Access,
    ) -> None:
        self._clock = clock
        self._timers = timers
        self._in_flight = in_flight
        self._upkeep = upkeep
        self._registry = registry
        self._dispenser = dispenser
        self._encryption = encryption
        self._access = access
        self._listeners: list[Callable[[], None]] = []

    def on_missed(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` when changes of the store were missed, or undone: nothing remembered of it counts any more."""
        self._listeners.append(listener)

    def changed(self, queue: Queue) -> Queue:
        """A queue was made, or its settings changed."""
        self._upkeep.changed(queue)
        self._dispenser.queues_changed()
        self._registry.wake(queue.key)
        return queue

    def gone(self, key: QueueKey) -> None:
        """A queue was deleted."""
        self._upkeep.forget(key)
        self._encryption.forget(key)
        self._dispenser.queues_changed()
        self._registry.wake(key)

    def heard(self, event: SystemEvent) -> None:
        """Some server changed something, perhaps this one."""
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
        """Whatever is remembered may be wrong: all of it is looked at anew."""
        self._upkeep.look_anew()
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
        """Until it is done: a key that was shredded elsewhere must not stay here because the store was away just then."""
        try:
            await self._encryption.load()
        except SkepError as error:
            if error.retryable:
                again = Instant(self._clock.now() + seconds(READ_AGAIN_SECONDS))
                self._timers.at(again, self._read_data_keys)
            raise
