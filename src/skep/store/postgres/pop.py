"""Popping: leasing messages to consumers.

One SQL function pops ordered queues. It asks for `tidy` when rows must first be buried, expired or put right. Unordered queues are
popped here: their rows are sets of messages, which may have to be split.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec
from msgspec import Struct

from skep.clock import Instant, seconds
from skep.model import DeadLetterOrigin, Delivery, Ordering, PopRequest, PopResult, QueueKey, Start
from skep.model.queue import no_queue
from skep.store.lease import Effects, Ending, run_out_set
from skep.store.postgres import queues, settle
from skep.store.postgres.bury import origins
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.leases import QueueAndGroup, set_of
from skep.store.postgres.tidy import (
    BURIALS_PER_POP,
    TIDY_ROWS,
    few_worn_out,
    is_doomed_set,
    lock_doomed,
    tidy,
    tidy_sets,
)
from skep.store.rules import AHEAD_MICROS, LEASE_EXPIRED, comes_alone, group_is_external, lifetime_micros
from skep.store.statements import load_statements

SQL = load_statements(__package__, "pop")

TIDY_PASSES = 20
"""How often one pop tidies before it leaves the rest to the next."""

DISCOVER_ROWS = 2_000
DISCOVER_PASSES = 16
"""How many stretches of the log one pop discovers, at most."""
OTHERS_BUSY_MICROS = 10_000
"""When a pop that found all ready rows held by others looks again."""


Tidied = dict[tuple[QueueKey, str], tuple[QueueAndGroup, Effects]]
"""What pops of unordered queues have still to bury and to count, by queue and group."""


class TidyingNeededError(Exception):
    """Raised inside a pop's transaction: rows must be put right first, in a transaction of their own."""


class PopShape(Struct, frozen=True):
    """The fields that pops must share, so that one call can serve them together."""

    queue: QueueKey
    group: str
    partition: str | None
    max_partitions: int
    lease_seconds: float | None
    start: Start
    max_bytes: int


def shape_of(request: PopRequest) -> PopShape:
    """The shape of a request."""
    return PopShape(
        request.queue, request.group, request.partition, request.max_partitions, request.lease_seconds, request.start,
        request.max_bytes,
    )  # fmt: skip


async def pop(db: Database, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
    """Lease messages for each request."""
    buried = 0
    for _ in range(TIDY_PASSES):
        try:
            shapes = by_shape(requests)
            if len(shapes) == 1 and not any(request.auto_ack for request in requests):
                # One statement is a transaction by itself.
                (shape,) = shapes
                quick = await db.pool.once(pop_ordered, shape, requests, now, db.shard, True)
                if quick is not None:
                    return quick
            return await db.pool.transaction(pop_all, requests, now, db.shard)
        except TidyingNeededError:
            if buried >= BURIALS_PER_POP:
                break
            buried += await _tidy_for_all(db, requests, now)
    return [PopResult([], more=True) for _ in requests]


async def _tidy_for_all(db: Database, requests: Sequence[PopRequest], now: Instant) -> int:
    """Tidy the rows that these pops look at. They are discovered once more: with a pop's transaction, its discovery was undone.

    Returns how many messages died of their attempts.
    """
    shapes = by_shape(requests)
    for shape in shapes:
        # Not in the transaction that tidies: making a group locks the queue's log, and then no burial may lock another log.
        await db.pool.transaction(_discover_old, shape, now, db.shard)
    buried = 0
    for shape, numbers in shapes.items():
        rows = sum(requests[n].batch for n in numbers)  # no pop looks at more
        buried += await db.pool.transaction(_tidy_for, shape, rows, now, db.shard)
    return buried


async def pop_ordered(
    connection: Connection,
    shape: PopShape,
    requests: Sequence[PopRequest],
    now: Instant,
    shard: int,
    discover: bool,
) -> list[PopResult] | None:
    """Requests of one shape; None when the queue is unordered. Raises `TidyingNeededError` when rows stand in the way."""
    lease_us = None if shape.lease_seconds is None else seconds(shape.lease_seconds)
    rows = await connection.fetch(
        SQL["pop_ordered"], shape.queue.tenant, shape.queue.name, shape.group, shape.start.mode.value, shape.start.value,
        [request.batch for request in requests], [request.token for request in requests], shape.max_partitions,
        shape.partition, now, lease_us, shard, discover, shape.max_bytes, [request.consumer for request in requests],
    )  # fmt: skip
    _check_state(rows[-1]["partition"], shape)
    return await results_of(connection, rows, requests)


async def results_of(
    connection: Connection, rows: list[asyncpg.Record], requests: Sequence[PopRequest]
) -> list[PopResult] | None:
    """The answer of `pop_ordered` by request; None when the queue is unordered."""
    summary = rows.pop()
    match summary["partition"]:
        case "paused" | "held":
            return [PopResult([]) for _ in requests]
        case "doomed":
            raise TidyingNeededError
        case "unordered":
            return None
    deliveries: list[list[Delivery]] = [[] for _ in requests]
    died = (
        await origins(connection, summary["owner"], [row["seq"] for row in rows]) if summary["owner"] and rows else {}
    )
    for row in rows:
        number = row["owner"] - 1
        deliveries[number].append(delivery_of(row, requests[number], row["attempt"], row["deadline"], died))
    return [PopResult(mine, summary["created_at"], more=bool(summary["attempt"])) for mine in deliveries]


async def pop_all(connection: Connection, requests: Sequence[PopRequest], now: Instant, shard: int) -> list[PopResult]:
    """Serve requests in one transaction, by queue and group; only the first shape of a group may discover.

    A later one already holds claims, and discovery waits for rows that others hold: two such calls could deadlock. What unordered
    queues bury and count comes last, for the same reason: who waits for a log holds no counters.
    """
    results: dict[int, PopResult] = {}
    seen: set[tuple[QueueKey, str]] = set()
    tidied: Tidied = {}
    acked: list[Delivery] = []
    for shape, numbers in by_shape(requests).items():
        wanted = [requests[i] for i in numbers]
        account = (shape.queue, shape.group)
        ordered = await pop_ordered(connection, shape, wanted, now, shard, discover=account not in seen)
        popped = await _pop_sets(connection, shape, wanted, now, shard, tidied) if ordered is None else ordered
        seen.add(account)
        for i, result in zip(numbers, popped, strict=True):
            results[i] = result
            if requests[i].auto_ack and ordered is None:
                acked += result.deliveries
            elif requests[i].auto_ack and result.deliveries:
                await _settle_at_once(connection, result.deliveries, now, shard)
    await settle.apply_all(connection, list(tidied.values()), now)
    if acked:
        await _settle_at_once(connection, acked, now, shard)
    return [results[i] for i in range(len(requests))]


async def _settle_at_once(connection: Connection, deliveries: Sequence[Delivery], now: Instant, shard: int) -> None:
    """Ack messages as they are delivered (auto-ack). No repeat of that can come, so the token is not remembered."""
    ended: list[tuple[QueueAndGroup, list[Ending]]] = []
    said = [delivery.settlement() for delivery in deliveries]
    await settle.settle_each(connection, said, now, shard, ended, remember=False)
    for account, endings in ended:
        told_nobody = [msgspec.structs.replace(ending, token=None) for ending in endings]
        await settle.end_leases(connection, account, told_nobody, now)


def by_shape(requests: Sequence[PopRequest]) -> dict[PopShape, list[int]]:
    """The indexes of the requests of each shape, sorted by queue and group."""
    shapes: dict[PopShape, list[int]] = {}
    for i, request in enumerate(requests):
        shapes.setdefault(shape_of(request), []).append(i)
    return {shape: shapes[shape] for shape in sorted(shapes, key=lambda s: (s.queue, s.group))}


def delivery_of(
    row: asyncpg.Record, request: PopRequest, attempt: int, deadline: int, died: dict[int, DeadLetterOrigin]
) -> Delivery:
    """The delivery of a message row under this request's lease; ``died`` has the origins of dead letters by seq."""
    return Delivery(
        request.queue, request.group, row["partition"], row["seq"], row["id"], row["transaction_id"],
        row["trace_id"] or row["id"], row["headers"], row["content_type"], row["payload"], row["priority"], row["created_at"],
        attempt, request.token, Instant(deadline), died.get(row["seq"]) if died else None,
    )  # fmt: skip


async def _tidy_for(connection: Connection, shape: PopShape, rows: int, now: Instant, shard: int) -> int:
    """Tidy the rows that pops of this shape look at; returns how many messages died of their attempts."""
    account = await settle.find_account(connection, shape.queue, shape.group, shard)
    if account is None:
        return 0
    return await tidy(connection, account, now, max(rows, TIDY_ROWS), shape.partition)


async def _discover_old(connection: Connection, shape: PopShape, now: Instant, shard: int) -> None:
    """Discover the next stretch of an ordered queue whose messages can be too old, so that `tidy` finds them."""
    account = await _enter(connection, shape, now, shard)
    if account is None:
        return
    settings = account.queue.settings
    if settings.ordering is not Ordering.UNORDERED and lifetime_micros(settings) is not None:
        await connection.fetchval(SQL["discover"], account.queue.id, account.group_id, DISCOVER_ROWS, shard, now)


async def _pop_sets(
    connection: Connection,
    shape: PopShape,
    requests: Sequence[PopRequest],
    now: Instant,
    shard: int,
    tidied: Tidied,
) -> list[PopResult]:
    account = await _enter(connection, shape, now, shard)
    if account is None:
        return [PopResult([]) for _ in requests]
    if account.queue.settings.ordering is not Ordering.UNORDERED:
        raise asyncpg.SerializationError("the queue was put into another order at this very moment")
    _, effects = tidied.setdefault((shape.queue, shape.group), (account, Effects()))
    taken = [await _take_of_sets(connection, account, request, now, effects) for request in requests]
    seqs = [seq for one in taken for seq in one.attempts]
    messages = (
        {row["seq"]: row for row in await connection.fetch(SQL["messages"], account.queue.id, seqs)} if seqs else {}
    )
    died = await origins(connection, account.queue.id, seqs) if account.queue.holds_dead_letters and seqs else {}
    next_ready = await _next_ready_set(connection, account, shape.partition)
    unread = await connection.fetchval(SQL["has_undiscovered"], account.queue.id, account.group_id)
    is_ready = next_ready is not None and next_ready <= now
    if is_ready and not any(one.found for one in taken):
        # Others hold these rows at the moment. Looking again at once would only get in their way.
        next_ready, is_ready = Instant(now + OTHERS_BUSY_MICROS), False
    return [
        PopResult(
            [delivery_of(messages[seq], request, attempt, one.deadline, died) for seq, attempt in one.attempts.items()],
            next_ready,
            more=unread or is_ready,
        )
        for request, one in zip(requests, taken, strict=True)
    ]


async def _next_ready_set(connection: Connection, account: QueueAndGroup, partition: str | None) -> Instant | None:
    """When something is next ready, of all partitions or of one."""
    owner = (account.queue.id, account.group_id)
    if partition is None:
        found = await connection.fetchval(SQL["next_ready_set"], *owner)
    else:
        found = await connection.fetchval(SQL["next_ready_set_of"], *owner, partition)
    return None if found is None else Instant(found)


async def _enter(connection: Connection, shape: PopShape, now: Instant, shard: int) -> QueueAndGroup | None:
    """The queue and group of a pop, locked so that its leases stay; None when the queue is paused."""
    row = await connection.fetchrow(
        SQL["enter"], shape.queue.tenant, shape.queue.name, shape.group, shape.start.mode.value, shape.start.value, now
    )
    assert row is not None
    _check_state(row["state"], shape)
    if row["state"] == "paused":
        return None
    return QueueAndGroup(queues.queue_of(row), row["group_id"], shape.group, shard)


def _check_state(state: str, shape: PopShape) -> None:
    """Raise when the queue does not exist, or the group is external."""
    if state == "missing":
        raise no_queue(shape.queue.name)
    if state == "external":
        raise group_is_external(shape.queue.name, shape.group)


class _Taken(Struct, frozen=True):
    """What a pop of an unordered queue has leased: the attempt of each seq, in the order of delivery; and whether it could lock any rows."""

    attempts: dict[int, int]
    deadline: int
    found: bool


async def _take_of_sets(
    connection: Connection,
    account: QueueAndGroup,
    request: PopRequest,
    now: Instant,
    effects: Effects,
    tries: int = TIDY_PASSES,
) -> _Taken:
    settings = account.queue.settings
    limit = await _sets_needed(connection, account, request, now)
    rows = await _ready_sets(connection, account, request, limit, now, effects)
    deadline = now + seconds(settings.lease_seconds if request.lease_seconds is None else request.lease_seconds)
    delay = seconds(settings.delayed_processing_seconds)
    visible, ahead = now - delay, now + AHEAD_MICROS if delay else now
    wanted = request.batch
    room_bytes = request.max_bytes
    attempts: dict[int, int] = {}
    partitions: set[str] = set()
    rested = False
    for row in rows:
        is_alone = comes_alone(settings, row["attempts"])
        if not wanted or (is_alone and attempts):
            break
        if request.max_partitions and row["partition"] not in partitions and len(partitions) == request.max_partitions:
            continue
        found = await _visible(connection, account, row, visible, 1 if is_alone else wanted, ahead)
        if not found:
            await _rest(connection, account, row, now, effects)
            rested = True
            continue
        fitting = [one for one in found if one["through"] <= room_bytes] or ([] if attempts else found[:1])
        if not fitting:
            break
        seqs = [one["seq"] for one in fitting]
        partitions.add(row["partition"])
        if row["token"] is not None:
            run_out_set(set_of(row), settings, effects)
        rest = sorted(set(row["seqs"]) - set(seqs))
        await connection.execute(
            SQL["lease_set"], row["id"], seqs, request.token, now, deadline, LEASE_EXPIRED, rest, request.consumer
        )
        attempts |= dict.fromkeys(seqs, row["attempts"] + 1)
        room_bytes -= int(fitting[-1]["through"])
        wanted = 0 if is_alone or len(fitting) < len(found) else wanted - len(seqs)
    if rested and not attempts and tries > 1:
        # The ready rows had nothing to deliver. Others may have: only as many were read as could fill the batch.
        return await _take_of_sets(connection, account, request, now, effects, tries - 1)
    return _Taken(attempts, deadline, bool(rows) or effects.dead >= BURIALS_PER_POP)


async def _visible(
    connection: Connection, account: QueueAndGroup, row: asyncpg.Record, created_by: int, most: int, ahead: int
) -> list[asyncpg.Record]:
    """The first messages of a set that can be delivered now. As a rule these are its first ones, so only they are looked at."""
    seqs = sorted(row["seqs"])
    found = await connection.fetch(SQL["visible"], account.queue.id, seqs[:most], created_by, most, ahead)
    if len(found) < most < len(seqs):
        found = await connection.fetch(SQL["visible"], account.queue.id, seqs, created_by, most, ahead)
    return found


async def _sets_needed(connection: Connection, account: QueueAndGroup, request: PopRequest, now: Instant) -> int:
    """How many rows a pop locks, after it has discovered what it lacks.

    It locks no more than it needs: concurrent pops skip locked rows.
    """
    queue_id, group_id, settings = account.queue.id, account.group_id, account.queue.settings
    sets, messages, is_alone = 0, 0, False
    for _ in range(DISCOVER_PASSES):
        row = await connection.fetchrow(
            SQL["first_sets"], queue_id, group_id, now, request.batch, request.partition, comes_alone(settings, 0)
        )
        assert row is not None
        sets, messages, is_alone = row
        if is_alone or messages >= request.batch:
            break
        if not await connection.fetchval(SQL["discover"], queue_id, group_id, DISCOVER_ROWS, account.shard, now):
            break
    if not is_alone and (request.max_partitions or settings.delayed_processing_seconds):
        # Some of these rows may not fit, and only their messages tell which.
        return request.batch
    return sets


async def _ready_sets(
    connection: Connection, account: QueueAndGroup, request: PopRequest, limit: int, now: Instant, effects: Effects
) -> list[asyncpg.Record]:
    """Lock the rows to take from. Rows that must be buried or expired are tidied first, as far as one pop goes."""
    settings = account.queue.settings
    for _ in range(TIDY_PASSES):
        rows = await connection.fetch(
            SQL["lock_sets_ready"], account.queue.id, account.group_id, now, limit, request.partition
        )
        doomed = {row["id"]: row for row in rows if is_doomed_set(row, settings, now)}
        if not doomed or effects.dead >= BURIALS_PER_POP:
            return [row for row in rows if row["id"] not in doomed]
        # Also the rows that the next look would find.
        doomed |= {row["id"]: row for row in await lock_doomed(connection, account, now, TIDY_ROWS)}
        await tidy_sets(connection, account, few_worn_out(list(doomed.values()), settings), now, effects)
    return []


async def _rest(
    connection: Connection, account: QueueAndGroup, row: asyncpg.Record, now: Instant, effects: Effects
) -> None:
    """Let a set rest that has nothing to deliver now: its messages are delayed, or were deleted from the log."""
    left = await connection.fetch(SQL["created"], account.queue.id, row["seqs"])
    if len(left) < len(row["seqs"]):
        effects.expired += len(row["seqs"]) - len(left)
        if not left:
            await connection.execute(SQL["delete_set"], row["id"])
            return
    delay = seconds(account.queue.settings.delayed_processing_seconds)
    await connection.execute(
        SQL["rest_set"], row["id"], [r["seq"] for r in left], min(left[0]["created_at"], now) + delay
    )
