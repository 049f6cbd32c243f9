"""What all actions share: the engine, the counters, and the queues that the door knows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from skep.clock import MICROS_PER_MS
from skep.engine import Engine
from skep.engine.answers import Answers
from skep.http.request.call import Call
from skep.http.request.prefix import prefix_of
from skep.http.sqs.attempts import Attempts
from skep.http.sqs.faults import missing
from skep.http.sqs.names import key_of_url, queue_url
from skep.http.sqs.queues import SqsQueue, SqsQueues
from skep.model import QueueKey
from skep.model.key import Verb
from skep.observe.metrics import Meter


class SqsDoor(NamedTuple):
    """The parts of the server that the actions use."""

    engine: Engine
    meter: Meter
    answers: Answers
    queues: SqsQueues
    attempts: Attempts
    moving: set[asyncio.Task[None]]
    """The message move tasks that this process carries out."""
    path_prefix: str
    """The path under which a proxy serves this server, unless a request names another."""

    def url(self, call: Call, key: QueueKey) -> str:
        """The URL of a queue, as the caller can reach it."""
        return queue_url(call, key, prefix_of(call, self.path_prefix))

    def now_ms(self) -> int:
        """The present time as SQS tells times."""
        return self.engine.now() // MICROS_PER_MS


class Undoable(NamedTuple):
    """A result, and what undoes the action when the client has gone before it got the result."""

    result: Struct
    undo: Callable[[], None]


def named(call: Call, url: str | None, verb: Verb) -> QueueKey:
    """The queue of a URL, if the caller may do this with it."""
    if url is None:
        raise missing("QueueUrl")
    key = key_of_url(url)
    call.name_tenant(key.tenant)
    call.check(key, verb)
    return key


async def queue_of(door: SqsDoor, call: Call, url: str | None, verb: Verb) -> SqsQueue:
    """The queue of a URL as the door knows it, if the caller may do this with it."""
    return await door.queues.get(named(call, url, verb))
