"""Replaying and purging dead letters, in bounded transactions and with an end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from skep.clock import Clock, Instant
from skep.config import Limits
from skep.engine.record_checks import is_json
from skep.errors import Code, SkepError
from skep.ids import Id, IdMint
from skep.model import (
    NO_GROUP,
    DeadLetterFilter,
    Edited,
    MessageFilter,
    MessageState,
    NewMessage,
    QueueKey,
    Replayed,
    Seq,
)
from skep.model.history import ReplayRecord
from skep.store.protocol.browse import BrowseVerbs
from skep.store.protocol.dead_letters import DeadLetterReadVerbs, DeadLetterVerbs
from skep.store.protocol.stats import StatsVerbs


class DeadLettersAndStats(DeadLetterVerbs, StatsVerbs, Protocol):
    """The store's verbs for dead letters and figures."""


class Replay(msgspec.Struct, frozen=True):
    """How many dead letters were replayed, or would be; ``replayed`` names the first ones."""

    count: int
    replayed: list[Replayed]


Seal = Callable[[Sequence[NewMessage], Sequence[Id]], Awaitable[list[NewMessage]]]
"""Seals (encrypts) the messages of encrypted queues."""


async def replay_edited(
    store: DeadLetterVerbs,
    opened: DeadLetterReadVerbs,
    clock: Clock,
    ids: IdMint,
    limits: Limits,
    wanted: DeadLetterFilter,
    edited: Edited,
    seal: Seal,
) -> Replay:
    """Move the one dead letter that matches back to its queue with another payload, sealed if the queue is encrypted."""
    payload = edited.payload
    if len(payload) > limits.payload_bytes:
        raise SkepError(Code.PAYLOAD_TOO_LARGE, f"a payload has at most {limits.payload_bytes} bytes")
    if not is_json(payload):
        raise SkepError(Code.INVALID_PAYLOAD, "the edited payload is not JSON")
    letters = await opened.dead_letters(wanted, None, 2)
    if not letters:
        return Replay(0, [])
    if len(letters) > 1:
        raise SkepError(Code.INVALID_REQUEST, "dead letters are edited one by one")
    [letter] = letters
    id_ = ids.mint()
    source = QueueKey(letter.source_queue, wanted.queue.tenant)
    # Sealed with its trace id, which stays when the replay gives the message a new id.
    message = NewMessage(source, payload, partition=letter.partition, trace_id=letter.trace_id)
    [sealed] = await seal([message], [id_])
    instead = Edited(sealed.payload, sealed.content_type, edited.headers)
    moved = (await store.replay(wanted, [id_], letter.seq, clock.now(), instead, Seq(letter.seq - 1))).replayed
    return Replay(len(moved), moved)


async def replay_all(
    store: DeadLettersAndStats,
    clock: Clock,
    ids: IdMint,
    limits: Limits,
    wanted: DeadLetterFilter,
    pushed: Callable[[QueueKey, Instant], None],
) -> Replay:
    """Move all dead letters that match now back to their source queues; ``pushed`` is called for these queues."""
    # Messages that die again meanwhile get seqs beyond this one, so the loop ends.
    until = (await store.queue_stats(wanted.queue, clock.now())).last_seq
    count, named = 0, list[Replayed]()
    after: Seq | None = None
    while True:
        minted = ids.mint_many(limits.replay_batch)
        try:
            step = await store.replay(wanted, minted, until, clock.now(), None, after)
        except SkepError as error:
            raise SkepError(error.code, error.message, **{**error.details, "replayed": count}) from error
        count += len(step.replayed)
        named += step.replayed[: limits.replays_listed - len(named)]
        for key in {replayed.queue for replayed in step.replayed}:
            pushed(key, clock.now())
        if (after := step.after) is None:
            return Replay(count, named)


async def purge_all(store: DeadLettersAndStats, clock: Clock, limits: Limits, wanted: DeadLetterFilter) -> int:
    """Delete all dead letters that match now; returns how many were deleted."""
    # Messages that die meanwhile get seqs beyond this one.
    last = (await store.queue_stats(wanted.queue, clock.now())).last_seq
    meant = msgspec.structs.replace(wanted, up_to=last if wanted.up_to is None else min(last, wanted.up_to))
    purged = 0
    after: Seq | None = None
    while True:
        step = await store.purge(meant, limits.replay_batch, clock.now(), after)
        purged += step.count
        if (after := step.after) is None:
            return purged


async def with_results(
    opened: BrowseVerbs, tenant: str, records: Sequence[ReplayRecord], now: Instant
) -> list[tuple[ReplayRecord, MessageState | None]]:
    """Replays, each with the state of its message for its group. Neighbours in the log are read together."""
    states: dict[tuple[str, str, int], MessageState | None] = {}
    wanted = sorted(
        (one.queue, one.group, one.seq) for one in records if one.queue is not None and one.group != NO_GROUP
    )
    while wanted:
        queue, group, first = wanted[0]
        run = [place for n, place in enumerate(wanted) if place == (queue, group, first + n)]
        del wanted[: len(run)]
        look = MessageFilter(
            queue=QueueKey(queue, tenant), group=group, after=Seq(first - 1), limit=len(run), preview_bytes=0
        )
        try:
            page = await opened.messages(look, now)
        except SkepError as error:
            if error.code not in (Code.QUEUE_NOT_FOUND, Code.GROUP_NOT_FOUND):
                raise
            continue
        states.update({(queue, group, message.seq): message.state for message in page.messages})
    return [(one, states.get((one.queue or "", one.group, one.seq))) for one in records]
