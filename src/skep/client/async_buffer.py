"""A buffer for asyncio: messages are pushed in the background, batch by batch, one batch at a time and so in order."""

from __future__ import annotations

from types import TracebackType
from typing import Self, Unpack

from skep.client import calls, tracing
from skep.client.async_sender import AsyncSender
from skep.client.background import AsyncBackground, AsyncMonitor
from skep.client.batcher import Batcher, BatcherSettings, BufferOptions
from skep.client.outgoing import PUSH_DEFAULTS, MessageOptions, written_items
from skep.client.pushed import refusals
from skep.client.spelling import spelled_out
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.wire.messages import PushItem

PAUSE_SECONDS = 1.0
"""The pause before a batch that failed for now is tried again, on top of the client's own retries."""


class AsyncBuffer:
    """Takes messages at once and pushes them soon; leaving its ``async with`` pushes the rest.

    No message is lost silently: `push`, `flush` or the end of the block raises the error of messages that could not be pushed. The
    error has messages that the server refused as ``details["failed"]``. Messages that did not reach a server stay in `unsent`.
    """

    def __init__(self, client: AsyncSender, mint: IdMint, queue: str, options: BufferOptions) -> None:
        self._client = client
        self._mint = mint
        self._queue = queue
        self._batcher = Batcher(BatcherSettings(**options))
        self._monitor = AsyncMonitor()
        self._background: AsyncBackground | None = None
        self._flushing = 0
        self._leaving = False
        self._closing = False
        self._begun = 0
        self._failed = 0
        self._trouble: SkepError | None = None

    @property
    def unsent(self) -> list[PushItem]:
        """The messages that are not stored yet, in order."""
        return self._batcher.unsent

    @spelled_out(MessageOptions, PUSH_DEFAULTS)
    async def push(self, messages: object, **options: Unpack[MessageOptions]) -> None:
        """Take messages to push soon; wait while the buffer is full. When this raises an earlier failure, it has taken none of them."""
        items = written_items(self._queue, messages, options, self._mint)
        async with self._monitor:
            self._batcher.raise_failed()
        for item in items:
            async with self._monitor:
                # A task must not wait for room for ever when another leaves the block and nothing is pushed any more.
                await self._monitor.until(lambda: not self._open or not self._batcher.full)
                if not self._open:
                    raise SkepError(Code.INVALID_REQUEST, "the buffer is not open: use it in a with statement")
                self._batcher.add(item)
                self._monitor.changed()

    async def flush(self) -> None:
        """Wait until all messages are stored; raise the error of messages that could not be stored."""
        async with self._monitor:
            self._flushing += 1
            begun = self._begun
            self._monitor.changed()
            try:
                await self._monitor.until(lambda: self._flushed_since(begun))
            finally:
                self._flushing -= 1
            self._batcher.raise_failed()
            if len(self._batcher) and self._trouble is not None:
                raise self._trouble

    async def __aenter__(self) -> Self:
        self._leaving = self._closing = False
        self._background = AsyncBackground(self._run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._background is not None
        async with self._monitor:
            self._leaving = True  # else messages that another task pushes after the flush would be left behind silently
            self._monitor.changed()
        try:
            await self.flush()
        finally:
            async with self._monitor:
                self._closing = True
                self._monitor.changed()
            await self._background.finish()
            self._background = None

    @property
    def _open(self) -> bool:
        return self._background is not None and not self._leaving

    def _flushed_since(self, begun: int) -> bool:
        """Whether a flush need not wait: all is stored, nothing is pushed any more, or a try failed that began after ``begun``.
        A try that was running before does not count: much may have changed since.
        """
        failed = self._trouble is not None and self._failed > begun
        return failed or not len(self._batcher) or self._background is None

    async def _run(self) -> None:
        while batch := await self._next():
            trouble: SkepError | None = None
            try:
                with tracing.publishing(self._client.settings.urls[0], self._queue, len(batch)) as span:
                    tracing.sending(span, batch)
                    tracing.stored(span, (await self._client.run(calls.push(batch))).messages)
            except SkepError as error:
                trouble = error
            async with self._monitor:
                self._note(trouble, batch)
                self._monitor.changed()

    def _note(self, trouble: SkepError | None, batch: list[PushItem]) -> None:
        self._trouble = None
        if trouble is None:
            self._batcher.stored()
        elif trouble.retryable:
            self._trouble, self._failed = trouble, self._begun
        else:
            self._batcher.refused(trouble, refusals(trouble, batch))

    async def _next(self) -> list[PushItem]:
        """The next batch, once there is a whole one or the first has waited long enough; empty when it is over."""
        async with self._monitor:
            if self._trouble is not None:
                await self._monitor.until(self._hurried, PAUSE_SECONDS)
            await self._monitor.until(lambda: len(self._batcher) > 0 or self._closing)
            linger_seconds = self._batcher.settings.linger_ms / 1000
            await self._monitor.until(lambda: self._batcher.ready or self._hurried(), linger_seconds)
            self._begun += 1
            return [] if self._closing else self._batcher.take()

    def _hurried(self) -> bool:
        return self._closing or self._flushing > 0
