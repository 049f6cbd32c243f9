"""A push that also leases messages to waiting pops (functions/push_and_pop.sql)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from skep.clock import Instant, seconds
from skep.model import PopRequest, PopResult, PushBatch, PushOutcome
from skep.store.postgres import pop, push
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.statements import load_statements

SQL = load_statements(__package__, "push_and_pop")


class PushedAndPopped(NamedTuple):
    """The outcomes of the pushes, the ids of queues that other servers watch, and the result of each pop (None: not served)."""

    outcomes: list[PushOutcome]
    watched: list[int]
    popped: list[PopResult | None]


def first_shape(batches: Sequence[PushBatch], requests: Sequence[PopRequest]) -> list[int]:
    """The indexes of the requests that this push can serve: all of one shape, without auto-ack."""
    if any(batch.receipt is not None for batch in batches):
        return []
    numbers: list[int] = []
    shape: pop.PopShape | None = None
    for number, request in enumerate(requests):
        shape = shape or pop.shape_of(request)
        if not request.auto_ack and pop.shape_of(request) == shape:
            numbers.append(number)
    return numbers


async def push_and_pop(
    db: Database, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
) -> tuple[list[PushOutcome], list[PopResult | None]]:
    """Append, and lease ready messages to the requests of one shape, in one transaction."""
    popped: list[PopResult | None] = [None] * len(requests)
    numbers = first_shape(batches, requests) if push.is_small(batches, now) else []
    if numbers:
        done = await db.pool.once(_push_and_pop, batches, [requests[number] for number in numbers], now, db.shard)
        if done is not None:
            db.news.announce(done.watched)
            for number, found in zip(numbers, done.popped, strict=True):
                popped[number] = found
            return done.outcomes, popped
    return await push.push(db, batches, now, create_queues), popped


async def _push_and_pop(
    connection: Connection, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, shard: int
) -> PushedAndPopped | None:
    """Push a few plain messages, and pop for requests of one shape; None when the push must go the long way."""
    shape = pop.shape_of(requests[0])
    lease_us = None if shape.lease_seconds is None else seconds(shape.lease_seconds)
    rows = await connection.fetch(
        SQL["push_and_pop"], *push.columns(batches, now), shape.group, [request.batch for request in requests],
        [request.token for request in requests], shape.max_partitions, shape.partition, lease_us, shard, shape.max_bytes,
        [request.consumer for request in requests],
    )  # fmt: skip
    if not rows:
        return None
    pushed = rows[0]
    popped = await popped_of(connection, rows[1:], requests)
    watched = [pushed["priority"]] if pushed["attempt"] else []
    return PushedAndPopped(push.stored(batches, pushed["seq"], pushed["created_at"]), watched, popped)


async def popped_of(
    connection: Connection, rows: list[asyncpg.Record], requests: Sequence[PopRequest]
) -> list[PopResult | None]:
    """The results of the pops; None when they must pop by themselves: rows need tidying, or the queue is unordered or changed."""
    if not rows or rows[-1]["partition"] not in ("ok", "paused", "held"):
        return [None] * len(requests)
    found = await pop.results_of(connection, rows, requests)
    return [None] * len(requests) if found is None else list(found)
