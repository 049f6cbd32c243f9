"""The memory budget for answers: payloads and headers, from before the store is asked until the client has read them.

The size of a pop's answer is unknown until the store has leased the messages, and then it is too late to refuse. So each pop first
reserves room for the likely size of its messages, and afterwards returns the rest. A pop that leased more than it reserved asks for
the difference. Without room for it, the pop gives the messages back, which costs them no attempt, and waits for more room.

Answers without room wait in line. Small answers do not wait behind large ones: a part of the room is for small answers only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

import structlog

from skep.config import Limits
from skep.errors import Code, SkepError
from skep.model import Delivery

SMALL_SHARE = 1 / 8
"""The share of the room that only small answers may take."""
SMALL_ANSWERS = 256
"""A small answer is at most the whole room divided by this."""
LEAST_BYTES = 256 * 1024
"""The least bytes that a pop reserves (or the size of a small answer, if that is less), as messages of one queue differ."""
LIKELY = 4
"""A pop reserves this many times its batch times the largest recent message."""

log = structlog.get_logger("skep.engine")


class UnreadAnswer(Protocol):
    """A connection whose client has not read all of its answer."""

    def cut_off(self) -> None:
        """Close the connection, and drop the unsent part of the answer."""


class Answers:
    """The room that all answers of a process share. An answer that is alone may exceed the limit."""

    __slots__ = (
        "_is_full", "_readers", "_small", "cut_off", "held_bytes", "largest", "late_seconds", "least", "line", "most_bytes",
        "peak_bytes", "refused", "wait_seconds", "waited",
    )  # fmt: skip

    def __init__(self, most_bytes: int, late_seconds: float = 60.0, wait_seconds: float = 2.0) -> None:
        """An answer waits up to ``wait_seconds`` for room. While answers wait, a client has ``late_seconds`` to read its own."""
        self.most_bytes = most_bytes
        self.wait_seconds = wait_seconds
        self.late_seconds = late_seconds
        self._small = most_bytes // SMALL_ANSWERS
        self.least = min(LEAST_BYTES, self._small)
        """The room that a pop reserves for a queue with small messages."""
        self.largest = most_bytes - int(most_bytes * SMALL_SHARE)
        """A large answer gets room only up to this total of all answers. A still larger one waits until it is alone."""
        self.line: deque[tuple[Room, int, asyncio.Future[bool]]] = deque()
        self._readers: dict[Room, float] = {}
        self._is_full = False
        self.held_bytes = 0
        self.peak_bytes = 0
        self.waited = 0
        """How many answers had to wait for room."""
        self.cut_off = 0
        """How many slow clients were cut off while answers waited."""
        self.refused = 0
        """How many answers were refused after their wait."""

    def room(self) -> Room:
        """The room of one new answer; it holds nothing yet."""
        return Room(self)

    def takes(self, size: int) -> bool:
        """Whether an answer may reserve ``size`` at once: there is room, and it need not wait behind the line."""
        line = self.line
        return self.has(size) and (not line or (size <= self._small and line[0][1] <= self.largest))

    def has(self, size: int, mine: int = 0) -> bool:
        """Whether there is room for ``size`` more, for an answer that holds ``mine`` already."""
        held = self.held_bytes
        return held + size <= (self.most_bytes if size <= self._small else self.largest) or held == mine

    def add(self, size: int) -> None:
        """Count reserved bytes."""
        self.held_bytes = held = self.held_bytes + size
        if held > self.peak_bytes:
            self.peak_bytes = held

    def subtract(self, size: int) -> None:
        """Count returned bytes, and let waiting answers in."""
        self.held_bytes -= size
        if self.line:
            self._let_in()

    def _let_in(self) -> None:
        line = self.line
        while line and (line[0][2].done() or self.has(line[0][1])):
            room, size, turn = line.popleft()
            if not turn.done():
                room.grow(size)
                turn.set_result(True)
        self._is_full = self._is_full and bool(line)

    async def wait(self, room: Room, size: int, seconds: float) -> None:
        """Wait in line for ``size`` bytes; SERVER_BUSY when the time is over."""
        if not self._is_full:
            self._is_full = True
            log.warning(
                "answers wait for room", held_bytes=self.held_bytes, answers_bytes=self.most_bytes, readers=len(self._readers)
            )  # fmt: skip
        self.waited += 1
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[bool] = loop.create_future()
        self.line.append((room, size, turn))
        room.turn = turn
        self._hurry(loop.time())
        timer = loop.call_later(seconds, _give_up, turn)
        try:
            let_in = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                room.shrink(size)
            raise
        finally:
            timer.cancel()
            room.turn = None
            if self.line:  # there may be room for the answer behind this one
                self._let_in()
        if not let_in:
            self.refused += 1
            self._hurry(loop.time())
            raise SkepError(
                Code.SERVER_BUSY,
                "answers that clients have not taken yet take all the room that there is for them: take fewer messages at once, "
                "or try again; http.answers_bytes is the room",
            )

    def reading(self, room: Room) -> None:
        """Note that a client has begun to read its answer."""
        self._readers[room] = asyncio.get_running_loop().time()

    def left(self, room: Room) -> None:
        """Note that a client has read its answer, or is gone."""
        self._readers.pop(room, None)

    def _hurry(self, now: float) -> None:
        """Cut off slow clients while answers wait, the longest readers first."""
        for room, since in list(self._readers.items()):
            if now - since < self.late_seconds:
                return
            self.cut_off += 1
            room.cut_off()


class Room:
    """The bytes that one answer has reserved."""

    __slots__ = ("_is_over", "_reader", "held_bytes", "of", "turn")

    def __init__(self, answers: Answers) -> None:
        self.of = answers
        """The shared room of all answers."""
        self._reader: UnreadAnswer | None = None
        self._is_over = False
        self.held_bytes = 0
        self.turn: asyncio.Future[bool] | None = None
        """The answer's place in line, while it waits."""

    def try_take(self, size: int) -> bool:
        """Reserve ``size`` more bytes, if there is room now and the answer need not wait in line."""
        answers = self.of
        held = answers.held_bytes + size
        if self._is_over or ((answers.line or held > answers.largest) and not answers.takes(size)):
            return False
        self.held_bytes += size
        answers.held_bytes = held
        if held > answers.peak_bytes:
            answers.peak_bytes = held
        return True

    async def take(self, size: int, seconds: float = 0.0) -> None:
        """Reserve ``size`` more bytes, now or at its turn in line. It waits ``seconds``, or ``wait_seconds`` if that is longer."""
        if not self.try_take(size):
            await self.of.wait(self, size, max(seconds, self.of.wait_seconds))

    def keep(self, taken: int, size: int, *, at_any_rate: bool = False) -> bool:
        """Hold ``size`` in place of the reserved ``taken``. Without room for the difference it holds neither, and returns False."""
        if self._is_over:
            return True
        more = size - taken
        if more > 0 and not at_any_rate and not self.of.has(more, self.held_bytes):
            self.shrink(taken)
            return False
        if more > 0:
            self.grow(more)
        elif more:
            self.shrink(-more)
        return True

    def grow(self, size: int) -> None:
        """Hold ``size`` more bytes."""
        self.held_bytes += size
        self.of.add(size)

    def shrink(self, size: int) -> None:
        """Hold ``size`` fewer bytes."""
        self.held_bytes -= size
        self.of.subtract(size)

    def end_wait(self) -> None:
        """End the wait in line, without room."""
        if self.turn is not None:
            _give_up(self.turn)

    def read_by(self, reader: UnreadAnswer) -> None:
        """Note that the answer is written, and its client has not read all of it."""
        self._reader = reader
        self.of.reading(self)

    def cut_off(self) -> None:
        """End the connection of a client that takes too long."""
        assert self._reader is not None
        self._reader.cut_off()
        self.let_go()

    def let_go(self) -> None:
        """Return all bytes: the client has read the answer, or will never read it."""
        self._is_over = True
        self.of.left(self)
        if self.held_bytes:
            self.shrink(self.held_bytes)


def _give_up(turn: asyncio.Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)


def most_of_pop(batch: int, limits: Limits) -> int:
    """The most bytes that a pop may hold. One message always fits."""
    one = limits.payload_bytes + limits.headers_bytes
    return one if batch == 1 else max(one, limits.pop_bytes)


def likely_bytes(batch: int, message_bytes: int, least: int, most: int) -> int:
    """The bytes to reserve for a pop. ``message_bytes`` is the largest recent message of the queue, 0 when unknown.

    A size between the bounds is rounded up to a power of two, as the store serves pops with equal limits together.
    """
    if not message_bytes:
        return most
    size = LIKELY * batch * message_bytes
    if size <= least:
        return least
    size = 1 << (size - 1).bit_length()
    return min(most, size)


def bytes_of(deliveries: Sequence[Delivery]) -> tuple[int, int]:
    """The total bytes of some deliveries, and the bytes of the largest."""
    total = largest = 0
    for delivery in deliveries:
        headers = delivery.headers
        size = len(delivery.payload) if headers is None else len(delivery.payload) + len(headers)
        total += size
        if size > largest:
            largest = size
    return total, largest
