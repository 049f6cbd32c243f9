"""The chores of queues over time: scheduled messages enter the log, old messages expire, retained ones are removed, counters are sampled,
deleted queues are swept, clocks that were set back are put right, and the store maintains itself (checkpoints, compaction).

Each chore has one timer, set to its earliest deadline. At the start the store gives it; later each pass returns the next one, and
pushes, pops and settlements may bring it forward. A pass is bounded, and runs again at once while there is more to do.
A chore that fails is logged and tried again later; it never ends the others. Several servers may run the same chores.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from random import Random
from typing import Protocol

import structlog
from msgspec import Struct

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.timers import Timer, Timers
from skep.errors import Code, SkepError
from skep.model import Queue, QueueKey
from skep.model.chores import Chore
from skep.store.protocol.chores import ChoreVerbs
from skep.store.protocol.queues import QueueVerbs
from skep.store.rules import LOOK_AGAIN_SECONDS, NOTICED_MICROS, dead_letter_target, may_lose_messages

FIRST_BACKOFF = seconds(1)
MAX_BACKOFF = seconds(60)
RETENTION_SPACING = seconds(1)
"""A settlement makes a retention pass due after this time, so that not each ack causes a pass."""
PAGE = 100

log = structlog.get_logger("skep.chores")


class Timed(Struct, eq=False):
    """A chore with its timer. ``due`` is when it runs next, None when nothing is planned."""

    name: str
    run: Callable[[Instant], Awaitable[Chore]]
    key: QueueKey | None = None
    live: bool = True
    due: Instant | None = None
    timer: Timer | None = None
    queued: bool = False
    running: bool = False
    failures: int = 0


class QueueChores(Struct, eq=False):
    """The chores of one queue, and the times after a push or a settlement when they are due."""

    promote: Timed
    expire: Timed
    retain: Timed
    phase: float
    """The queue's turn (0 to 1) within a round over all queues, so that their chores spread out."""
    dead_letters: QueueKey | None = None
    queue: Queue | None = None
    looks_after_leases: bool = True
    expire_after: int | None = None
    retain_after: int | None = None
    settled_after: int | None = None
    waits_for_archive: bool = False

    @property
    def chores(self) -> tuple[Timed, Timed, Timed]:
        """All chores of the queue."""
        return self.promote, self.expire, self.retain

    def learn(self, queue: Queue) -> None:
        """Update the plan from a queue's settings."""
        settings = queue.settings
        name = dead_letter_target(queue.key.name, settings, queue.holds_dead_letters)
        self.dead_letters = None if name is None else QueueKey(name, queue.key.tenant)
        self.queue = queue
        self.looks_after_leases = settings.max_attempts > 0 or may_lose_messages(settings, queue.holds_dead_letters)
        self.expire_after = _shortest(settings.max_age_seconds, settings.max_wait_seconds)
        # Also by max_age_seconds: the queue may have become a dead-letter queue since.
        self.retain_after = _shortest(settings.retention_seconds, settings.max_age_seconds)
        # What is settled when its retention is over already: where that is long, the store looks for it often enough.
        late = settings.retention_seconds if settings.retention_seconds < LOOK_AGAIN_SECONDS else 0.0
        settled = _shortest(settings.completed_retention_seconds, late)
        self.settled_after = None if settled is None else min(settled, RETENTION_SPACING)
        self.waits_for_archive = settings.retention_requires_archive


class ChoresAndQueues(ChoreVerbs, QueueVerbs, Protocol):
    """The store's verbs for chores and queues."""


class Chores:
    """All chores of an engine, each at its time, a bounded number at once."""

    def __init__(
        self,
        store: ChoresAndQueues,
        clock: Clock,
        random: Random,
        timers: Timers,
        settings: EngineSettings,
        on_ready: Callable[[QueueKey], None],
        on_queue: Callable[[Queue], None],
        on_tick: Callable[[Instant], None],
        on_settings: Callable[[Queue], None],
    ) -> None:
        """``on_ready`` is called for queues where a chore moved messages, ``on_queue`` for queues found for the first time.

        ``on_settings`` is called for every queue that was read.
        """
        self._store = store
        self._clock = clock
        self._random = random
        self._timers = timers
        self._settings = settings
        self._limit = settings.limits.chore_rows
        self._on_ready = on_ready
        self._on_queue = on_queue
        self._on_tick = on_tick
        self._on_settings = on_settings
        self._plans: dict[QueueKey, QueueChores] = {}
        self._inspections: dict[QueueKey, Timed] = {}
        self._ready: deque[Timed] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_work = 0
        self._stopping = False
        self._discovery = Timed("discover", self._discover)
        self._anew = True
        """Whether the next round over all queues runs their chores at once. Otherwise each queue has its turn within the round."""
        self._back = 0
        """By how much the clock had gone back when the store was last told the time."""

    def start(self) -> None:
        """Set the first timers: every chore runs once now."""
        now = self._clock.now()
        self._back = self._clock.steady() - self._clock.now()
        self._due(self._discovery, now)
        for name, run in (
            ("put_right", self._put_right),
            ("sample", self._sample),
            ("sweep", self._sweep),
            ("maintain", self._maintain),
        ):
            self._due(Timed(name, run), now)

    async def stop(self) -> None:
        """Start no more chores, and wait for those under way."""
        self._stopping = True
        self._ready.clear()
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def queues(self) -> int:
        """How many queues have chores on this server."""
        return len(self._plans)

    @property
    def under_way(self) -> int:
        """How many chores run or wait for their turn."""
        return len(self._ready) + len(self._tasks)

    # calls that make chores due

    def pushed(self, key: QueueKey, now: Instant, deliver_at: Instant | None = None) -> None:
        """Note a push; ``deliver_at`` is the time of its first scheduled message."""
        plan = self._plans.get(key)
        if plan is None:
            self.inspect(key)
            return
        if deliver_at is not None:
            self._due(plan.promote, deliver_at)
        if plan.expire_after is not None:
            self._due(plan.expire, Instant(now + plan.expire_after))
        if plan.retain_after is not None:
            self._due(plan.retain, Instant(now + plan.retain_after))

    def leased(self, key: QueueKey, deadline: Instant) -> None:
        """Note a lease until ``deadline``. If it runs out, some of its messages may become dead letters, or expire."""
        plan = self._plans.get(key)
        if plan is None:
            self.inspect(key)
        elif plan.looks_after_leases:
            self._due(plan.expire, deadline)

    def settled(self, key: QueueKey, now: Instant) -> None:
        """Note settled messages: retention may remove them later."""
        plan = self._plans.get(key)
        if plan is not None and plan.settled_after is not None:
            self._due(plan.retain, Instant(now + plan.settled_after))

    def archived(self, key: QueueKey, now: Instant) -> None:
        """Note a report of the archive: retention may have waited for it."""
        plan = self._plans.get(key)
        if plan is not None and plan.waits_for_archive:
            self._due(plan.retain, Instant(now + RETENTION_SPACING))

    def changed(self, queue: Queue) -> None:
        """Note a new queue, or changed settings: all its chores run again."""
        key = queue.key
        plan = self._plans.get(key)
        fresh = plan is None or plan.queue is None or plan.queue.id != queue.id
        if plan is None:
            plan = self._plans[key] = QueueChores(
                Timed("promote", lambda now: self._store.promote(key, now, self._limit), key),
                Timed("expire", lambda now: self._store.expire(key, now, self._limit), key),
                Timed("retain", lambda now: self._store.retain(key, now, self._limit), key),
                self._random.random(),
            )
        plan.learn(queue)
        self._on_settings(queue)
        now = self._clock.now()
        for timed in plan.chores:
            self._due(timed, now)
        if fresh:
            self._on_queue(queue)

    def forget(self, key: QueueKey) -> None:
        """Cancel the chores of a deleted queue."""
        plan = self._plans.pop(key, None)
        if plan is not None:
            for timed in plan.chores:
                timed.live = False
                if timed.timer is not None:
                    timed.timer.cancel()

    def look_anew(self) -> None:
        """Look at every queue again, as changes may have been missed."""
        self._anew = True
        self._due(self._discovery, self._clock.now())

    def inspect(self, key: QueueKey) -> None:
        """Read a queue's settings from the store, then run its chores."""
        if key in self._inspections:
            return
        timed = self._inspections[key] = Timed("inspect", lambda _: self._inspect(key), key)
        self._due(timed, self._clock.now())

    # running chores

    def _due(self, timed: Timed, at: Instant) -> None:
        if self._stopping or not timed.live or (timed.due is not None and timed.due <= at):
            return
        timed.due = at
        if timed.running or timed.queued:
            return
        if timed.timer is not None:
            timed.timer.cancel()
        if at <= self._clock.now():
            self._queue(timed)
        else:
            timed.timer = self._timers.at(at, lambda: self._queue(timed))

    def _queue(self, timed: Timed) -> None:
        timed.timer = None
        timed.queued = True
        self._ready.append(timed)
        # Count the workers, not ``_tasks``: a task that found no more work stays there for a moment.
        if self._at_work < self._settings.limits.chores_in_flight:
            self._at_work += 1
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        try:
            await self._work_off()
        finally:
            self._at_work -= 1

    async def _work_off(self) -> None:
        while self._ready and not self._stopping:
            timed = self._ready.popleft()
            timed.queued = False
            timed.due = None
            timed.running = True
            try:
                again_at = await self._pass(timed)
            finally:
                timed.running = False
            # While the chore ran, `_due` set ``due`` but no timer.
            waiting, timed.due = timed.due, None
            for at in (again_at, waiting):
                if at is not None:
                    self._due(timed, at)

    async def _pass(self, timed: Timed) -> Instant | None:
        """Run one bounded pass; returns the time of the next one."""
        now = self._clock.now()
        try:
            chore = await timed.run(now)
        except Exception as error:
            if isinstance(error, SkepError) and error.code is Code.QUEUE_NOT_FOUND and timed.key is not None:
                self.forget(timed.key)
                return None
            backoff = min(MAX_BACKOFF, FIRST_BACKOFF << min(timed.failures, 10))
            timed.failures += 1
            log.warning(
                "chore failed",
                chore=timed.name,
                queue=timed.key.name if timed.key else None,
                error=str(error),
                failures=timed.failures,
                retry_seconds=backoff / FIRST_BACKOFF,
                exc_info=not isinstance(error, SkepError),
            )
            return Instant(self._clock.now() + backoff)
        timed.failures = 0
        now = self._after(now, 0)
        self._tell(timed, chore, now)
        if chore.more:
            return now
        if chore.next_at is not None and chore.next_at <= now:
            # The store says "due already", but did nothing: wait, so that this loop does not spin.
            return Instant(now + FIRST_BACKOFF)
        return chore.next_at

    def _after(self, began: Instant, micros: int) -> Instant:
        """So long after a pass began. A clock that was put back during the pass does not delay it."""
        return Instant(min(began, self._clock.now()) + micros)

    def _tell(self, timed: Timed, chore: Chore, now: Instant) -> None:
        """Wake polls of the queues where a chore made messages ready."""
        if timed.key is None:
            return
        if chore.done:
            self._on_ready(timed.key)
        plan = self._plans.get(timed.key)
        if plan is not None and timed is plan.promote and chore.done:
            self.pushed(timed.key, now)  # what entered the log grows old like any other message
        if plan is not None and timed is plan.expire and plan.dead_letters is not None:
            if chore.done:
                self.pushed(plan.dead_letters, now)
            # Also when there was nothing to do: an earlier pop may have buried expired messages, which it does not announce.
            self._on_ready(plan.dead_letters)

    async def _inspect(self, key: QueueKey) -> Chore:
        try:
            queue = await self._store.get_queue(key)
        finally:
            self._inspections.pop(key, None)
        if queue is not None:
            self.changed(queue)
        else:
            self.forget(key)
        return Chore()

    async def _discover(self, now: Instant) -> Chore:
        """Look at every queue; in a shared store again and again."""
        at_once, self._anew = self._anew, False
        try:
            unseen = await self._look_at_all(now, at_once)
        except BaseException:
            self._anew = self._anew or at_once
            raise
        for key in unseen:
            # Another server deleted it, or made it again during the walk: read it by itself.
            self.inspect(key)
        if not self._settings.shared:
            return Chore()
        return Chore(next_at=self._after(now, seconds(self._settings.discover_seconds)))

    async def _look_at_all(self, now: Instant, at_once: bool) -> set[QueueKey]:
        """Look at all queues of the store; returns the known queues that were not found."""
        unseen = set(self._plans)
        tenant = ""
        while tenants := await self._store.tenants(after=tenant, limit=PAGE):
            for tenant in tenants:
                name = ""
                while queues := await self._store.list_queues(tenant, after=name, limit=PAGE):
                    for queue in queues:
                        unseen.discard(queue.key)
                        self._seen(queue, now, at_once)
                    name = queues[-1].key.name
        return unseen

    def _seen(self, queue: Queue, now: Instant, at_once: bool) -> None:
        """Plan the chores of a queue that was found. A known queue has work left only from a dead server, so it waits for its turn."""
        plan = self._plans.get(queue.key)
        if at_once or plan is None or plan.queue != queue:
            self.changed(queue)
            return
        at = self._after(now, seconds(self._settings.discover_seconds * plan.phase))
        for timed in plan.chores:
            self._due(timed, at)

    async def _put_right(self, now: Instant) -> Chore:
        # In this order, so that a clock that goes ahead between the two does not seem to have gone back.
        back = self._clock.steady() - self._clock.now()
        if back - self._back > NOTICED_MICROS:
            # The clock was ahead, perhaps too briefly for the store to have noted that time.
            await self._store.put_right(Instant(now + back - self._back), self._limit)
        self._back = max(self._back, back)
        done = await self._store.put_right(now, self._limit)
        if done.done:
            # All plans and waits were made by another time.
            self.look_anew()
            for key in list(self._plans):
                self._on_ready(key)
        return Chore(done.done, done.more, self._after(now, seconds(self._settings.sample_seconds)))

    async def _sample(self, now: Instant) -> Chore:
        self._on_tick(now)
        await self._store.sample(now)
        return Chore(next_at=self._after(now, seconds(self._settings.sample_seconds)))

    async def _sweep(self, now: Instant) -> Chore:
        swept = await self._store.sweep(now, self._limit)
        latest = self._after(now, seconds(self._settings.sweep_seconds))
        # Always a whole interval later: sweeping is never urgent.
        return Chore(done=swept.done, more=swept.more, next_at=latest)

    async def _maintain(self, now: Instant) -> Chore:
        await self._store.maintain()
        return Chore(next_at=self._after(now, seconds(self._settings.maintain_seconds)))


def _shortest(*durations: float) -> int | None:
    """The shortest duration above 0, in microseconds."""
    return min((seconds(duration) for duration in durations if duration > 0), default=None)
