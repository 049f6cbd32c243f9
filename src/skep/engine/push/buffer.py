"""QoS 0: pushes that are answered at once and stored together soon after, by time or by number.

Buffered messages are lost when the process dies, and are never stored twice. A flush with an unknown outcome is not repeated: the
spool finds out whether it was stored; without a spool it is lost. A queue has one flush under way at a time. A direct push waits for
the messages that were buffered before it, so the order within a partition holds. There is no task and no timer per message.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterable

import structlog
from msgspec import Struct, field

from skep.clock import MICROS_PER_MS, Clock, Instant, seconds
from skep.config import BufferSettings, Limits
from skep.engine.push.spool.spool import buffered
from skep.engine.timers import Timer, Timers
from skep.engine.validate import Weight
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import NewMessage, PushBatch, PushOutcome, QueueKey
from skep.model.operation import groups_of, push_groups

RETRY_SECONDS = 0.1
BUFFER_MS_MAX = 60_000

Push = Callable[[PushBatch, Weight], Awaitable[PushOutcome]]

log = structlog.get_logger("skep.engine")


class BufferFigures(Struct, frozen=True):
    """Buffered pushes and their outcomes. Counts are messages since the server started."""

    pending: int = 0
    size_bytes: int = 0
    flushed: int = 0
    lost: int = 0


class _Load(Struct, eq=False):
    """Messages of one queue that are flushed together; ``ends`` are the indexes where each request ends."""

    messages: list[NewMessage] = field(default_factory=list)
    ids: list[Id] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    size_bytes: int = 0
    scheduled: Instant | None = None
    deadline: Instant = Instant(2**62)
    most: int = 2**62
    stored: asyncio.Event | None = None
    """Set when the load is stored or lost; made for the first call that waits for it."""

    def add(self, messages: list[NewMessage], ids: list[Id], weight: Weight) -> None:
        self.messages += messages
        self.ids += ids
        self.ends.append(len(self.ids))
        self.size_bytes += weight.size_bytes
        if weight.deliver_at is not None:
            self.scheduled = min(self.scheduled or weight.deliver_at, weight.deliver_at)

    def parts(self, most: int, max_bytes: int) -> list[list[PushBatch]]:
        """The requests in order, grouped so that each group fits into one push."""
        parts: list[list[PushBatch]] = []
        start = messages = size = 0
        for end in self.ends:
            one = PushBatch(self.messages[start:end], self.ids[start:end])
            own = size_of(one.messages)
            if not parts or messages + len(one.ids) > most or size + own > max_bytes:
                parts.append([])
                messages = size = 0
            parts[-1].append(one)
            messages, size, start = messages + len(one.ids), size + own, end
        return parts


class _QueueBuffer(Struct, eq=False):
    """The buffered messages of one queue: the growing load, and the load under way."""

    growing: _Load | None = None
    under_way: _Load | None = None
    timer: Timer | None = None
    task: asyncio.Task[None] | None = None

    def take(self) -> _Load:
        """Make the growing load the one under way."""
        assert self.growing is not None
        self.under_way, self.growing = self.growing, None
        return self.under_way


class Buffer:
    """All pushes that were answered and are not stored yet. ``push`` brings a load into the store."""

    def __init__(self, push: Push, clock: Clock, timers: Timers, settings: BufferSettings, limits: Limits) -> None:
        self._push = push
        self._clock = clock
        self._timers = timers
        self._settings = settings
        self._load_messages, self._load_bytes = limits.push_messages, limits.request_bytes
        self._queues: dict[QueueKey, _QueueBuffer] = {}
        self._pending = self._bytes = self._flushed = self._lost = 0

    def figures(self) -> BufferFigures:
        """The present figures of the buffer."""
        return BufferFigures(self._pending, self._bytes, self._flushed, self._lost)

    def add(self, batch: PushBatch, weight: Weight, wait_ms: int | None, most: int | None) -> PushOutcome:
        """Buffer a checked push; OVERLOADED when there is no room."""
        wait_ms = self._settings.wait_ms if wait_ms is None else wait_ms
        most = self._settings.messages if most is None else most
        self._check(wait_ms, most, len(batch.ids), weight.size_bytes)
        deadline = Instant(self._clock.steady() + wait_ms * MICROS_PER_MS)
        if weight.queue is not None:
            self._add(weight.queue, batch, weight, deadline, most)
        else:
            for key, part, size in _by_queue(batch):
                due = min((m.deliver_at for m in part.messages if m.deliver_at is not None), default=None)
                self._add(key, part, Weight(size, key, due), deadline, most)
        return buffered(batch)

    def _check(self, wait_ms: int, most: int, messages: int, size_bytes: int) -> None:
        if not 0 <= wait_ms <= BUFFER_MS_MAX:
            raise SkepError(Code.INVALID_REQUEST, f"bufferMs must be from 0 to {BUFFER_MS_MAX}")
        if not 1 <= most <= self._load_messages:
            raise SkepError(Code.INVALID_REQUEST, f"bufferMax must be from 1 to {self._load_messages}")
        settings = self._settings
        if self._pending + messages > settings.max_messages or self._bytes + size_bytes > settings.max_bytes:
            raise SkepError(
                Code.OVERLOADED, "as many messages are buffered as may be", messages=self._pending, bytes=self._bytes,
                retry_after_seconds=1,
            )  # fmt: skip

    def _add(self, key: QueueKey, batch: PushBatch, weight: Weight, deadline: Instant, most: int) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _QueueBuffer()
        load = queue.growing
        if load is None:
            load = queue.growing = _Load()
        self._pending += len(batch.ids)
        self._bytes += weight.size_bytes
        load.add(batch.messages, batch.ids, weight)
        load.most = min(load.most, most)
        if queue.task is not None:
            load.deadline = min(load.deadline, deadline)  # read when the flush under way is done
        elif len(load.ids) >= load.most or load.size_bytes >= self._load_bytes:
            self._start(key, queue)
        elif deadline < load.deadline:
            load.deadline = deadline
            self._arm(key, queue, deadline)

    def _arm(self, key: QueueKey, queue: _QueueBuffer, deadline: Instant) -> None:
        if queue.timer is not None:
            queue.timer.cancel()
        queue.timer = self._timers.after(deadline - self._clock.steady(), lambda: self._start(key, queue))

    def holds(self, keys: Iterable[QueueKey]) -> bool:
        """Whether messages are buffered for one of these queues."""
        queues = self._queues
        return bool(queues) and any(key in queues for key in keys)

    async def flushed(self, keys: Iterable[QueueKey]) -> None:
        """Flush these queues, and return once all their buffered messages are stored, or lost."""
        waits = []
        for key in set(keys):
            queue = self._queues.get(key)
            if queue is not None and (load := queue.growing or queue.under_way) is not None:
                if load.stored is None:
                    load.stored = asyncio.Event()
                waits.append(load.stored)
                load.deadline = self._clock.steady()
                if queue.task is None:
                    self._start(key, queue)
        for stored in waits:
            await stored.wait()

    async def stop(self) -> None:
        """Flush everything."""
        while self._queues:
            await self.flushed(list(self._queues))

    def _start(self, key: QueueKey, queue: _QueueBuffer) -> None:
        """Begin to flush a queue that has messages and no flush under way. While one is, no timer is set."""
        if queue.timer is not None:
            queue.timer.cancel()
            queue.timer = None
        queue.task = asyncio.get_running_loop().create_task(self._run(key, queue))

    async def _run(self, key: QueueKey, queue: _QueueBuffer) -> None:
        """Flush until the rest is neither due nor full."""
        while True:
            load = queue.take()
            await self._flush(key, load)
            queue.under_way = None
            self._pending -= len(load.ids)
            self._bytes -= load.size_bytes
            if load.stored is not None:
                load.stored.set()
            rest = queue.growing
            if rest is None:
                queue.task = None
                del self._queues[key]
                return
            if len(rest.ids) < rest.most and rest.deadline > self._clock.steady():
                queue.task = None
                self._arm(key, queue, rest.deadline)
                return

    async def _flush(self, key: QueueKey, load: _Load) -> None:
        if len(load.ids) <= self._load_messages and load.size_bytes <= self._load_bytes:
            whole = PushBatch(load.messages, load.ids)
            if await self._stored(whole, Weight(load.size_bytes, key, load.scheduled), last=len(load.ends) == 1):
                return
        for part in load.parts(self._load_messages, self._load_bytes):
            await self._flush_part(key, part, load.scheduled)

    async def _flush_part(self, key: QueueKey, part: list[PushBatch], scheduled: Instant | None) -> None:
        whole = PushBatch([m for one in part for m in one.messages], [id_ for one in part for id_ in one.ids])
        if await self._stored(whole, Weight(size_of(whole.messages), key, scheduled), last=len(part) == 1):
            return
        # Each request by itself, so that a refused one does not take the others with it.
        for one in part:
            await self._stored(one, Weight(size_of(one.messages), key, scheduled), last=True)

    async def _stored(self, batch: PushBatch, weight: Weight, *, last: bool) -> bool:
        """Store a batch, or give it up. It is tried again only while it is certain that nothing of it was stored.

        False for a refused batch that the caller will store in parts; with ``last`` a refused batch is given up.
        """
        until = self._clock.steady() + seconds(self._settings.retry_seconds)
        while True:
            try:
                outcome = await self._push(batch, weight)
            except SkepError as error:
                # After STORE_UNAVAILABLE the batch may be stored, so it is not tried again: it must never be stored twice.
                if error.code is Code.OPERATIONS_AHEAD and push_groups(batch) > 1:
                    return last and await self._stored_apart(batch, weight)
                again = error.retryable and error.code is not Code.STORE_UNAVAILABLE
                if not again or self._clock.steady() >= until:
                    return self._give_up(batch, str(error))
            except Exception as error:
                log.error("a flush failed", traceback=traceback.format_exc(limit=-8))
                return self._give_up(batch, type(error).__name__)
            else:
                if outcome.refused:
                    return self._give_up(batch, outcome.results[0].reason or "refused") if last else False
                self._flushed += len(batch.ids)
                return True
            await self._clock.sleep_until(Instant(self._clock.now() + seconds(RETRY_SECONDS)))

    async def _stored_apart(self, batch: PushBatch, weight: Weight) -> bool:
        """Store each partition of a push by itself, so that operations ahead of one partition do not cost the others.

        A buffered push need not be stored whole.
        """
        groups = groups_of((message.queue, message.partition) for message in batch.messages)
        for indexes in groups.values():
            part = PushBatch([batch.messages[i] for i in indexes], [batch.ids[i] for i in indexes])
            await self._stored(part, Weight(size_of(part.messages), weight.queue, weight.deliver_at), last=True)
        return True

    def _give_up(self, batch: PushBatch, error: str) -> bool:
        self._lost += len(batch.ids)
        log.warning(
            "buffered messages are lost", messages=len(batch.ids), queue=batch.messages[0].queue.name, error=error
        )
        return True


def _by_queue(batch: PushBatch) -> list[tuple[QueueKey, PushBatch, int]]:
    """The parts of a batch, by queue, each with its size."""
    parts: dict[QueueKey, PushBatch] = {}
    for message, id_ in zip(batch.messages, batch.ids, strict=True):
        part = parts.setdefault(message.queue, PushBatch([], []))
        part.messages.append(message)
        part.ids.append(id_)
    return [(key, part, size_of(part.messages)) for key, part in parts.items()]


def size_of(messages: Iterable[NewMessage]) -> int:
    """The bytes of messages: payloads and headers."""
    return sum(len(message.payload) + len(message.headers or b"") for message in messages)
