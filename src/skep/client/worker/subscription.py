"""A subscription: a function and the queue of its messages."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Any

from msgspec import Struct

from skep.client.calls import PopOptions, Start
from skep.client.decoding import decode_json
from skep.client.message_data import MessageData
from skep.client.worker.signatures import Function, check_type, name_of, parameters, payload_type
from skep.client.worker.threads import in_thread
from skep.client.worker.verdict import Reject
from skep.errors import Code, SkepError


class Subscription(Struct, frozen=True, kw_only=True):
    """The arguments of `Worker.on`, and how its function is called. Without a ``type`` it is given the message alone."""

    queue: str
    function: Function
    group: str | None
    partition: str | None
    concurrency: int
    batch: int
    type: Any
    wants_message: bool
    is_async: bool
    lease_seconds: float
    ordered: bool
    start: Start | None

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.batch < 1 or self.lease_seconds <= 0:
            raise SkepError(Code.INVALID_REQUEST, "concurrency and batch are at least 1, lease_seconds is more than 0")

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

    def arguments(self, message: MessageData) -> tuple[Any, ...]:
        """The arguments of the function. A payload that does not fit is rejected: no retry would make it fit."""
        if self.type is None:
            return (message,)
        try:
            value = message.payload if self.type is bytes else decode_json(message.payload, self.type)
        except SkepError as error:
            raise Reject(error.message) from error
        return (value, message) if self.wants_message else (value,)

    async def call(self, message: MessageData, pool: Executor) -> None:
        """Call the function: here, or in a thread with the same context variables."""
        arguments = self.arguments(message)
        if self.is_async:
            await self.function(*arguments)
        else:
            await in_thread(pool, self.function, *arguments)


def taken(function: Function, type_: Any) -> tuple[Any, bool]:
    """The arguments of a function: the type of the payload (None: it gets no payload), and whether it takes the message as well.

    A type that is given goes before the annotation. INVALID_REQUEST when the function cannot be called so.
    """
    what = "the function"
    found = parameters(function, what)
    wants_message = len(found) > 1
    if type_ is not None:
        check_type(function, what, type_)
        if found[0].is_message:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{what} {name_of(function)!r} takes the message, and type= asks for the payload: drop one, or take both.",
            )
        return Any if type_ is object else type_, wants_message
    if wants_message:
        return Any if found[0].kind is None else payload_type(function, what, found[0]), True
    if found[0].kind is None or found[0].is_message:
        return None, False
    return payload_type(function, what, found[0]), False
