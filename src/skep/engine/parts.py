"""The parts of an engine: how they are built from each other, started and stopped in order."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

from skep.clock import Clock, Instant
from skep.config import EngineSettings
from skep.crypto.master import MasterKeys
from skep.engine.access import Access
from skep.engine.admission import Admission, Recent
from skep.engine.announcer import Announcer
from skep.engine.browse import Browse
from skep.engine.caches import Caches
from skep.engine.chores import Chores
from skep.engine.dead_letters import DeadLetters
from skep.engine.declared import Declared
from skep.engine.decryption import Decryption
from skep.engine.door import INSIDE_SHARE, WAITING_SHARE, Door
from skep.engine.encryption import Encryption
from skep.engine.forgetting import Forgetting
from skep.engine.groups import Groups
from skep.engine.history import History
from skep.engine.inflight import InFlight
from skep.engine.log import Logs
from skep.engine.logical_queue import LogicalQueue, Surroundings
from skep.engine.polls import Safety
from skep.engine.pop.consumers import Consumers
from skep.engine.pop.dispenser import Dispenser
from skep.engine.push.buffer import Buffer
from skep.engine.push.entrance import Entrance
from skep.engine.push.operations import Operations
from skep.engine.push.spool.spool import Spool
from skep.engine.records import Records
from skep.engine.refusals import Refusals
from skep.engine.registry import Registry
from skep.engine.scheduled import Scheduled
from skep.engine.several_queues import SeveralQueues
from skep.engine.staging import Staging
from skep.engine.system_events import Follower
from skep.engine.timers import Timers
from skep.ids import IdMint
from skep.model import Queue, QueueKey
from skep.model.chores import Connections
from skep.store.protocol import PayloadVerbs, Store


class Parts:
    """The parts of an engine, their start and their stop."""

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
        """With a ``spool_folder``, pushes are kept there while the store is away.

        ``masters`` wrap the keys of encrypted queues. Without them there can be no encrypted queue.
        """
        self.settings = settings or EngineSettings()
        self.encryption = Encryption(store, clock, ids, masters)
        opened: PayloadVerbs = store if masters is None else Decryption(store, self.encryption)
        self.declared: Declared | None = None
        """Checks messages before they are stored; None while no spec declares a queue, so that pushes are not slowed."""
        self._store = store
        self._clock = clock
        self._ids = ids
        self._random = random
        self._limits = self.settings.limits
        self._in_flight = InFlight()
        self._timers = Timers(clock)
        self._make_queues(opened)
        self._make_ways_in(spool_folder)
        self._make_views(opened)

    def _make_queues(self, opened: PayloadVerbs) -> None:
        """Make the queues in memory, the waiting polls, and the follower of other servers' changes."""
        store, clock = self._store, self._clock
        self._chores = Chores(
            store,
            clock,
            self._random,
            self._timers,
            self.settings,
            self._wake,
            self._queue_found,
            self._tick,
            self.encryption.learn,
        )
        self._registry = Registry(lambda key: LogicalQueue(key, self._surroundings), clock, self.settings)
        self._dispenser = Dispenser(
            store, clock, self._ids, self._timers, self._in_flight, self.settings, self._registry.get
        )
        self._announcer = Announcer(clock, self._chores, self._registry)
        self._surroundings = Surroundings(
            store,
            opened,
            clock,
            self._timers,
            self._chores,
            self.settings,
            self._dispenser.abandoned,
            self._announcer.died,
            Safety(self._random, self.settings),
        )
        self.access = Access(store.access, clock, self._in_flight)
        self.refusals = Refusals(store.refusals, clock, self._timers, self._in_flight)
        self.caches = Caches(
            self._timers,
            self._in_flight,
            self._chores,
            self._registry,
            self._dispenser,
            self.encryption,
            self.access,
        )
        self._follower = Follower(store, clock, self.settings.follow_seconds, self.caches.heard, self.caches.missed)

    def _make_ways_in(self, spool_folder: Path | None) -> None:
        """Make the ways of a push (direct, queued, spooled, buffered), and admission, which decides between them."""
        store, clock, ids = self._store, self._clock, self._ids
        self._across = SeveralQueues(store, clock, self.settings, self._announcer)
        self.operations = Operations(
            store, clock, ids, self._timers, self._in_flight, self.settings, self._announcer, self.encryption
        )
        may_take = self.settings.admission.backlog_seconds
        self.admission = Admission(
            self.settings.admission,
            Door(clock, self._timers, INSIDE_SHARE * may_take, WAITING_SHARE * may_take),
            Recent(store.connections),
            self.operations,
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

    def _make_views(self, opened: PayloadVerbs) -> None:
        """Make the engine's interfaces for all other calls, by noun."""
        store, clock, ids = self._store, self._clock, self._ids
        self.log = Logs(store, opened, clock, self._in_flight, self._limits, self._dispenser, self._chores)
        self.staging = Staging(
            store, clock, ids, self._in_flight, self.settings, lambda: self.declared, self._announce, self.encryption
        )
        self.browse = Browse(store, opened, clock, self._in_flight, self._limits)
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
            store.scheduled, clock, self._in_flight, self._limits, self.encryption, self._chores, self._wake
        )
        self.forgetting = Forgetting(
            store,
            clock,
            self._in_flight,
            self._limits,
            self.scheduled,
            self.operations,
            self._chores.inspect,
            self._wake,
        )
        self.groups = Groups(store, clock, self._in_flight, self._chores.inspect, self._wake)
        self.consumers = Consumers(clock)
        self.history = History(store, opened, clock, self._in_flight, self.settings)
        self.records = Records(
            store.records, clock, ids, self._in_flight, self._limits, self._announce, self.encryption
        )

    async def start(self) -> None:
        """Start the timers, the spool, the operations, and the follower of other servers' changes."""
        self._store.on_news(self._wake, self._registry.look_anew)
        self._store.on_operations(self.operations.wake)
        if self.settings.shared:
            # Before the keys are loaded: else the news of a key that is destroyed meanwhile would be missed.
            await self._follower.note_position()
        await self.encryption.load()
        if self.spool is not None:
            # First, so that no push can overtake the pushes of an earlier run.
            await self.spool.open()
        if self.settings.shared:
            self._follower.start()
        self._chores.start()
        self.operations.start()

    async def stop(self) -> None:
        """Refuse new calls, answer waiting pops, finish calls under way, and end the timers. Nothing is lost."""
        self._in_flight.close()
        self._dispenser.end_polls()
        self.admission.end_waits()
        self.operations.end_waits()
        await self._follower.stop()
        await self._chores.stop()
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
        """Answer every waiting pop without messages: the server is about to close its connections."""
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
        """How many queues this server runs chores for."""
        return self._chores.queues

    @property
    def logical_queues(self) -> int:
        """How many queues are in memory."""
        return len(self._registry)

    @property
    def is_quiet(self) -> bool:
        """Whether no timer is overdue, and no chore or operation runs. Tests wait for this after they moved the clock."""
        return not self._timers.overdue and not self._chores.under_way and self.operations.quiet

    def connections(self) -> Connections:
        """How busy the store's connections are."""
        return self._store.connections()

    @property
    def store_away(self) -> bool:
        """Whether the store is known to be away."""
        return self.spool is not None and self.spool.away

    async def check_writable(self) -> None:
        """Raise the reason if the store takes no writes. With a spool this does nothing, as the spool watches the store."""
        if self.spool is None:
            await self._store.probe()

    def now(self) -> Instant:
        """The present instant of the engine's clock."""
        return self._clock.now()

    def steady(self) -> Instant:
        """The present instant on a line that never goes back, for durations."""
        return self._clock.steady()

    async def sleep_until(self, deadline: Instant) -> None:
        """Return at an instant of the engine's clock."""
        await self._clock.sleep_until(deadline)

    def _tick(self, now: Instant) -> None:
        self._registry.tick(now)
        self.consumers.drop_gone()

    def _queue_found(self, queue: Queue) -> None:
        if queue.settings.namespace is not None or queue.settings.task is not None:
            self._dispenser.queues_changed()

    def _announce(self, key: QueueKey, now: Instant) -> None:
        self._chores.pushed(key, now)
        self._wake(key)

    def _wake(self, key: QueueKey) -> None:
        self._registry.wake(key)
