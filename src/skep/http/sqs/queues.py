"""Queues as the door sees them: settings, and the note with all that no setting says. They are cached until they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import StrEnum

import msgspec
from msgspec import Struct

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.sqs.faults import QUEUE_DOES_NOT_EXIST, SqsError
from skep.http.sqs.names import FIFO
from skep.model import Queue, QueueKey

QUEUES_CACHED = 10_000
NOTE_TRIES = 10


class MoveStatus(StrEnum):
    """How far a message move task is."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    CANCELLING = "CANCELLING"
    CANCELLED = "CANCELLED"
    FAILED = "FAILED"


class MoveRecord(Struct, frozen=True, omit_defaults=True):
    """A message move task. ``updated_ms`` is when the server that carries it out last told of it."""

    id: str
    started_ms: int
    updated_ms: int
    status: MoveStatus
    destination: str | None = None
    rate: int | None = None
    moved: int = 0
    to_move: int | None = None
    failure: str | None = None

    @property
    def is_active(self) -> bool:
        """Whether it is not over."""
        return self.status in (MoveStatus.RUNNING, MoveStatus.CANCELLING)


class Note(Struct, frozen=True, omit_defaults=True):
    """What SQS keeps with a queue and no setting says; attributes are as SQS writes them."""

    attributes: dict[str, str] = {}
    tags: dict[str, str] = {}
    moves: list[MoveRecord] = []


class SqsQueue(Struct, frozen=True):
    """A queue, its note, and the bytes of the note as the store has them."""

    queue: Queue
    note: Note
    written: bytes | None

    @property
    def key(self) -> QueueKey:
        """The name and the tenant."""
        return self.queue.key

    @property
    def is_fifo(self) -> bool:
        """Whether SQS takes it for a FIFO queue: by its name."""
        return self.queue.key.name.endswith(FIFO)

    def number(self, name: str, default: int) -> int:
        """An attribute of the note that is a number."""
        return int(self.note.attributes.get(name, default))

    def is_set(self, name: str) -> bool:
        """Whether an attribute of the note is true."""
        return self.note.attributes.get(name) == "true"


_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(Note).decode


def no_queue(key: QueueKey) -> SqsError:
    """The error for a queue that is not there."""
    return SqsError(QUEUE_DOES_NOT_EXIST, f"The specified queue does not exist: {key.name[:255]}")


class SqsQueues:
    """The queues that the door has seen. A change on any server drops its queue from the cache."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[QueueKey, SqsQueue] = {}
        self._changes = 0
        self._changing = asyncio.Lock()
        engine.caches.on_queue(self._changed)
        engine.caches.on_missed(self._forget_all)

    async def get(self, key: QueueKey) -> SqsQueue:
        """The queue; QueueDoesNotExist when there is none."""
        known = self._known.get(key)
        return known if known is not None else await self.read(key)

    async def read(self, key: QueueKey) -> SqsQueue:
        """The queue as the store has it now."""
        changes = self._changes
        try:
            queue = await self._engine.get_queue(key)
            written = await self._engine.sqs_note(key)
        except SkepError as error:
            if error.code in (Code.QUEUE_NOT_FOUND, Code.INVALID_NAME):
                raise no_queue(key) from None
            raise
        found = SqsQueue(queue, Note() if written is None else _decode(written), written)
        if changes == self._changes:  # else it may have changed while it was read
            if len(self._known) >= QUEUES_CACHED:
                del self._known[next(iter(self._known))]
            self._known[key] = found
        return found

    async def change_note(self, key: QueueKey, change: Callable[[SqsQueue], Note]) -> SqsQueue:
        """Change the note of a queue; again on the newest note when another server changed it meanwhile."""
        async with self._changing:  # else many changes at once would find each other's over and over
            for _ in range(NOTE_TRIES):
                found = await self.read(key)
                note = change(found)
                if note == found.note and found.written is not None:
                    return found
                if await self._engine.keep_sqs_note(key, _encode(note), found.written):
                    return await self.read(key)
        raise SkepError(Code.STORE_BUSY, f"the attributes of {key.name!r} are being changed over and over")

    def _changed(self, key: QueueKey) -> None:
        self._changes += 1
        self._known.pop(key, None)

    def _forget_all(self) -> None:
        self._changes += 1
        self._known.clear()
