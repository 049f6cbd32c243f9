"""Handing out messages: from one queue or several, at once or when there are some.

A message that was leased for a cancelled caller is given back at once. A poll that finds nothing sleeps until a signal comes from a
push, a settlement, a timer or another server. It never polls the store in a loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import structlog

from skep.clock import MICROS_PER_SECOND, Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.answers import Room, bytes_of, most_of_pop
from skep.engine.batching import Lane
from skep.engine.inflight import InFlight
from skep.engine.logical_queue import LogicalQueue, Settlements
from skep.engine.polls import Poll, Waiters
from skep.engine.pop.matching import Match, Matching
from skep.engine.pop.want import ClaimForPoll, Want
from skep.engine.timers import Timer, Timers
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    NO_GROUP,
    Delivery,
    LogBounds,
    Outcome,
    PopRequest,
    PopResult,
    QueueKey,
    Seq,
    Settlement,
    Token,
)
from skep.store.protocol.log import LogVerbs
from skep.store.protocol.queues import QueueVerbs
from skep.store.protocol.servers import ServerVerbs

EMPTY_PASSES = 100
"""How often the store is asked again when it found nothing but says that there is more, as its own walk is bounded."""
FOLLOWS = 0
"""A call that only follows the log takes no messages, so a push wakes all such calls."""
GIVEN_BACK = "the consumer went away before it got the message"

log = structlog.get_logger("skep.engine")


class LogsAndQueues(LogVerbs, QueueVerbs, ServerVerbs, Protocol):
    """The store's verbs for logs, queues and other servers."""


class Dispenser:
    """Serves pops, and parks those that wait."""

    def __init__(
        self,
        store: LogsAndQueues,
        clock: Clock,
        ids: IdMint,
        timers: Timers,
        in_flight: InFlight,
        settings: EngineSettings,
        queue_of: Callable[[QueueKey], LogicalQueue],
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._timers = timers
        self._in_flight = in_flight
        self._settings = settings
        self._queue_of = queue_of
        self._matching = Matching(store, clock, settings)
        self._polls: dict[Poll[LogicalQueue], bool] = {}
        self._rooms_waited_for: set[Room] = set()
        self._watch_lane: Lane[QueueKey, None] = Lane("watch", self._watch_all, settings.limits)

    @property
    def parked(self) -> int:
        """How many pops sleep until there are messages."""
        return sum(poll.asleep for poll in self._polls)

    async def wait(
        self, queue: LogicalQueue, want: Want, wait_seconds: float, settling: asyncio.Future[Any] | None = None
    ) -> PopResult:
        """Messages of one queue, as soon as there are some; none when the time is over.

        The pop first waits for the caller's settlements, if it is ``settling`` some: their transaction may lease messages for it.
        """
        over_at = Instant(self._clock.steady() + seconds(wait_seconds))
        return await self._wait([queue], want, over_at, wait_seconds, settling)

    async def pop_matching(
        self,
        match: Match,
        want: Want,
        wait_seconds: float,
        allowed: Callable[[QueueKey], bool] | None = None,
    ) -> PopResult:
        """Messages of all allowed queues of a namespace or task, queues of higher priority first."""
        over_at = self._clock.steady() + seconds(wait_seconds)
        while True:
            keys = await self._matching.queues(match)
            queues = [self._queue_of(key) for key in keys if allowed is None or allowed(key)]
            now = self._clock.steady()
            if now >= over_at:  # perhaps since the list of queues was read
                return await self._take(queues, want)
            # The poll ends when the cached list of queues expires; then the list is read again.
            until = Instant(min(over_at, now + seconds(self._settings.matching_seconds)))
            result = await self._wait(queues, want, until, (over_at - now) / MICROS_PER_SECOND)
            if result.deliveries or self._in_flight.closed or self._clock.steady() >= over_at:
                return result

    async def follow(self, key: QueueKey, after: Seq, wait_seconds: float) -> LogBounds:
        """The bounds of the log, once it has a seq beyond ``after``, or the time is over. A push wakes all followers at once."""
        queue = self._queue_of(key)
        poll: Poll[LogicalQueue] = Poll(NO_GROUP, None, FOLLOWS)
        waiters = self._park(poll, [queue], matching=False)[queue]
        timer = self._timers.after(seconds(wait_seconds), poll.end)
        try:
            while True:
                poll.signals.clear()
                bounds = await self._store.log_bounds(key)
                if bounds.last_seq > after or poll.over or self._in_flight.closed:
                    return bounds
                waiters.ready_at(None)
                self._watch(queue)
                await poll.sleep(self.abandoned)
        finally:
            timer.cancel()
            self._leave(poll, [queue])

    def queues_changed(self) -> None:
        """Forget the lists of queues: polls of a namespace or task read them again."""
        self._matching.forget()
        for poll, matching in self._polls.items():
            if matching:
                poll.end()

    def end_polls(self) -> None:
        """Answer all waiting pops."""
        for poll in self._polls:
            poll.end()
        for room in self._rooms_waited_for:
            room.end_wait()

    def abandoned(self, request: PopRequest, result: PopResult) -> None:
        """Give back the messages of a pop whose caller was cancelled before it could take them."""
        self._undelivered(result.deliveries, request.auto_ack)

    def _undelivered(self, deliveries: Sequence[Delivery], auto_ack: bool) -> None:
        if auto_ack:
            self.lost(deliveries)
        else:
            self.give_back(deliveries)

    def lost(self, deliveries: Sequence[Delivery]) -> None:
        """Log auto-acked messages that were lost: they are settled, and cannot be given back."""
        for queue, messages in Counter(delivery.queue for delivery in deliveries).items():
            log.warning("auto-acked messages were lost with their caller", queue=queue.name, messages=messages)

    def give_back(self, deliveries: Sequence[Delivery]) -> None:
        """Give back messages that reached nobody: they are ready again at once, and this delivery does not count."""
        by_queue: dict[QueueKey, list[Delivery]] = {}
        for delivery in deliveries:
            by_queue.setdefault(delivery.queue, []).append(delivery)
        for key, theirs in by_queue.items():
            self._in_flight.spawn(self._release(key, released(theirs)), "give messages back")

    async def _release(self, key: QueueKey, settlements: list[Settlement]) -> None:
        await self._queue_of(key).settles.submit(Settlements(settlements, plain=False), len(settlements))
        log.info("messages given back", queue=key.name, messages=len(settlements))

    async def _wait(
        self,
        queues: list[LogicalQueue],
        want: Want,
        over_at: Instant,
        room_seconds: float,
        settling: asyncio.Future[Any] | None = None,
    ) -> PopResult:
        """Messages of the queues, as soon as there are some; none at ``over_at``, an instant of the steady clock.

        A look that begins when the time is over is the last one, however many messages are signalled during it.
        """
        request = want.request
        order = None if len(queues) != 1 else ClaimForPoll(queues[0], want, self._ids, self._settings.limits)
        poll: Poll[LogicalQueue] = Poll(request.group, request.partition, request.batch, order)
        timer: Timer | None = None
        poll.places = self._park(poll, queues, want.matching)
        look = [] if settling is not None or poll.need_not_look else queues
        if settling is not None:
            settling.add_done_callback(lambda done: _settled(poll, queues[0], done, waits=room_seconds > 0))
        try:
            while True:
                is_last = poll.over and bool(look)
                result = await self._take(look, want, poll, room_seconds) if look else PopResult([])
                if result.deliveries or (poll.over and (is_last or not poll.signals)):
                    return result
                if room_seconds > 0:
                    for queue in queues:
                        self._watch(queue)
                    timer = timer or self._timers.after(over_at - self._clock.steady(), poll.end)
                found = await poll.sleep(self.abandoned)
                if found is not None:
                    return found
                if settling is not None and not settling.done() and not poll.signals:
                    await asyncio.wait([settling])  # the time is over, but the look comes after the settlements
                    poll.signals.update(dict.fromkeys(queues if _is_made(settling) else ()))
                if self._in_flight.closed or not poll.signals:
                    return PopResult([])
                look = [queue for queue in queues if queue in poll.signals]
        finally:
            if timer is not None:
                timer.cancel()
            self._leave(poll, queues)

    def _park(
        self, poll: Poll[LogicalQueue], queues: Sequence[LogicalQueue], matching: bool
    ) -> dict[LogicalQueue, Waiters[LogicalQueue]]:
        """Park a poll at its queues, before its first look, so that it misses no push between the look and its sleep."""
        self.check_place()
        self._polls[poll] = matching
        return {queue: queue.parking.park(poll) for queue in queues}

    def check_place(self) -> None:
        """Check that one more poll may be parked."""
        most = self._settings.limits.parked_polls
        if len(self._polls) >= most:
            raise SkepError(Code.STORE_BUSY, "too many calls are waiting", limit=most)

    def _leave(self, poll: Poll[LogicalQueue], queues: Sequence[LogicalQueue]) -> None:
        del self._polls[poll]
        for queue in queues:
            queue.parking.leave(poll, pass_on=queue in poll.signals)

    async def _take(
        self,
        queues: list[LogicalQueue],
        want: Want,
        poll: Poll[LogicalQueue] | None = None,
        room_seconds: float = 0.0,
    ) -> PopResult:
        """The ready messages of the queues, in their order, up to the batch. It waits ``room_seconds`` for room, or as any answer does."""
        limits = self._settings.limits
        token = Token(self._ids.mint())
        taken: list[Delivery] = []
        room_bytes = limits.pop_bytes
        next_ready_at: Instant | None = None
        more = False
        try:
            for queue in queues:
                if poll is not None:
                    poll.look(queue)
                left = want.request.batch - len(taken)
                result = await self.take(queue, want, token, left, room_bytes, room_seconds)
                if poll is not None:
                    poll.looked(queue, result)
                if len(queues) == 1:
                    return result
                taken += result.deliveries
                more = more or result.more
                if result.next_ready_at is not None:
                    next_ready_at = min(next_ready_at or result.next_ready_at, result.next_ready_at)
                if len(taken) >= want.request.batch:
                    break
                room_bytes -= sum(len(d.payload) + len(d.headers or b"") for d in result.deliveries)
                if taken and room_bytes < limits.payload_bytes + limits.headers_bytes:
                    more = True  # the next queue gives at least one message, and it may not fit
                    break
        except BaseException as error:
            if poll is not None:
                poll.signals.update(dict.fromkeys(queues))  # not all queues were looked at; the next poll will look
            if not taken:
                raise
            if not isinstance(error, SkepError):
                self._undelivered(taken, want.request.auto_ack)
                raise
            log.warning("a pop over several queues ended early", error=str(error), messages=len(taken))
        return PopResult(taken, next_ready_at, more)

    async def take(
        self,
        queue: LogicalQueue,
        want: Want,
        token: Token | None = None,
        batch: int = 0,
        max_bytes: int = 0,
        room_seconds: float = 0.0,
    ) -> PopResult:
        """The ready messages of one queue. Room is reserved first. Messages without room are given back, and leased again with more.

        ``token``, ``batch`` and ``max_bytes`` are given for a pop over several queues; else they come from the request and the limits.
        """
        room, limits = want.room, self._settings.limits
        token = token or Token(self._ids.mint())
        batch, max_bytes = batch or want.request.batch, max_bytes or limits.pop_bytes
        if room is None:
            return await self._lease(queue, want.of(queue, token, batch, max_bytes), want)
        size = want.room_bytes(queue, batch, limits)
        while True:
            if not room.try_take(size):
                if room.held_bytes:  # two pops that hold room and wait for more would block each other
                    return PopResult([], next_ready_at=self._clock.now(), more=True)
                await self._wait_for(room, size, room_seconds)
            try:
                result = await self._lease(queue, want.of(queue, token, batch, min(size, max_bytes)), want)
            except BaseException:
                room.shrink(size)
                raise
            if not result.deliveries:
                room.shrink(size)
                return result
            total, largest = bytes_of(result.deliveries)
            queue.gave(largest)
            whole = room.of.most_bytes
            if room.keep(size, total, at_any_rate=want.request.auto_ack or size >= whole):
                return result
            giving_back = self._in_flight.spawn(
                self._release(queue.key, released(result.deliveries)), "give messages back"
            )
            await asyncio.shield(giving_back)  # also when the caller is cancelled meanwhile
            size = next(more for more in (min(most_of_pop(batch, limits), room.of.largest), whole) if more > size)

    async def _wait_for(self, room: Room, size: int, seconds: float) -> None:
        self._rooms_waited_for.add(room)
        try:
            await room.take(size, seconds)
        finally:
            self._rooms_waited_for.discard(room)

    async def _lease(self, queue: LogicalQueue, request: PopRequest, want: Want) -> PopResult:
        """The ready messages of a queue. The store is asked again while it gives none but says that there is more."""
        for _ in range(EMPTY_PASSES):
            leasing = queue.pops.submit(request, request.batch)
            try:
                result = await leasing
            except asyncio.CancelledError:
                # The answer may have come in the very turn of the loop in which the caller was cancelled.
                if leasing.done() and not leasing.cancelled() and not leasing.exception():
                    self.abandoned(request, leasing.result())
                raise
            except SkepError as error:
                if want.matching and error.code is Code.QUEUE_NOT_FOUND:
                    self._matching.forget()
                    return PopResult([])
                raise
            if result.deliveries or not result.more:
                return result
        return PopResult([], next_ready_at=self._clock.now())

    # several servers

    def _watch(self, queue: LogicalQueue) -> None:
        """Ask other servers to announce pushes to a queue with waiting polls."""
        if not self._settings.shared:
            return
        watch, now = seconds(self._settings.watch_seconds), self._clock.steady()
        if queue.watched_until > now + watch // 2:
            return
        was_watched = queue.watched_until > now
        queue.watched_until = Instant(now + watch)
        self._in_flight.spawn(self._watch_one(queue, was_watched), "watch a queue for news")

    async def _watch_one(self, queue: LogicalQueue, was_watched: bool) -> None:
        """Watch a queue. Look once if it was not watched: earlier pushes to other servers were not announced."""
        try:
            await self._watch_lane.submit(queue.key)
        except SkepError:
            queue.watched_until = Instant(0)
            raise
        if not was_watched:
            queue.wake()

    async def _watch_all(self, keys: list[QueueKey]) -> list[None]:
        await self._store.watch(keys, Instant(self._clock.now() + seconds(self._settings.watch_seconds)))
        return [None] * len(keys)


def _settled(poll: Poll[LogicalQueue], queue: LogicalQueue, done: asyncio.Future[Any], *, waits: bool) -> None:
    """Let a poll go on whose caller's settlements are made: it looks, unless there is nothing to be found.

    A pop without a wait looks at any rate: a quiet line may learn of messages a little late.
    """
    if not _is_made(done):
        poll.end()
        return
    if not poll.need_not_look or not (waits or poll.has_looked):
        poll.signal(queue)
    if not waits:
        poll.end()


def _is_made(settling: asyncio.Future[Any]) -> bool:
    return settling.done() and not settling.cancelled() and settling.exception() is None


def released(deliveries: Sequence[Delivery]) -> list[Settlement]:
    """The settlements that give messages back."""
    return [delivery.settlement(Outcome.RELEASE, error=GIVEN_BACK) for delivery in deliveries]
