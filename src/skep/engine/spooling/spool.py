"""The spool: takes pushes while the store is away, and brings them into it when it is back.

Whether a push has to go this way is decided, and where it is noted that it does, in one turn of the loop: a partition stays
diverted from before its record is written until after it is stored, so that no later push to it can come first (I13).
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
from typing import TypeVar

import msgspec
import structlog
from msgspec import Struct

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.batching import Lane
from skep.engine.encryption import Encryption
from skep.engine.spooling import kept
from skep.engine.spooling.draining import RETRY_SECONDS, Drain, Given, WaitingRecord
from skep.engine.spooling.kept import Group, Record, groups_of
from skep.engine.spooling.link import Link
from skep.engine.spooling.reading import SpoolReader, Taken
from skep.engine.spooling.slots import Slot, SpoolLimits, adopt_slots, take_slot
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import PushBatch, PushOutcome, PushResult, PushStatus, QueueKey, Tried
from skep.model.operation import operations_ahead
from skep.store.protocol import Store

ADOPT_SECONDS = 10.0
PAUSE_SECONDS = 1.0
WORK_RECORDS = 10_000
"""How many records that have to wait are held in memory; beyond that nothing more is read."""

T = TypeVar("T")
Announce = Callable[[PushBatch], None]

log = structlog.get_logger("skep.spool")


class SpoolState(StrEnum):
    """How things stand: nothing is spooled; the store is away; it is back and what was spooled goes into it."""

    UP = "up"
    AWAY = "away"
    DRAINING = "draining"


class SpoolFigures(Struct, frozen=True, kw_only=True):
    """What is in the spool, and what became of what was. Counts are of messages, since the server started."""

    state: SpoolState = SpoolState.UP
    pending: int = 0
    flushed: int = 0
    failed: int = 0
    size_bytes: int = 0
    max_bytes: int = 0
    oldest_at: Instant | None = None
    away_since: Instant | None = None


class Spool:
    """Open it before use; stop it before the store is closed. What is not stored by then is when it is opened again."""

    def __init__(
        self,
        folder: Path,
        store: Store,
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
        self._link = Link(store, clock, settings.spool, self._wake)
        self._drain = Drain(
            store, clock, self._link, settings.spool, limits, settings.create_queues_on_push, encryption
        )
        self._lane: Lane[Record, None] = Lane("spool", self._append, limits)
        self._thread = ThreadPoolExecutor(1, "skep-spool")
        self._reader = SpoolReader()
        self._slot: Slot | None = None
        self._limits = SpoolLimits(self._settings.max_bytes, self._settings.free_bytes, self._settings.segment_bytes)
        self._diverted: Counter[Group] = Counter()
        self._queues: Counter[QueueKey] = Counter()
        self._work: list[WaitingRecord] = []
        self._unread = False
        self._pending = self._flushed = self._failed = 0
        self._oldest_at: Instant | None = None
        self._awake = asyncio.Event()
        self._stopping = False
        self._draining: asyncio.Task[None] | None = None

    # --- its own life -------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Take a slot, see what is in it and in those that nobody has, and begin to bring that into the store."""
        self._slot = await self._in_thread(lambda: take_slot(self._folder, self._limits))
        await self._add(self._slot)
        await self._adopt()
        if self._pending:
            log.info("messages are in the spool since an earlier run", messages=self._pending)
        self._link.start()
        self._draining = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Finish what is under way. What is left in the files is there when the next one opens them."""
        self._stopping = True
        self._wake()
        await self._lane.drained()
        await self._link.stop()
        if self._draining is not None:
            await self._draining
        await self._in_thread(self._reader.close)
        self._thread.shutdown()
        if self._pending:
            log.warning("messages stay in the spool until the next start", messages=self._pending)

    def figures(self) -> SpoolFigures:
        """How things stand."""
        away = self._link.away
        slots = self._reader.slots
        return SpoolFigures(
            state=SpoolState.AWAY if away else SpoolState.DRAINING if self._pending else SpoolState.UP,
            pending=self._pending,
            flushed=self._flushed,
            failed=self._failed,
            size_bytes=sum(slot.size_bytes for slot in slots),
            max_bytes=self._settings.max_bytes,
            oldest_at=self._oldest_at if self._pending else None,
            away_since=self._link.away_since,
        )

    # --- pushes -------------------------------------------------------------------------------------------------

    @property
    def away(self) -> bool:
        """Whether the store is away."""
        return self._link.away

    def doubt(self) -> None:
        """The store could not be reached: find out whether it is away."""
        self._link.doubt()

    def takes(self, batch: PushBatch) -> bool:
        """Whether a push has to go this way: the store is away, or an earlier one to a partition of it is still here."""
        if self._link.away:
            return True
        if not self._diverted:
            return False
        for message in batch.messages:
            queue = message.queue
            if queue in self._queues:
                known = self._drain.queues.get(queue)
                # Of a queue of which that is not known yet, all partitions may be one.
                if known is None or known.fifo or (queue, message.partition) in self._diverted:
                    return True
        return False

    def check_nothing_ahead(self, batch: PushBatch, queue: QueueKey | None = None) -> None:
        """Refuse what cannot be spooled and would overtake what is: OPERATIONS_AHEAD. Of a ``queue`` any partition counts.

        While the store is away it says so itself.
        """
        if not self._link.away and (self.takes(batch) or queue in self._queues):
            raise operations_ahead()

    async def push(self, batch: PushBatch) -> PushOutcome:
        """Put a push on disk, whole or not at all."""
        return await self._push(Record(self._ids.mint(), self._clock.now(), batch))

    async def push_tried(self, batch: PushBatch, since: Instant) -> PushOutcome:
        """Put a push on disk that was tried: nobody knows whether the store has it."""
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
        # Held here until it is known what became of it; `_append` holds it on for the record, though its caller may have gone.
        self._hold(groups)
        try:
            await self._lane.submit(record, len(batch.ids), size)
        finally:
            self._let_go(groups)
        return buffered(batch)

    async def _append(self, records: list[Record]) -> Sequence[None]:
        slot = self._slot
        if slot is None or self._stopping:
            raise SkepError(Code.STOPPING, "the server is stopping")
        for record in records:
            self._hold(record.groups())
            self._oldest_at = self._oldest_at if self._pending else record.spooled_at
            self._pending += len(record.batch.ids)
        try:
            await self._in_thread(lambda: slot.append([kept.encode(record) for record in records]))
        except BaseException:
            for record in records:
                self._let_go(record.groups())
                self._pending -= len(record.batch.ids)
            raise
        self._unread = True
        self._wake()
        return [None] * len(records)

    def _hold(self, groups: Iterable[Group]) -> None:
        for group in groups:
            self._diverted[group] += 1
            self._queues[group[0]] += 1

    def _let_go(self, groups: Iterable[Group]) -> None:
        for group in groups:
            _less(self._diverted, group)
            _less(self._queues, group[0])

    # --- draining -----------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._awake.set()

    async def _run(self) -> None:
        adopt_at = Instant(self._clock.steady() + seconds(ADOPT_SECONDS))
        while not self._stopping:
            self._awake.clear()
            try:
                now = self._clock.steady()
                if now >= adopt_at:
                    await self._adopt()
                    adopt_at = Instant(now + seconds(ADOPT_SECONDS))
                wake_at = await self._step()
            except SkepError as error:
                if error.code is Code.STORE_UNAVAILABLE:
                    self._link.doubt()
                wake_at = Instant(self._clock.steady() + seconds(PAUSE_SECONDS))
                log.warning("draining the spool has to wait", error=str(error))
            except Exception:  # a disk that fails, say: what is in the spool must not be given up for it
                log.error("draining the spool failed", traceback=traceback.format_exc(limit=-8))
                wake_at = Instant(self._clock.steady() + seconds(PAUSE_SECONDS))
            if wake_at != 0:
                await self._sleep(min(wake_at or adopt_at, adopt_at))

    async def _step(self) -> Instant | None:
        """Bring the next records into the store. When to go on: 0 is at once, None when something wakes us."""
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

        kept_aside = await self._kept_aside(chosen)
        given = await self._drain.store_them([one for one in chosen if one not in kept_aside], stored)
        given += [Given(one, "given up before", to_dead_letters=True) for one in kept_aside]
        try:
            for one in given:
                await self._give_up(one)
                done.append(one.waiting)
        finally:
            await self._finish(done)
        return Instant(0) if done else self._next_retry()

    def _next_retry(self) -> Instant:
        """When the first of those may go on that wait for a time; the others wait for them."""
        now = self._clock.steady()
        return min(
            (one.retry_at for one in self._work if one.retry_at > now), default=Instant(now + seconds(RETRY_SECONDS))
        )

    async def _read(self) -> None:
        if self._unread and len(self._work) < WORK_RECORDS:
            self._unread = False  # before it is read, for what is appended meanwhile sets it again
            taken, damaged = await self._in_thread(lambda: self._reader.take(self._read_messages, self._read_bytes))
            self._unread = self._unread or bool(taken)
            self._failed += damaged
            self._work += [WaitingRecord(record, segment) for record, segment in taken]
        if self._work:
            self._oldest_at = self._work[0].record.spooled_at

    async def _kept_aside(self, chosen: list[WaitingRecord]) -> list[WaitingRecord]:
        """Those that were given up before, by an earlier run that did not get to the end of it."""
        taken = [Taken(one.record, one.segment) for one in chosen]
        kept_aside = await self._in_thread(lambda: self._reader.were_kept(taken))
        return [one for one, aside in zip(chosen, kept_aside, strict=True) if aside]

    async def _give_up(self, given: Given) -> None:
        """On disk first, so that it is not stored after all when this ends half-way."""
        record, segment = given.waiting.record, given.waiting.segment
        path = await self._in_thread(lambda: self._reader.keep(record, segment))
        buried = given.to_dead_letters and await self._drain.bury(given)
        if buried:
            await self._in_thread(lambda: self._reader.forget_kept(record, segment))
        self._failed += len(record.batch.ids)
        log.error(
            "a spooled push could not be stored", record=record.name, messages=len(record.batch.ids), error=given.error,
            kept="the dead-letter queue" if buried else str(path),
        )  # fmt: skip

    async def _finish(self, done: list[WaitingRecord]) -> None:
        if done:
            finished = {id(one) for one in done}
            self._work = [one for one in self._work if id(one) not in finished]
            for one in done:
                self._pending -= len(one.record.batch.ids)
                self._drain.attempts.pop(one.record.id, None)
                self._let_go(one.record.groups())
            await self._in_thread(lambda: self._reader.finish([one.segment for one in done]))
            if not self._pending:
                self._drain.forget()
                log.info("the spool is empty", flushed=self._flushed, failed=self._failed)

    async def _adopt(self) -> None:
        """Take over what processes that died have left behind."""
        for slot in await self._in_thread(lambda: adopt_slots(self._folder, self._limits)):
            log.info("a slot of the spool is taken over", slot=slot.folder.name)
            await self._add(slot)

    async def _add(self, slot: Slot) -> None:
        groups: Counter[Group] = Counter()
        messages = 0
        oldest_at: Instant | None = None

        def see(record: Record) -> None:
            nonlocal messages, oldest_at
            groups.update(record.groups())
            messages += len(record.batch.ids)
            oldest_at = oldest_at or record.spooled_at

        await self._in_thread(lambda: self._reader.add(slot, see))
        for group, count in groups.items():
            self._diverted[group] += count
            self._queues[group[0]] += count
        self._oldest_at = self._oldest_at if self._pending else oldest_at
        self._pending += messages
        self._unread = True

    async def _sleep(self, until: Instant) -> None:
        """Until then, on the steady line, or until something happens."""
        left = until - self._clock.steady()
        awake = asyncio.ensure_future(self._awake.wait())
        asleep = asyncio.ensure_future(self._clock.sleep_until(Instant(self._clock.now() + left)))
        await asyncio.wait({awake, asleep}, return_when=asyncio.FIRST_COMPLETED)
        for task in (awake, asleep):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def buffered(batch: PushBatch) -> PushOutcome:
    """The answer to a push that is kept for later."""
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
