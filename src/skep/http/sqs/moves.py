"""Message move tasks: messages of a dead-letter queue go back to where they died, or to another queue, at a rate.

A task takes messages as any reader does, and pushes and deletes them in one transaction: a message is in one place at every moment. Its state
is in the note of the source queue, so every server can tell of it and cancel it. The server that started a task carries it out. When that
server stops, the task ends: what was not moved is still in the source, and a new task goes on.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import uuid
from collections.abc import Sequence
from itertools import accumulate

import msgspec
import structlog
from msgspec import Struct

from skep.access.principal import Principal
from skep.clock import MICROS_PER_MS, Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.request.call import Call
from skep.http.sqs import attributes
from skep.http.sqs.door import SqsDoor
from skep.http.sqs.faults import NOT_FOUND, SqsError, invalid, missing
from skep.http.sqs.managing import sources_of
from skep.http.sqs.names import arn, key_of_arn
from skep.http.sqs.queues import MoveRecord, MoveStatus, Note, SqsQueue, SqsQueues
from skep.http.sqs.shapes import (
    CancelMoveRequest,
    CancelMoveResult,
    ListMovesRequest,
    ListMovesResult,
    MoveTask,
    StartMoveRequest,
    StartMoveResult,
)
from skep.model import Delivery, NewMessage, PopRequest, QueueKey, SettleStatus
from skep.model.key import Verb

RATE_MAX = 500
BATCH = 100
LISTED_MAX = 10
LEASE_SECONDS = 60.0
SILENT_SECONDS = 60.0
"""A task that has told nothing for so long has ended with its server."""
ENDED = "The server that carried the task out has stopped."
NO_SOURCE = "CouldNotDetermineMessageSource"

log = structlog.get_logger("skep.sqs")


class _Handle(Struct, rename="camel"):
    task_id: str
    source_arn: str


async def start(door: SqsDoor, call: Call, request: StartMoveRequest) -> StartMoveResult:
    """Start a task."""
    source = await _source(door, call, request.source_arn, Verb.ADMIN)
    rate = request.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise invalid("MaxNumberOfMessagesPerSecond", rate, f"Must be between 1 and {RATE_MAX}.")
    targets = await sources_of(door.engine, source.key)
    if not targets and not source.queue.holds_dead_letters:
        raise invalid("SourceArn", request.source_arn, "Source queue must be configured as a Dead Letter Queue.")
    if request.destination_arn is None:
        destination = None
        for key in targets:
            call.check(key, Verb.PUSH)
    else:
        destination = await _destination(door, call, source, request.destination_arn)
    figures = attributes.counts(await door.engine.browse.queue_stats(source.key))
    now = door.now_ms()
    move = MoveRecord(
        str(uuid.uuid4()), now, now, MoveStatus.RUNNING, None if destination is None else destination.name, rate,
        to_move=int(figures[attributes.VISIBLE]),
    )  # fmt: skip

    def begun(queue: SqsQueue) -> Note:
        if any(_shown(one, now).is_active for one in queue.note.moves):
            raise invalid("SourceArn", request.source_arn, "There is already a task running. Only one active task is allowed for a source queue arn at a given time.")  # fmt: skip
        return msgspec.structs.replace(queue.note, moves=[move, *queue.note.moves][:LISTED_MAX])

    await door.queues.change_note(source.key, begun)
    task = asyncio.create_task(_Mover(door.engine, door.queues, source.key, move, call.principal).run())
    door.moving.add(task)
    task.add_done_callback(door.moving.discard)
    return StartMoveResult(_written(_Handle(move.id, arn(call, source.key))))


async def list_moves(door: SqsDoor, call: Call, request: ListMovesRequest) -> ListMovesResult:
    """The newest tasks of a source."""
    source = await _source(door, call, request.source_arn, Verb.READ)
    most = 1 if request.max_results is None else request.max_results
    if not 1 <= most <= LISTED_MAX:
        raise invalid("MaxResults", most, f"Must be between 1 and {LISTED_MAX}.")
    now, own = door.now_ms(), arn(call, source.key)
    return ListMovesResult([_told(call, source.key, own, _shown(one, now)) for one in source.note.moves[:most]])


def _told(call: Call, source: QueueKey, own: str, one: MoveRecord) -> MoveTask:
    return MoveTask(
        one.status.value, own, one.started_ms, one.moved, one.to_move, _written(_Handle(one.id, own)) if one.is_active else None,
        None if one.destination is None else arn(call, QueueKey(one.destination, source.tenant)), one.rate, one.failure,
    )  # fmt: skip


async def cancel(door: SqsDoor, call: Call, request: CancelMoveRequest) -> CancelMoveResult:
    """Cancel a task: the messages that it has taken are still moved, and no others."""
    handle = _read(request.task_handle)
    source = await _source(door, call, handle.source_arn, Verb.ADMIN)
    now = door.now_ms()

    def cancelled(queue: SqsQueue) -> Note:
        found = next((one for one in queue.note.moves if one.id == handle.task_id), None)
        if found is None or _shown(found, now).status is not MoveStatus.RUNNING:
            raise SqsError(NOT_FOUND, "There is no active task with this handle.")
        return with_move(queue.note, msgspec.structs.replace(found, status=MoveStatus.CANCELLING, updated_ms=now))

    changed = await door.queues.change_note(source.key, cancelled)
    return CancelMoveResult(next(one.moved for one in changed.note.moves if one.id == handle.task_id))


async def _source(door: SqsDoor, call: Call, text: str | None, verb: Verb) -> SqsQueue:
    if text is None:
        raise missing("SourceArn")
    key = key_of_arn(text, "SourceArn")
    call.name_tenant(key.tenant)
    call.check(key, verb)
    return await _there(door, key)


async def _destination(door: SqsDoor, call: Call, source: SqsQueue, text: str) -> QueueKey:
    key = key_of_arn(text, "DestinationArn")
    if key.tenant != source.key.tenant or key == source.key:
        raise invalid("DestinationArn", text, "It must be another queue of the same account.")
    call.check(key, Verb.PUSH)
    if (await _there(door, key)).is_fifo is not source.is_fifo:
        raise invalid("DestinationArn", text, "It must be of the same type as the source.")
    return key


async def _there(door: SqsDoor, key: QueueKey) -> SqsQueue:
    try:
        return await door.queues.read(key)
    except SqsError:
        raise SqsError(NOT_FOUND, f"The resource that you specified doesn't exist: {key.name[:255]}") from None


def _shown(move: MoveRecord, now_ms: int) -> MoveRecord:
    """A task as it is told: one that is silent for too long has failed."""
    if not move.is_active or now_ms - move.updated_ms < SILENT_SECONDS * 1_000:
        return move
    return msgspec.structs.replace(move, status=MoveStatus.FAILED, failure=ENDED)


def with_move(note: Note, move: MoveRecord) -> Note:
    """The note with one of its tasks changed."""
    return msgspec.structs.replace(note, moves=[move if one.id == move.id else one for one in note.moves])


def _written(handle: _Handle) -> str:
    return base64.b64encode(msgspec.json.encode(handle)).decode()


def _read(text: str | None) -> _Handle:
    if text is None:
        raise missing("TaskHandle")
    try:
        return msgspec.json.decode(base64.b64decode(text, validate=True), type=_Handle)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise invalid("TaskHandle", text, "it is no handle of a task.") from None


class _Mover:
    """Carries out one task, for the ``principal`` that started it."""

    def __init__(
        self, engine: Engine, queues: SqsQueues, source: QueueKey, move: MoveRecord, principal: Principal | None
    ) -> None:
        self._engine = engine
        self._queues = queues
        self._source = source
        self._move = move
        self._principal = principal

    async def run(self) -> None:
        """Move messages until nothing is there to be had, the task is cancelled, or a message cannot be moved."""
        try:
            status, failure = await self._moved_all(), None
        except SkepError as error:
            if error.code is Code.STOPPING:
                return
            status, failure = MoveStatus.FAILED, error.message
        try:
            await self._tell(status, failure)
        except SkepError as error:  # it will be told as failed when it is silent for long enough
            log.warning("the end of a move task cannot be noted", queue=self._source.name, error=str(error))

    async def _moved_all(self) -> MoveStatus:
        rate = self._move.rate
        batch = BATCH if rate is None else min(BATCH, rate)
        while True:
            began = self._engine.now()
            wanted = PopRequest(self._source, batch=batch, lease_seconds=LEASE_SECONDS)
            deliveries = (await self._engine.pop(wanted)).deliveries
            if not deliveries:
                return MoveStatus.COMPLETED
            await self._move_taken(deliveries)
            if not await self._tell(MoveStatus.RUNNING):
                return MoveStatus.CANCELLED
            if rate is not None:
                await self._engine.sleep_until(Instant(began + seconds(len(deliveries) / rate)))

    async def _move_taken(self, deliveries: Sequence[Delivery]) -> None:
        """Move messages, in as many transactions as their bytes need; what cannot be moved is given back."""
        left = deliveries
        try:
            while left:
                piece = _fitting(left, self._engine.settings.limits.request_bytes)
                await self._move_together(piece)
                left = left[len(piece) :]
                self._move = msgspec.structs.replace(self._move, moved=self._move.moved + len(piece))
        finally:
            if left:
                self._engine.give_back(left)

    async def _move_together(self, deliveries: Sequence[Delivery]) -> None:
        """Push and delete messages, in one transaction."""
        messages = [_message(one, await self._target(one)) for one in deliveries]
        outcome = await self._engine.transact([one.settlement() for one in deliveries], messages, json_checked=True)
        if not outcome.committed:
            refused = next((one for one in outcome.pushed.results if one.code not in (None, Code.BATCH_REFUSED)), None)
            stale = any(one.status is SettleStatus.REFUSED for one in outcome.settled)
            raise SkepError(Code.INTERNAL, refused.reason or "refused" if refused else "stale" if stale else "refused")

    async def _target(self, one: Delivery) -> QueueKey:
        name = self._move.destination
        if name is None:
            if one.dead_letter is None:
                raise SkepError(Code.INVALID_REQUEST, NO_SOURCE)
            name = one.dead_letter.source_queue
            if self._principal is not None:  # it may have died in a queue that names the source no more
                self._principal.check(Verb.PUSH, self._source.tenant, name)
        return (await self._queues.get(QueueKey(name, self._source.tenant))).key  # a push would make it

    async def _tell(self, status: MoveStatus, failure: str | None = None) -> bool:
        """Note how far the task is; returns whether it is to go on."""
        goes_on = True

        def told(queue: SqsQueue) -> Note:
            nonlocal goes_on
            known = next((one for one in queue.note.moves if one.id == self._move.id), None)
            goes_on = known is not None and known.status is MoveStatus.RUNNING
            kept = known.status if known is not None and status is MoveStatus.RUNNING else status
            now = self._engine.now() // MICROS_PER_MS
            return with_move(
                queue.note, msgspec.structs.replace(self._move, status=kept, failure=failure, updated_ms=now)
            )

        await self._queues.change_note(self._source, told)
        return goes_on


def _fitting(deliveries: Sequence[Delivery], most_bytes: int) -> Sequence[Delivery]:
    """The first messages that one push may carry together; the first in any case."""
    sizes = accumulate(len(one.payload) + len(one.headers or b"") for one in deliveries)
    return deliveries[: max(1, sum(size <= most_bytes for size in sizes))]


def _message(one: Delivery, target: QueueKey) -> NewMessage:
    """A moved message: a new one, so that a deduplication id that is still remembered does not swallow it."""
    return NewMessage(
        target, one.payload, one.partition, None, one.trace_id, one.headers, one.content_type, None, one.priority
    )
