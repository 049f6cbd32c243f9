"""Replaying and purging dead letters, in bounded transactions and with an end."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from skep.clock import Clock, Instant
from skep.config import Limits
from skep.engine.record_checks import is_json
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import DeadLetterFilter, QueueKey, Replayed
from skep.store.protocol import Store


class Replay(msgspec.Struct, frozen=True):
    """How many dead letters went back, or would; ``replayed`` names the first of them."""

    count: int
    replayed: list[Replayed]


def check_edited(payload: bytes, limits: Limits) -> None:
    """A payload that dead letters go back with instead of their own."""
    if len(payload) > limits.payload_bytes:
        raise SkepError(Code.PAYLOAD_TOO_LARGE, f"a payload has at most {limits.payload_bytes} bytes")
    if not is_json(payload):
        raise SkepError(Code.INVALID_PAYLOAD, "the edited payload is not JSON")


async def replay_all(
    store: Store,
    clock: Clock,
    ids: IdMint,
    limits: Limits,
    wanted: DeadLetterFilter,
    pushed: Callable[[QueueKey, Instant], None],
    edited: bytes | None = None,
) -> Replay:
    """Move all that match now back to their source queues; ``pushed`` is told of these."""
    # What dies again while this runs lies beyond that seq, so the loop ends.
    until = (await store.queue_stats(wanted.queue, clock.now())).last_seq
    count, named = 0, list[Replayed]()
    while True:
        minted = ids.mint_many(limits.replay_batch)
        try:
            moved = await store.replay(wanted, minted, until, clock.now(), edited)
        except SkepError as error:
            raise SkepError(error.code, error.message, **{**error.details, "replayed": count}) from error
        count += len(moved)
        named += moved[: limits.replays_listed - len(named)]
        for key in {replayed.queue for replayed in moved}:
            pushed(key, clock.now())
        if len(moved) < len(minted):
            return Replay(count, named)


async def purge_all(store: Store, clock: Clock, limits: Limits, wanted: DeadLetterFilter, matching: int) -> int:
    """Delete as many as matched; how many were deleted."""
    purged = 0
    while purged < matching:
        limit = min(limits.replay_batch, matching - purged)
        done = await store.purge(wanted, limit, clock.now())
        purged += done
        if done < limit:
            break
    return purged
