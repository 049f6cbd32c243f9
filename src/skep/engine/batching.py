"""Group commit: many requests, one store call.

A lane keeps at most one store call in flight. Requests that arrive meanwhile wait, and go together into the next call, in the
order of arrival. Each caller gets the store's own answer. When the store itself fails, all requests of the call fail.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import structlog

from skep.config import Limits
from skep.errors import Code, SkepError

Request = TypeVar("Request")
Answer = TypeVar("Answer")

STORE_CODES = frozenset({Code.STORE_UNAVAILABLE, Code.STORE_BUSY, Code.STORE_CORRUPT, Code.STORE_FULL})

NEWEST_SHARE = 0.2
"""The weight of the latest call in the moving average of call times."""

log = structlog.get_logger("skep.engine")


class Lane(Generic[Request, Answer]):
    """Requests of one verb on their way to the store. A lane has a task only while it has requests."""

    __slots__ = (
        "_abandoned",
        "_call",
        "_max_bytes",
        "_max_messages",
        "_max_waiting",
        "_messages_waiting",
        "_seconds_per_call",
        "_started",
        "_task",
        "_verb",
        "_waiting",
    )

    def __init__(
        self,
        verb: str,
        call: Callable[[list[Request]], Awaitable[Sequence[Answer]]],
        limits: Limits,
        abandoned: Callable[[Request, Answer], None] | None = None,
    ) -> None:
        """``abandoned`` gets each answer whose caller was cancelled before it could take it."""
        self._verb = verb
        self._call = call
        self._max_waiting = limits.waiting_requests
        self._max_messages = limits.merged_messages
        self._max_bytes = limits.merged_bytes
        self._abandoned = abandoned
        self._waiting: deque[tuple[Request, int, int, asyncio.Future[Answer]]] = deque()
        self._messages_waiting = 0
        self._seconds_per_call = 0.0
        self._started = 0.0
        self._task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return self._task is None

    @property
    def wait_seconds(self) -> float:
        """The expected wait of a request that arrives now, from the recent call times."""
        if self._task is None:
            return 0.0
        under_way = asyncio.get_running_loop().time() - self._started
        return max(under_way, self._seconds_per_call * (1 + self._messages_waiting / self._max_messages))

    def submit(self, request: Request, messages: int = 1, size_bytes: int = 0) -> asyncio.Future[Answer]:
        """The store's answer to ``request``; its weight decides how much else goes into the same call.

        The answer may come in the very turn of the loop in which the caller is cancelled. Where this matters, the caller checks (`pop`).
        """
        if len(self._waiting) >= self._max_waiting:
            raise SkepError(Code.STORE_BUSY, f"too many requests wait to {self._verb}", waiting=len(self._waiting))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((request, messages, size_bytes, future))
        self._messages_waiting += messages
        if self._task is None:
            self._started = loop.time()
            self._task = loop.create_task(self._drain())
        return future

    async def drained(self) -> None:
        """Return once no request is under way, also of callers that have gone."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _drain(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while batch := self._take():
                try:
                    answers = await self._call([request for request, _ in batch])
                except Exception as error:
                    await self._failed(batch, error)
                else:
                    self._answer(batch, answers)
                started, self._started = self._started, loop.time()
                self._seconds_per_call += (self._started - started - self._seconds_per_call) * NEWEST_SHARE
        finally:
            self._task = None

    def _take(self) -> list[tuple[Request, asyncio.Future[Answer]]]:
        """The next requests, as many as fit into one call, and always at least one."""
        batch: list[tuple[Request, asyncio.Future[Answer]]] = []
        messages_left, bytes_left = self._max_messages, self._max_bytes
        waiting = self._waiting
        while waiting:
            request, messages, size_bytes, future = waiting[0]
            messages_left -= messages
            bytes_left -= size_bytes
            if batch and (messages_left < 0 or bytes_left < 0):
                break
            waiting.popleft()
            self._messages_waiting -= messages
            if future.done():  # its caller was cancelled, and the store has not seen the request
                messages_left += messages
                bytes_left += size_bytes
            else:
                batch.append((request, future))
        return batch

    def _answer(self, batch: list[tuple[Request, asyncio.Future[Answer]]], answers: Sequence[Answer]) -> None:
        for (request, future), answer in zip(batch, answers, strict=True):
            if not future.done():
                future.set_result(answer)
            elif self._abandoned is not None:
                self._abandoned(request, answer)

    async def _failed(self, batch: list[tuple[Request, asyncio.Future[Answer]]], error: Exception) -> None:
        """Fail the callers of a failed call. When a request is at fault, not the store, each request gets a call of its own."""
        if not isinstance(error, SkepError):
            # The traceback is logged as text: a renderer that shows locals would put payloads into the log.
            trace = "".join(traceback.format_exception(error, limit=-8))
            log.error("store call failed unexpectedly", verb=self._verb, requests=len(batch), traceback=trace)
            # The call may have failed after the store had committed, so nothing is tried again.
            _fail(batch, SkepError(Code.INTERNAL, f"{self._verb} failed: {type(error).__name__}"))
        elif len(batch) == 1 or error.code in STORE_CODES:
            _fail(batch, error)
        else:
            for request, future in batch:
                if not future.done():
                    try:
                        answers = await self._call([request])
                    except Exception as its_own:
                        await self._failed([(request, future)], its_own)
                    else:
                        self._answer([(request, future)], answers)


def _fail(batch: list[tuple[Request, asyncio.Future[Answer]]], error: SkepError) -> None:
    for _, future in batch:
        if not future.done():
            # Each caller gets an exception of its own, since raising adds the caller's traceback to it.
            future.set_exception(SkepError(error.code, error.message, **error.details))
            future.exception()  # marks it as retrieved: its caller may be cancelled first, and asyncio would warn


def split(answers: Sequence[Answer], calls: Sequence[Sequence[object]]) -> list[list[Answer]]:
    """The answers of a merged call, split by the original calls."""
    parts: list[list[Answer]] = []
    start = 0
    for call in calls:
        parts.append(list(answers[start : start + len(call)]))
        start += len(call)
    return parts
