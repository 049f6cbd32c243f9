"""How much of answers the process holds: payloads and headers, from before the store is asked until the client has taken them.

How much a pop will hold is not known before the store has leased the messages, and by then it is too late to refuse. So each
takes room first, for as much as its queue's messages are likely to need, and gives back what it did not need. A pop that leased more than it had room for
asks for the difference; when there is none it gives the messages back, which costs them no attempt, and waits for more room.

Those for whom there is no room wait in line. Small answers do not stand behind large ones: a part of the room is theirs alone.
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
"""So much of the room only small answers may take, ..."""
SMALL_ANSWERS = 256
"""... of which one is at most such a part of all room."""
LEAST_BYTES = 256 * 1024
"""What any pop takes at least, unless less is small already: messages of one queue differ."""
LIKELY = 4
"""A pop is expected to need so many times what the largest message lately would make it."""

log = structlog.get_logger("skep.engine")


class Reader(Protocol):
    """A connection whose client has not taken all of its answer."""

    def cut_off(self) -> None:
        """Drop the connection, and what it was to be sent."""


class Answers:
    """The room that all answers of a process share. What an answer needs that is alone it may have, whatever the bound."""

    __slots__ = (
        "_is_full", "_readers", "_small", "cut_off", "held_bytes", "largest", "late_seconds", "least", "line", "most_bytes",
        "peak_bytes", "refused", "wait_seconds", "waited",
    )  # fmt: skip

    def __init__(self, most_bytes: int, late_seconds: float = 60.0, wait_seconds: float = 2.0) -> None:
        """An answer waits for room for ``wait_seconds``. While others wait, a client has ``late_seconds`` to take its own."""
        self.most_bytes = most_bytes
        self.wait_seconds = wait_seconds
        self.late_seconds = late_seconds
        self._small = most_bytes // SMALL_ANSWERS
        self.least = min(LEAST_BYTES, self._small)
        """What a pop takes of a queue whose messages are small."""
        self.largest = most_bytes - int(most_bytes * SMALL_SHARE)
        """The most that one answer takes beside others; who needs more waits until there is none but its own."""
        self.line: deque[tuple[Room, int, asyncio.Future[bool]]] = deque()
        self._readers: dict[Room, float] = {}
        self._is_full = False
        self.held_bytes = 0
        self.peak_bytes = 0
        self.waited = 0
        """How many answers had to wait for room."""
        self.cut_off = 0
        """How many clients were too slow for others to wait."""
        self.refused = 0
        """How many waited in vain."""

    def room(self) -> Room:
        """A place for one answer, which holds nothing yet."""
        return Room(self)

    def takes(self, size: int) -> bool:
        """Whether there is room for so much, and one who wants no more need not stand behind those who wait."""
        line = self.line
        return self.has(size) and (not line or (size <= self._small and line[0][1] <= self.largest))

    def has(self, size: int, mine: int = 0) -> bool:
        """Whether there is room for so much more, for one who holds ``mine`` already."""
        held = self.held_bytes
        return held + size <= (self.most_bytes if size <= self._small else self.largest) or held == mine

    def add(self, size: int) -> None:
        """Count what is taken."""
        self.held_bytes = held = self.held_bytes + size
        if held > self.peak_bytes:
            self.peak_bytes = held

    def subtract(self, size: int) -> None:
        """Count what is given back, and let in those who wait."""
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
        """Stand in line for so much; SERVER_BUSY when the time is over."""
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
            if self.line:  # this one may have stood before one for whom there is room
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
        """A client has begun to take its answer, and is not done."""
        self._readers[room] = asyncio.get_running_loop().time()

    def left(self, room: Room) -> None:
        """It is done, or gone."""
        self._readers.pop(room, None)

    def _hurry(self, now: float) -> None:
        """Cut off clients that take too long while others wait, those who began first before the others."""
        for room, since in list(self._readers.items()):
            if now - since < self.late_seconds:
                return
            self.cut_off += 1
            room.cut_off()


class Room:
    """What one answer has taken."""

    __slots__ = ("_is_over", "_reader", "held_bytes", "of", "turn")

    def __init__(self, answers: Answers) -> None:
        self.of = answers
        """What it is a part of."""
        self._reader: Reader | None = None
        self._is_over = False
        self.held_bytes = 0
        self.turn: asyncio.Future[bool] | None = None
        """What it waits for in line."""

    def try_take(self, size: int) -> bool:
        """Take so much more, if there is room now and nobody is before this one."""
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
        """Take so much more, now or when it is this one's turn: so many seconds later, or as any answer waits, if that is longer."""
        if not self.try_take(size):
            await self.of.wait(self, size, max(seconds, self.of.wait_seconds))

    def keep(self, taken: int, size: int, *, at_any_rate: bool = False) -> bool:
        """Hold ``size`` in place of what was taken for it, or nothing when there is no room for that."""
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
        """Hold so much more."""
        self.held_bytes += size
        self.of.add(size)

    def shrink(self, size: int) -> None:
        """Hold so much less."""
        self.held_bytes -= size
        self.of.subtract(size)

    def end_wait(self) -> None:
        """Wait no longer for one's turn."""
        if self.turn is not None:
            _give_up(self.turn)

    def read_by(self, reader: Reader) -> None:
        """The answer is written, and its client has not taken all of it."""
        self._reader = reader
        self.of.reading(self)

    def cut_off(self) -> None:
        """End the connection of a client that takes too long."""
        assert self._reader is not None
        self._reader.cut_off()
        self.let_go()

    def let_go(self) -> None:
        """The answer is taken, or nobody will take it."""
        self._is_over = True
        self.of.left(self)
        if self.held_bytes:
            self.shrink(self.held_bytes)


def _give_up(turn: asyncio.Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)


def most_of_pop(batch: int, limits: Limits) -> int:
    """What a pop may hold: one message is given in any case."""
    one = limits.payload_bytes + limits.headers_bytes
    return one if batch == 1 else max(one, limits.pop_bytes)


def likely_bytes(batch: int, message_bytes: int, least: int, most: int) -> int:
    """What to take for a pop of a queue whose messages had up to ``message_bytes`` lately, 0 when nobody knows.

    It is a power of two: the store serves pops together that have the same bound.
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
