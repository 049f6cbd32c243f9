"""Operations: calls that wait for their turn, claimed by one server at a time and performed once.

The effect of an operation and its end are one transaction, fenced by the token of the claim. Rows of operations are locked
before all else (`docs/log.md`), so a holder of a log never waits for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import asyncpg
import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import QueueKey, Token
from skep.model.operation import (
    GROWTHS,
    LOST,
    PRIORITY,
    STUCK_TIMEOUTS,
    Claimed,
    ClaimedOperations,
    ClaimLimits,
    Enqueued,
    GivenBack,
    NewOperation,
    NewOperations,
    Operation,
    OperationFigures,
    OperationFilter,
    OperationKind,
    OperationLane,
    OperationPage,
    OperationStatus,
    Performed,
    WaitingOperations,
    decode_push,
    encode_pushed,
    encode_settled,
    lane_of,
    refusal,
    split,
)
from skep.store.postgres import push
from skep.store.postgres.bury import bury_new
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.rows import struct_of
from skep.store.postgres.settle import settle_once
from skep.store.rules import CLAIM_HEADS, CLAIM_LOOKS, CLAIM_PASSED, SEQ_MAX, Head, HeadWalk, in_turn, ready_heads
from skep.store.statements import load_statements

SQL = load_statements(__package__, "operations")

LOOKS = 3
"""How often a call is split into operations again, when a queue turned out to be fifo."""
FAILED = (OperationStatus.FAILED, OperationStatus.CANCELLED)
WALK = 10_000
"""How many operations one page looks at."""


async def enqueue(db: Database, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
    """Store each call as operations, whole."""
    return await db.pool.once(_enqueue, requests, now)


async def _enqueue(connection: Connection, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
    """Store all calls in one statement, which is a transaction by itself."""
    fifo = dict[QueueKey, bool]()
    for _ in range(LOOKS):
        groups = [split(request, fifo) for request in requests]
        rows = await connection.fetch(SQL["enqueue"], now, *_columns(list(chain.from_iterable(groups))))
        if rows:
            positions = {row["id"]: row["position"] for row in rows}
            return [
                [Enqueued(o.id, o.kind, o.queue, o.partition, positions[o.id], o.indexes) for o in group]
                for group in groups
            ]
        # One of the queues is fifo, so its messages belong into one operation.
        keys = list({o.queue for group in groups for o in group})
        found = await connection.fetch(SQL["fifo"], [k.tenant for k in keys], [k.name for k in keys])
        fifo = {keys[row["ord"] - 1]: True for row in found}
    raise SkepError(Code.STORE_BUSY, "a queue keeps changing its ordering")


def _columns(operations: Sequence[NewOperation]) -> tuple[list[object], ...]:
    return (
        [o.id for o in operations],
        [o.kind.value for o in operations],
        [lane_of(o.kind).value for o in operations],
        [o.queue.tenant for o in operations],
        [o.queue.name for o in operations],
        [o.partition for o in operations],
        [PRIORITY[o.kind] for o in operations],
        [o.messages for o in operations],
        [o.timeout_seconds for o in operations],
        [o.max_retries for o in operations],
        [o.payload for o in operations],
    )


async def claim(db: Database, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> ClaimedOperations:
    """Take the next operations that may be performed."""
    return await db.pool.once(claim_next, worker, token, limits, now, db.head_walk)


async def claim_next(
    connection: Connection, worker: str, token: Token, limits: ClaimLimits, now: Instant, walk: HeadWalk
) -> ClaimedOperations:
    """Take the next operations that may be performed: in their order, or by partition when the first ones all have to wait.

    While another claimer is at work nothing is taken, and the next look by partition begins where this one did.
    """
    bounds = (token, worker, limits.operations, limits.messages, limits.bytes, now)
    rows = await connection.fetch(SQL["claim"], *bounds, CLAIM_PASSED, GROWTHS, LOST)
    if rows:
        return _taken(rows, walk, walk.after)
    for _ in range(CLAIM_LOOKS):
        heads = [tuple(row) for row in await connection.fetch(SQL["heads"], *walk.after, CLAIM_HEADS)]
        ready, after = ready_heads(heads, now, limits.operations)
        rows = await connection.fetch(SQL["claim_heads"], *bounds, ready, GROWTHS, LOST) if ready else []
        if rows:
            return _taken(rows, walk, after)
        if not walk.go_on(after):
            return ClaimedOperations([])
    return ClaimedOperations([], more=True)


def _taken(rows: Sequence[asyncpg.Record], walk: HeadWalk, after: Head) -> ClaimedOperations:
    if rows[0]["position"] is None:  # another claimer is at work
        return ClaimedOperations([])
    walk.found(after)
    return ClaimedOperations(sorted((_claimed(row) for row in rows), key=lambda claimed: claimed.position))


def _claimed(row: asyncpg.Record) -> Claimed:
    return Claimed(
        row["position"], row["id"], OperationKind(row["kind"]), QueueKey(row["queue"], row["tenant"]), row["partition"], row["payload"],
        row["messages"], row["tries"], row["max_retries"], row["timeout_seconds"], Instant(row["created_at"]),
        row["blocked_at"], None if row["code"] is None else Code(row["code"]), row["error"],
    )  # fmt: skip


class RefusedError(Exception):
    """Undoes all operations of a claim, as one was refused: others may have to wait behind it."""

    def __init__(self, performed: Performed) -> None:
        super().__init__("refused")
        self.performed = performed


async def perform(
    db: Database, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
) -> Performed:
    """Perform claimed operations, and end them."""
    try:
        performed, watched = await db.pool.transaction(_perform, token, claimed, now, create_queues, db.shard)
    except RefusedError as refused:
        return refused.performed
    db.news.announce(watched)
    return performed


async def _perform(
    connection: Connection,
    token: Token,
    claimed: Sequence[Claimed],
    now: Instant,
    create_queues: bool,
    shard: int,
) -> tuple[Performed, list[int]]:
    """Perform operations of one lane, and store their results; also returns the ids of queues that other servers watch."""
    mine = await _mine(connection, token, [one.position for one in claimed])
    todo = [one for one in claimed if one.position in mine]
    lost = [one.position for one in claimed if one.position not in mine]
    if not todo:
        return Performed({}, lost, {}), []
    watched = list[int]()
    if lane_of(todo[0].kind) is OperationLane.PUSH:
        outcomes, watched = await push.push_batches(
            connection, [one.batch for one in todo], now, create_queues, in_turn=True
        )
        refused = {
            one.position: refusal(outcome) for one, outcome in zip(todo, outcomes, strict=True) if outcome.refused
        }
        if refused:
            raise RefusedError(Performed({}, lost, refused))
        results = [encode_pushed(outcome) for outcome in outcomes]
    else:
        asked = [one.settlements for one in todo]
        settled = iter(await settle_once(connection, list(chain.from_iterable(asked)), now, shard))
        results = [encode_settled(one, [next(settled) for _ in one]) for one in asked]
    positions = [one.position for one in todo]
    await connection.execute(SQL["complete"], positions, results, now)
    return Performed(dict(zip(positions, results, strict=True)), lost, {}), watched


async def _mine(connection: Connection, token: Token, positions: list[int]) -> set[int]:
    """The operations that are still ours, without those behind a live one of their partition that is not ours."""
    rows = await connection.fetch(SQL["lock_claimed"], sorted(positions), token)
    ours = [row["position"] for row in rows]
    before = await connection.fetch(SQL["before"], ours)
    return in_turn({row["position"]: row["before"] for row in before})


async def give_back(connection: Connection, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
    """Give back operations that were not performed, to be tried again or given up; returns those that were still ours."""
    rows = await connection.fetch(SQL["lock_claimed"], sorted(one.position for one in back), token)
    places = {row["position"]: QueueKey(row["queue"], row["tenant"]) for row in rows}
    mine = [one for one in back if one.position in places]
    again = [one for one in mine if one.retry_at is not None]
    if again:
        await connection.execute(
            SQL["retry"], [one.position for one in again], [one.retry_at for one in again], [one.error for one in again],
            [one.code for one in again], [int(one.untried) for one in again], [one.blocked_at for one in again],
            now,
        )  # fmt: skip
    for one in sorted(mine, key=lambda one: one.position):
        if one.retry_at is None:
            target = await _bury(connection, places[one.position], one, now)
            await connection.execute(SQL["fail"], one.position, now, one.error, one.code, target)
    return [one.position for one in mine]


async def _bury(connection: Connection, key: QueueKey, one: GivenBack, now: Instant) -> str | None:
    """Store the messages of a push as dead letters; returns the name of their queue, None when they cannot be stored."""
    row = await connection.fetchrow(SQL["payload"], one.position)
    assert row is not None
    if OperationKind(row["kind"]) is not OperationKind.PUSH or row["payload"] is None:
        return None
    try:
        batch = decode_push(one.payload or row["payload"], key)
    except msgspec.DecodeError:  # perhaps it failed for that
        return None
    return await bury_new(connection, key, batch, one.error, row["tries"], now)


async def cancel(connection: Connection, tenant: str, id_: Id, now: Instant) -> bool:
    """End an operation that nobody has begun to perform."""
    return await connection.fetchval(SQL["cancel"], id_, tenant, now) is not None


async def find(connection: Connection, tenant: str, id_: Id) -> Operation | None:
    """The operation, or None."""
    row = await connection.fetchrow(SQL["find"], id_, tenant)
    return None if row is None else operation_of(row)


def operation_of(row: asyncpg.Record) -> Operation:
    """The operation that a row holds."""
    return struct_of(
        Operation,
        row,
        kind=OperationKind(row["kind"]),
        queue=QueueKey(row["queue"], row["tenant"]),
        status=OperationStatus(row["status"]),
        ready_at=row["ready_at"] or None,
        code=None if row["code"] is None else Code(row["code"]),
    )


async def browse(connection: Connection, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
    """Operations, newest first, those before ``after``."""
    status = None if wanted.status is None else wanted.status.value
    rows = await connection.fetch(
        SQL["list_failed" if wanted.status in FAILED else "list"], SEQ_MAX if after is None else after, WALK, wanted.tenant, status,
        None if wanted.kind is None else wanted.kind.value, wanted.queue, wanted.partition, limit,
    )  # fmt: skip
    found = [operation_of(row) for row in rows if row["position"] is not None]
    if len(found) == limit:
        return OperationPage(found, found[-1].position)
    return OperationPage(found, rows[0]["walk_end"] if rows[0]["walked"] == WALK else None)


async def waiting(connection: Connection, now: Instant, limit: int) -> WaitingOperations:
    """The live operations, counted up to a limit."""
    rows = await connection.fetch(SQL["waiting"], limit, STUCK_TIMEOUTS, now)
    if not rows:
        return WaitingOperations({})
    return WaitingOperations(
        {OperationKind(row["kind"]): row["depth"] for row in rows},
        min(row["oldest_at"] for row in rows),
        sum(row["stuck"] for row in rows),
        sum(row["blocked"] for row in rows),
    )


async def figures(connection: Connection, tenant: str, limit: int) -> list[OperationFigures]:
    """Figures by kind and status."""
    return [
        OperationFigures(
            OperationKind(row["kind"]), row["priority"], OperationStatus(row["status"]), row["count"], row["oldest_at"],
            row["newest_at"], row["average_seconds"],
        )
        for row in await connection.fetch(SQL["figures"], tenant, limit)
    ]  # fmt: skip


async def sweep(connection: Connection, completed_before: Instant, ended_before: Instant, limit: int) -> int:
    """Delete operations that ended long ago."""
    done = int(await connection.fetchval(SQL["sweep_completed"], completed_before, limit))
    if done < limit:
        done += int(await connection.fetchval(SQL["sweep_ended"], ended_before, limit - done))
    return done
