"""Looks at queues over HTTP, noted in the words of the store: figures, logs, dead letters, and what is done about those."""

from __future__ import annotations

from collections import defaultdict

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.ids import Id, parse_id
from skep.model import (
    DeadLetter,
    GroupStats,
    QueueKey,
    QueueStats,
    Replayed,
    Seq,
    StoredMessage,
)
from skep.wire.browsing import BrowsedMessage
from skep.wire.dead_letters import DeadLetterView, ReplayResponse
from skep.wire.groups import GroupFigures
from skep.wire.queues import QueueDetail
from skep.wire.times import to_instant
from torture.caller import Caller, wire_name
from torture.history import Copy
from torture.queues import name_in


async def look_at_figures(caller: Caller, queue: QueueKey) -> QueueStats | None:
    """The figures of a queue; None when there was no answer."""
    found = await caller.note(
        "stats", queue, caller.again.stats(wire_name(queue)), lambda detail: _stats(detail, queue)
    )
    return None if found is None else _stats(found, queue)


async def look_at_log(caller: Caller, queue: QueueKey, *, after: int = 0) -> None:
    """The log of a queue in its present life, which begins after the seq."""

    async def read() -> list[BrowsedMessage]:
        return [message async for message in caller.again.messages(wire_name(queue)) if message.seq > after]

    await caller.note("log", queue, read(), lambda found: [_stored(message, queue) for message in found])


async def look_at_dead_letters(caller: Caller, queue: QueueKey, *, most: int | None = None) -> list[DeadLetter]:
    """All dead letters of a queue, or so many of the oldest."""

    async def read() -> list[DeadLetter]:
        found: list[DeadLetter] = []
        async for letter in caller.again.dead_letters(wire_name(queue)):
            found.append(_letter(letter))
            if len(found) == most:
                break
        return found

    return await caller.note("dead", queue, read(), lambda letters: letters) or []


async def look_at_events(caller: Caller, queue: QueueKey, entity: str, partitions: list[str]) -> None:
    """The events that commands of a queue's messages made, by partition, each by the name of its message; there is an entity for each."""

    async def read() -> dict[str, list[str]]:
        found = {}
        for partition in partitions:
            found[partition] = await events_of(partition)
        return found

    async def events_of(partition: str) -> list[str]:
        try:
            events = caller.again.entity_events(entity, f"{queue.name}/{partition}")
            return [name_in(event.data) async for event in events]
        except SkepError as error:
            if error.code is not Code.ENTITY_NOT_FOUND:
                raise
            return []

    await caller.note("effects", (queue, "events"), read(), lambda found: found)


async def look_at_follow_ups(caller: Caller, queue: QueueKey, told: QueueKey) -> None:
    """The messages that followed from a queue's messages, by partition, each by the name of its message."""

    async def read() -> dict[str, list[str]]:
        found = defaultdict(list)
        async for message in caller.again.messages(wire_name(told)):
            found[message.partition].append(name_in(message.payload))
        return dict(found)

    await caller.note("effects", (queue, "follow-ups"), read(), lambda found: found)


class _Copied(Struct):
    """The payload of a copy, as `torture.spark_job` makes it; it leaves out what is null."""

    id: str
    seq: int
    payload: str
    transaction_id: str | None = None


async def look_at_copies(caller: Caller, source: QueueKey, sink: QueueKey) -> None:
    """The copies of a queue's messages that a Spark job made, in the order of their log."""

    async def read() -> list[Copy]:
        return [_copy(message) async for message in caller.again.messages(wire_name(sink))]

    await caller.note("copies", (source, sink), read(), lambda found: found)


def _copy(message: BrowsedMessage) -> Copy:
    copied = msgspec.json.decode(message.payload, type=_Copied)
    id_ = parse_id(copied.id)
    return Copy(message.seq, message.partition, id_, copied.seq, copied.transaction_id, copied.payload)


async def replay(caller: Caller, queue: QueueKey, letters: list[DeadLetter]) -> None:
    """Send dead letters back to their groups."""
    groups = {letter.seq: letter.group for letter in letters}
    seqs = [int(letter.seq) for letter in letters]
    ids: list[Id] = []

    def read(answer: ReplayResponse) -> list[Replayed]:
        done = [Replayed(Seq(one.dead_seq), queue, parse_id(one.id), Seq(one.seq)) for one in answer.replayed]
        ids.extend(one.id for one in done)
        return done

    await caller.note("replay", (ids, groups, queue), caller.once.replay(wire_name(queue), seqs=seqs), read)


async def purge(caller: Caller, queue: QueueKey, letters: list[DeadLetter]) -> None:
    """Delete dead letters."""
    seqs = [int(letter.seq) for letter in letters]
    asked = caller.once.purge(wire_name(queue), seqs=seqs)
    await caller.note("purge", [letter.id for letter in letters], asked, lambda _: None)


def _stats(detail: QueueDetail, queue: QueueKey) -> QueueStats:
    known = {name: getattr(detail.stats, name) for name in detail.stats.__struct_fields__}
    return QueueStats(queue=queue, groups=[_group(figures, queue) for figures in detail.groups], **known)


def _group(figures: GroupFigures, queue: QueueKey) -> GroupStats:
    wanted = GroupStats.__struct_fields__
    known = {name: getattr(figures, name) for name in figures.__struct_fields__ if name in wanted}
    times = {
        name: None if known[name] is None else to_instant(known[name])
        for name in ("oldest_at", "created_at", "active_at")
    }
    # Where a group began is not told over HTTP.
    return GroupStats(**{"start_seq": 0, **known, **times, "queue": queue, "group": figures.consumer_group})


def _stored(message: BrowsedMessage, queue: QueueKey) -> StoredMessage:
    return StoredMessage(
        queue=queue, seq=Seq(message.seq), partition=message.partition, id=parse_id(message.id),
        transaction_id=message.transaction_id, trace_id=parse_id(message.trace_id), headers=None,
        content_type=message.content_type, payload=bytes(message.payload), payload_bytes=message.payload_bytes,
        priority=message.priority, created_at=to_instant(message.created_at),
    )  # fmt: skip


def _letter(letter: DeadLetterView) -> DeadLetter:
    return DeadLetter(
        queue=QueueKey(letter.queue), seq=Seq(letter.seq), id=parse_id(letter.id), partition=letter.partition,
        source_queue=letter.source_queue, source_seq=Seq(letter.source_seq), group=letter.consumer_group,
        reason=letter.reason, error=letter.error, attempts=letter.attempts, transaction_id=letter.transaction_id,
        trace_id=parse_id(letter.trace_id), headers=None, content_type=letter.content_type,
        payload=bytes(letter.payload), created_at=to_instant(letter.created_at), failed_at=to_instant(letter.failed_at),
    )  # fmt: skip
