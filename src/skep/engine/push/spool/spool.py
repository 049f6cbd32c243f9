"""The spool: keeps pushes on disk while the store is away, and stores them when it is back.

One turn of the loop both decides that a push must be spooled, and notes its partitions as diverted. A partition stays diverted until
after its record is stored, so that no later push to it can come first (I13).
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import msgspec
import structlog
from msgspec import Struct

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.batching import Lane
from skep.engine.encryption import Encryption
from skep.engine.push.spool.drain import RETRY_SECONDS, Drain, Given, SpoolStore, WaitingRecord
from skep.engine.push.spool.record import Group, Record, encode, groups_of
from skep.engine.push.spool.slot import Slot, SlotLimits, adopt_slots, check_format, take_slot
from skep.engine.push.spool.store_link import StoreLink
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import PushBatch, PushOutcome, PushResult, PushStatus, QueueKey, Tried
from skep.model.operation import operations_ahead

ADOPT_SECONDS = 10.0
PAUSE_SECONDS = 1.0
WORK_RECORDS = 10_000
"""How many waiting records are held in memory; beyond that no more are read."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Announce = Callable[[PushBatch], None]

log = structlog.get_logger("skep.spool")


class SpoolState(StrEnum):
    """The state of the spool: empty, filling (the store is away), or draining (the store is back)."""

    UP = "up"
    AWAY = "away"
    DRAINING = "draining"


class SpoolFigures(Struct, frozen=True, kw_only=True):
    """Spooled pushes and their outcomes. Counts are messages since the server started."""

    state: SpoolState = SpoolState.UP
    pending: int = 0
    flushed: int = 0
    failed: int = 0
    size_bytes: int = 0
    max_bytes: int = 0
    oldest_at: Instant | None = None
    away_since: Instant | None = None


class Diverted:
    """Partitions whose pushes must go through the spool, each with the number of pushes that hold it there."""

    def __init__(self) -> None:
        self.groups: Counter[Group] = Counter()
        self.queues: Counter[QueueKey] = Counter()

    def hold(self, groups: Iterable[Group]) -> None:
        """Count one more push for each of these partitions."""
        for group in groups:
            self.groups[group] += 1
            self.queues[group[0]] += 1

    def let_go(self, groups: Iterable[Group]) -> None:
        """Count one push less for each of these partitions."""
        for group in groups:
            _less(self.groups, group)
            _less(self.queues, group[0])


class Spool:
    """Open the spool before use; stop it before the store is closed. The next open stores the remaining pushes."""

    def __init__(
        self,
        folder: Path,
        store: SpoolStore,
        clock: Clock,
        ids: IdMint,
        settings: EngineSettings,
        announce: Announce,
        encryption: Encryption,
    ) -> None:
        limits = settings.limits
        self._folder = folder
        self._store = store
        self._clock = clock
        self._ids = ids
        self._settings = settings.spool
        self._read_messages, self._read_bytes = limits.merged_messages, limits.merged_bytes
        self._announce = announce
        self._link = StoreLink(store, clock, settings.spool, self._wake)
        self._drain = Drain(
            store, clock, self._link, settings.spool, limits, settings.create_queues_on_push, encryption
        )
        self._lane: Lane[Record, None] = Lane("spool", self._append, limits)
        self._thread = ThreadPoolExecutor(1, "skep-spool")
        self._limits = SlotLimits(self._settings.max_bytes, self._settings.free_bytes)
        self._slots: list[Slot] = []
        self._own: Slot | None = None
        """The slot that pushes are written to; None while a damaged slot is replaced."""
        self._arriving = Diverted()
        """Partitions diverted by pushes that have not been answered."""
        self._spooled = Diverted()
        """Partitions diverted by pushes in the files."""
        self._work: list[WaitingRecord] = []
        self._unread = False
        self._pending = self._flushed = self._failed = 0
        self._oldest_at: Instant | None = None
        self._awake = asyncio.Event()
        self._stopping = False
        self._draining: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Take a slot, read it and the slots without an owner, and begin to store their pushes."""
        await self._in_thread(check_format, self._folder)
        await self._take_slots()
        if self._pending:
            log.info("messages are in the spool since an earlier run", messages=self._pending)
        self._link.start()
        self._draining = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish the work under way. The pushes left in the files stay until the next start."""
        self._stopping = True
        self._wake()
        await self._lane.drained()
        await self._link.stop()
        if self._draining is not None:
            await self._draining
        await self._in_thread(self._close_slots)
        self._thread.shutdown()
        if self._pending:
            log.warning("messages stay in the spool until the next start", messages=self._pending)

    def figures(self) -> SpoolFigures:
        """The present figures of the spool."""
        away = self._link.away
        return SpoolFigures(
            state=SpoolState.AWAY if away else SpoolState.DRAINING if self._pending else SpoolState.UP,
            pending=self._pending,
            flushed=self._flushed,
            failed=self._failed,
            size_bytes=sum(slot.size_bytes for slot in self._slots),
            max_bytes=self._settings.max_bytes,
            oldest_at=self._oldest_at if self._pending else None,
            away_since=self._link.away_since,
        )

    @property
    def away(self) -> bool:
        """Whether the store is away."""
        return self._link.away

    def doubt(self) -> None:
        """Find out whether the store is away, as it could not be reached."""
        self._link.doubt()

    def takes(self, batch: PushBatch) -> bool:
        """Whether a push must be spooled: the store is away, or the spool has an earlier push to one of its partitions."""
        if self._link.away or self._own is None:
            return True
        return any(self._holds(held, batch) for held in (self._arriving, self._spooled) if held.groups)

    def _holds(self, held: Diverted, batch: PushBatch) -> bool:
        for message in batch.messages:
            queue = message.queue
            if queue in held.queues:
                known = self._drain.queues.get(queue)
                # An unknown queue may be fifo, and then all its partitions are one.
                if known is None or known.fifo or (queue, message.partition) in held.groups:
                    return True
        return False

    def check_nothing_ahead(self, batch: PushBatch, queue: QueueKey | None = None) -> None:
        """Raise OPERATIONS_AHEAD for a push that cannot be spooled and would overtake a spooled one. With ``queue``, any partition counts.

        While the store is away this does nothing: the store's own error says so.
        """
        is_ahead = queue in self._arriving.queues or queue in self._spooled.queues
        if not self._link.away and (is_ahead or self.takes(batch)):
            raise operations_ahead()

    async def push(self, batch: PushBatch) -> PushOutcome:
        """Put a push on disk, whole or not at all."""
        return await self._push(Record(self._ids.mint(), self._clock.now(), batch))

    async def push_tried(self, batch: PushBatch, since: Instant) -> PushOutcome:
        """Put a push on disk that was tried, and may be stored."""
        self._link.doubt()
        now = self._clock.now()
        tried = Tried(min(since, now), now, self._store.session)
        record = Record(self._ids.mint(), now, msgspec.structs.replace(batch, tried=tried))
        self._drain.attempts[record.id] = self._link.attempt
        try:
            return await self._push(record)
        except SkepError:
            self._drain.attempts.pop(record.id, None)
            raise

    async def _push(self, record: Record) -> PushOutcome:
        batch = record.batch
        groups = groups_of(batch)
        size = sum(len(message.payload) for message in batch.messages)
        # Held here until the push is answered. `_append` holds the partitions for the record, also when its caller has gone.
        self._arriving.hold(groups)
        try:
            await self._lane.submit(record, len(batch.ids), size)
        finally:
            self._arriving.let_go(groups)
        return buffered(batch)

    async def _append(self, records: list[Record]) -> Sequence[None]:
        slot = self._own
        if self._stopping:
            raise SkepError(Code.STOPPING, "the server is stopping")
        if slot is None:
            raise SkepError(Code.STORE_UNAVAILABLE, "the spool's file is damaged, and is being replaced; try again")
        for record in records:
            self._spooled.hold(record.groups())
            self._oldest_at = self._oldest_at if self._pending else record.spooled_at
            self._pending += len(record.batch.ids)
        try:
            await self._in_thread(slot.append, records)
        except BaseException:
            for record in records:
                self._spooled.let_go(record.groups())
                self._pending -= len(record.batch.ids)
            raise
        finally:
            self._wake()
        self._unread = True
        return [None] * len(records)

    def _wake(self) -> None:
        self._awake.set()

    async def _run(self) -> None:
        adopt_at = Instant(self._clock.steady() + seconds(ADOPT_SECONDS))
        while not self._stopping:
            self._awake.clear()
            now = self._clock.steady()
            if adopts := now >= adopt_at:  # whether it fails or not: a time that has passed lets nobody sleep
                adopt_at = Instant(now + seconds(ADOPT_SECONDS))
            try:
                if self._own is None or any(slot.damaged for slot in self._slots):
                    await self._replace_damaged()
                if adopts:
                    await self._adopt()
                wake_at = await self._step()
            except SkepError as error:
                if error.code is Code.STORE_UNAVAILABLE:
                    self._link.doubt()
                wake_at = Instant(self._clock.steady() + seconds(PAUSE_SECONDS))
                log.warning("draining the spool has to wait", error=str(error))
            except Exception:  # a failing disk, say: spooled pushes must not be given up for it
                log.error("draining the spool failed", traceback=traceback.format_exc(limit=-8))
                wake_at = Instant(self._clock.steady() + seconds(PAUSE_SECONDS))
            if wake_at != 0:
                await self._sleep(min(wake_at or adopt_at, adopt_at))

    async def _step(self) -> Instant | None:
        """Store the next records. Returns when to go on: 0 is at once, None is at the next wake-up."""
        if self._link.away:
            return None
        await self._read()
        if not self._work:
            return None
        await self._drain.learn(self._work)
        chosen = self._drain.choose(self._work)
        if not chosen:
            return self._next_retry()
        done: list[WaitingRecord] = []

        def stored(one: WaitingRecord, outcome: PushOutcome) -> None:
            self._flushed += len(one.record.batch.ids)
            if outcome.recorded is None:
                self._announce(one.record.batch)
            done.append(one)

        given = await self._drain.store_them([one for one in chosen if one.given_up is None], stored)
        given += [Given(one, one.given_up, to_dead_letters=True) for one in chosen if one.given_up is not None]
        try:
            for one in given:
                await self._give_up(one)
                done.append(one.waiting)
        finally:
            await self._finish(done)
        return Instant(0) if done else self._next_retry()

    def _next_retry(self) -> Instant:
        """The earliest retry of the waiting records."""
        now = self._clock.steady()
        return min(
            (one.retry_at for one in self._work if one.retry_at > now), default=Instant(now + seconds(RETRY_SECONDS))
        )

    async def _read(self) -> None:
        if self._unread and len(self._work) < WORK_RECORDS:
            self._unread = False  # before the read, as a push that is appended meanwhile sets it again
            for slot in self._slots:
                taken, damaged = await self._in_thread(slot.take, self._read_messages, self._read_bytes)
                self._unread = self._unread or bool(taken)
                self._failed += damaged
                self._work += [WaitingRecord(*one) for one in taken]
        if self._work:
            self._oldest_at = self._work[0].record.spooled_at

    async def _give_up(self, given: Given) -> None:
        """Give a record up: noted on disk first, so that it is not stored after all if the process dies half-way."""
        slot, number, record = given.waiting.slot, given.waiting.number, given.waiting.record
        await self._in_thread(slot.give_up, number, given.error)
        aside = slot.aside(f"{record.name}.record")
        buried = given.to_dead_letters and await self._drain.bury(given)
        if buried:
            aside.unlink(missing_ok=True)
        else:
            await self._in_thread(slot.set_aside, aside.name, encode(record))
        self._failed += len(record.batch.ids)
        log.error(
            "a spooled push could not be stored", record=record.name, messages=len(record.batch.ids), error=given.error,
            kept="the dead-letter queue" if buried else str(aside),
        )  # fmt: skip

    async def _finish(self, done: list[WaitingRecord]) -> None:
        if done:
            finished = {id(one) for one in done}
            self._work = [one for one in self._work if id(one) not in finished]
            for one in done:
                self._pending -= len(one.record.batch.ids)
                self._drain.attempts.pop(one.record.id, None)
                self._spooled.let_go(one.record.groups())
            for slot in {one.slot for one in done}:
                await self._in_thread(slot.finish, [one.number for one in done if one.slot is slot])
            if not self._pending:
                self._drain.forget()
                log.info("the spool is empty", flushed=self._flushed, failed=self._failed)

    async def _take_slots(self) -> None:
        own = await self._in_thread(take_slot, self._folder, self._limits)
        await self._add(own)
        await self._adopt()
        self._own = own

    async def _adopt(self) -> None:
        """Take over the slots of processes that died."""
        for slot in await self._in_thread(adopt_slots, self._folder, self._limits):
            log.info("a slot of the spool is taken over", slot=slot.folder.name)
            await self._add(slot)

    async def _add(self, slot: Slot) -> None:
        found: list[tuple[set[Group], int, Instant]] = []

        def see(record: Record) -> None:
            found.append((record.groups(), len(record.batch.ids), record.spooled_at))

        try:
            self._failed += await self._in_thread(slot.load, see)
        except BaseException:
            slot.close()
            raise
        self._slots.append(slot)
        for groups, messages, spooled_at in found:
            self._spooled.hold(groups)
            self._oldest_at = self._oldest_at if self._pending else spooled_at
            self._pending += messages
        self._unread = True

    async def _replace_damaged(self) -> None:
        """Open all slots again, which sets a damaged file aside. Meanwhile pushes are refused, as the order is unknown."""
        self._own = None
        await self._lane.drained()
        await self._in_thread(self._close_slots)
        self._work.clear()
        self._spooled = Diverted()
        self._pending = 0
        await self._take_slots()

    def _close_slots(self) -> None:
        while self._slots:
            self._slots.pop().close()

    async def _sleep(self, until: Instant) -> None:
        """Sleep until an instant of the steady clock, or until a wake-up."""
        left = until - self._clock.steady()
        awake = asyncio.ensure_future(self._awake.wait())
        asleep = asyncio.ensure_future(self._clock.sleep_until(Instant(self._clock.now() + left)))
        await asyncio.wait({awake, asleep}, return_when=asyncio.FIRST_COMPLETED)
        for task in (awake, asleep):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _in_thread(self, work: Callable[[*Ts], T], *arguments: *Ts) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def buffered(batch: PushBatch) -> PushOutcome:
    """The answer to a push that is spooled or buffered."""
    results = [
        PushResult(PushStatus.BUFFERED, id_, None, message.transaction_id, message.trace_id or id_)
        for message, id_ in zip(batch.messages, batch.ids, strict=True)
    ]
    return PushOutcome(results, {})


def _less(counter: Counter[T], key: T) -> None:
    left = counter[key] - 1
    if left > 0:
        counter[key] = left
    else:
        del counter[key]
