"""A function and the messages it wants."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from msgspec import Struct

from skep.client.calls import PopOptions, Start
from skep.client.decoding import decode_json
from skep.client.delivered import Delivered
from skep.client.worker.verdict import Reject
from skep.errors import Code, SkepError

Function = Callable[..., Any]


class Subscription(Struct, frozen=True, kw_only=True):
    """What `Worker.on` was told."""

    queue: str
    function: Function
    group: str | None
    partition: str | None
    concurrency: int
    batch: int
    type: Any
    lease_seconds: float
    ordered: bool
    start: Start | None

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.batch < 1 or self.lease_seconds <= 0:
            raise SkepError(Code.INVALID_REQUEST, "concurrency and batch are at least 1, lease_seconds is more than 0")

    @property
    def is_async(self) -> bool:
        """Whether the function runs in the event loop, not in a thread."""
        return inspect.iscoroutinefunction(self.function)

    @property
    def wants_message(self) -> bool:
        """Whether it takes the message besides the payload."""
        return len(inspect.signature(self.function).parameters) > 1

    def pop_options(self, free: int, wait_seconds: float) -> PopOptions:
        """A pop that takes no more than can be begun at once: one partition, or one message, for each free place."""
        options: PopOptions = {
            "batch": self.batch if self.ordered else min(self.batch, free),
            "lease_seconds": self.lease_seconds,
            "wait_seconds": wait_seconds,
        }
        if self.ordered:
            options["partitions"] = free
        if self.group is not None:
            options["group"] = self.group
        if self.partition is not None:
            options["partition"] = self.partition
        if self.start is not None:
            options["start"] = self.start
        return options

    def arguments(self, message: Delivered) -> tuple[Any, ...]:
        """What the function is called with. A payload that does not fit is rejected: no retry would make it fit."""
        if self.type is None:
            return (message,)
        try:
            value = decode_json(message.payload, self.type)
        except SkepError as error:
            raise Reject(error.message) from error
        return (value, message) if self.wants_message else (value,)

    async def call(self, message: Delivered, pool: Executor) -> None:
        """Call the function: here, or in a thread with the same context variables."""
        arguments = self.arguments(message)
        if self.is_async:
            await self.function(*arguments)
        else:
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(pool, lambda: context.run(self.function, *arguments))
