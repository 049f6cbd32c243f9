"""Doomed lease rows: their messages are buried or expired before a pop hands them out, and messages that are gone leave their row.

Pops call this for the rows in their way, and the chore `expire` for all. The statements are in `pop.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from skep.clock import Instant
from skep.model import DeadReason, Ordering, QueueSettings
from skep.store.lease import Burial, Effects, Lease, release, run_out, run_out_set
from skep.store.postgres import settle
from skep.store.postgres.connection import Connection
from skep.store.postgres.leases import QueueAndGroup, lease_of, set_of, write_leases
from skep.store.rules import LEASE_EXPIRED, is_exhausted, is_too_old, lifetime_micros
from skep.store.statements import load_statements

SQL = load_statements(__package__, "pop")

TIDY_ROWS = 100
"""How many rows one pass of tidying looks at, at least."""

TIDY_MESSAGES = 200
"""How many messages of one partition one pass of tidying expires."""

BURIALS_PER_POP = 100
"""How many messages whose leases ran out with the last attempt one pop buries; `expire` does the rest in the background."""


async def tidy(
    connection: Connection, account: QueueAndGroup, now: Instant, rows: int, partition: str | None = None
) -> int:
    """Tidy rows for a pop: bury messages without attempts left, expire old ones, drop those that are no longer in the log.

    It buries at most ``BURIALS_PER_POP``. Returns how many messages died of their attempts.
    """
    settings = account.queue.settings
    if settings.ordering is Ordering.UNORDERED:
        return await tidy_doomed(connection, account, now, TIDY_ROWS)
    ready = await connection.fetch(SQL["lock_ready"], account.queue.id, account.group_id, now, rows, partition)
    leases = [lease_of(row) for row in ready]
    doomed = [lease for lease in leases if _is_doomed(lease, settings, now)]
    worn_out = [lease for lease in doomed if lease.is_worn_out(settings)][BURIALS_PER_POP:]
    left_alone = {lease.partition for lease in worn_out}
    chosen = [lease for lease in doomed or leases if lease.partition not in left_alone]
    return await _tidy_leases(connection, account, chosen, now)


async def tidy_doomed(connection: Connection, account: QueueAndGroup, now: Instant, rows: int) -> int:
    """Bury messages without attempts left, and expire old ones; returns how many died of their attempts.

    Only doomed rows are locked, so pops meanwhile may take all others.
    """
    is_unordered = account.queue.settings.ordering is Ordering.UNORDERED
    doomed = await lock_doomed(connection, account, now, rows)
    if not is_unordered:
        return await _tidy_leases(connection, account, [lease_of(row) for row in doomed], now)
    effects = Effects()
    await tidy_sets(connection, account, doomed, now, effects)
    died = effects.dead
    await settle.apply(connection, account, effects, now)
    return died


async def lock_doomed(connection: Connection, account: QueueAndGroup, now: Instant, rows: int) -> list[asyncpg.Record]:
    settings = account.queue.settings
    cutoff = now - (lifetime_micros(settings) or now)
    name = "lock_doomed_sets" if settings.ordering is Ordering.UNORDERED else "lock_doomed"
    return await connection.fetch(
        SQL[name], account.queue.id, account.group_id, now, rows, cutoff, settings.max_attempts
    )


async def _tidy_leases(connection: Connection, account: QueueAndGroup, leases: Sequence[Lease], now: Instant) -> int:
    """Tidy rows, with a fixed number of statements; returns how many messages died of their attempts."""
    effects = Effects()
    settings = account.queue.settings
    for lease in leases:
        if lease.token is not None and _is_doomed(lease, settings, now):
            run_out(lease, settings, effects)
    created, following = await _unsettled(connection, account, leases)
    for lease in leases:
        there = {seq: created[seq] for seq in lease.open if seq in created} | following.get(lease.partition, {})
        _tidy_lease(account, lease, there, now, effects)
    died = effects.dead
    # Write all rows, as only the age and ready_at of a row may have been wrong; they are taken from its next message.
    await write_leases(connection, account, leases, now, effects)
    await settle.apply(connection, account, effects, now)
    return died


async def _unsettled(
    connection: Connection, account: QueueAndGroup, leases: Sequence[Lease]
) -> tuple[dict[int, int], dict[str, dict[int, int]]]:
    """The creation times of messages: open ones by seq, and the next undelivered ones by partition and seq."""
    queue = account.queue
    opened = [seq for lease in leases for seq in lease.open]
    created = await connection.fetch(SQL["created"], queue.id, opened) if opened else []
    waiting = [lease for lease in leases if lease.pending]
    following: dict[str, dict[int, int]] = {}
    if waiting:
        for row in await connection.fetch(
            SQL["following"], queue.id, account.group_id, [lease.partition for lease in waiting],
            [lease.delivered_seq for lease in waiting], 1 if lifetime_micros(queue.settings) is None else TIDY_MESSAGES,
        ):  # fmt: skip
            following.setdefault(row["partition"], {})[row["seq"]] = row["created_at"]
    return {row["seq"]: row["created_at"] for row in created}, following


async def tidy_gone(connection: Connection, account: QueueAndGroup, now: Instant, rows: int) -> None:
    """End expired leases with messages that are no longer in the log; these messages count as expired."""
    effects = Effects()
    if account.queue.settings.ordering is Ordering.UNORDERED:
        for row in await connection.fetch(SQL["lock_gone_sets"], account.queue.id, account.group_id, now, rows):
            held = set_of(row)
            run_out_set(held, account.queue.settings, effects)
            left = await connection.fetch(SQL["created"], account.queue.id, held.seqs)
            effects.expired += len(held.seqs) - len(left)
            await _keep_set(connection, row["id"], left, now)
    else:
        found = await connection.fetch(SQL["lock_gone"], account.queue.id, account.group_id, now, rows)
        leases = [lease_of(row) for row in found]
        for lease in leases:
            run_out(lease, account.queue.settings, effects)
        await write_leases(connection, account, leases, now, effects)
    await settle.apply(connection, account, effects, now)


async def _keep_set(connection: Connection, set_id: int, left: Sequence[asyncpg.Record], now: Instant) -> None:
    """Free a set with its remaining messages, or delete an empty one."""
    if left:
        await connection.execute(
            SQL["keep_set"], set_id, [r["seq"] for r in left], min(left[0]["created_at"], now), LEASE_EXPIRED
        )
    else:
        await connection.execute(SQL["delete_set"], set_id)


def _is_doomed(lease: Lease, settings: QueueSettings, now: Instant) -> bool:
    lifetime = lifetime_micros(settings)
    if lifetime is not None and lease.oldest_at <= now - lifetime:
        return True
    return lease.is_worn_out(settings)


def _tidy_lease(
    account: QueueAndGroup, lease: Lease, unsettled: dict[int, int], now: Instant, effects: Effects
) -> None:
    """Remove missing and old messages from a row. ``unsettled`` has the creation times of its messages in the log."""
    settings = account.queue.settings
    lifetime = lifetime_micros(settings)
    gone = [seq for seq in lease.open if seq not in unsettled]
    if gone and lease.token is not None:
        # The lease ran out like any other, though some of its messages cannot be delivered again.
        run_out(lease, settings, effects)
    for seq in gone:
        _take_out(lease, seq)
        effects.expired += 1
    if lease.pending and max(unsettled, default=0) <= lease.delivered_seq:
        effects.expired += lease.pending
        lease.pending = 0
    for seq, created_at in unsettled.items():
        if lifetime is not None and created_at <= now - lifetime:
            attempts = _take_out(lease, seq)
            effects.expired += 1
            if is_too_old(settings, created_at, now):
                effects.burials.append(Burial(seq, DeadReason.EXPIRED, lease.last_error, attempts))


def _take_out(lease: Lease, seq: int) -> int:
    """Remove the first unsettled message, or a missing one, from an ended lease; returns its attempts."""
    attempts = 0
    if seq in lease.open:
        head_stays = seq != lease.open[0]
        attempts = 1 if head_stays else lease.attempts
        lease.open.remove(seq)
        release(lease, head_stays)
    else:
        lease.pending -= 1
        lease.delivered_seq = seq
    return attempts


def few_worn_out(rows: Sequence[asyncpg.Record], settings: QueueSettings) -> list[asyncpg.Record]:
    """The doomed rows, limited to as many without attempts left as one pop buries."""
    chosen, messages = [], 0
    for row in rows:
        if _is_worn_out_set(row, settings):
            if messages >= BURIALS_PER_POP:
                continue
            messages += len(row["seqs"])
        chosen.append(row)
    return chosen


def is_doomed_set(row: asyncpg.Record, settings: QueueSettings, now: Instant) -> bool:
    lifetime = lifetime_micros(settings)
    if lifetime is not None and row["oldest_at"] <= now - lifetime:
        return True
    return _is_worn_out_set(row, settings)


def _is_worn_out_set(row: asyncpg.Record, settings: QueueSettings) -> bool:
    return row["token"] is not None and is_exhausted(settings, row["attempts"])


async def tidy_sets(
    connection: Connection, account: QueueAndGroup, rows: Sequence[asyncpg.Record], now: Instant, effects: Effects
) -> None:
    """Bury the sets without attempts left, and remove old messages from the others."""
    settings = account.queue.settings
    over = [row for row in rows if _is_worn_out_set(row, settings)]
    for row in over:
        run_out_set(set_of(row), settings, effects)
    if over:
        await connection.execute(SQL["delete_sets"], [row["id"] for row in over])
    others = [row for row in rows if not _is_worn_out_set(row, settings)]
    if others:
        seqs = [seq for row in others for seq in row["seqs"]]
        created = {row["seq"]: row for row in await connection.fetch(SQL["created"], account.queue.id, seqs)}
        for row in others:
            await _expire_set(connection, account, row, created, now, effects)


async def _expire_set(
    connection: Connection,
    account: QueueAndGroup,
    row: asyncpg.Record,
    created: Mapping[int, asyncpg.Record],
    now: Instant,
    effects: Effects,
) -> None:
    """Remove old and missing messages from a set."""
    settings = account.queue.settings
    cutoff = now - (lifetime_micros(settings) or now)
    there = [created[seq] for seq in row["seqs"] if seq in created]
    left = [r for r in there if r["created_at"] > cutoff]
    effects.expired += len(row["seqs"]) - len(left)
    if row["token"] is not None:
        run_out_set(set_of(row), settings, effects)
    for r in there:
        if is_too_old(settings, r["created_at"], now):
            effects.burials.append(Burial(r["seq"], DeadReason.EXPIRED, row["last_error"], row["attempts"]))
    await _keep_set(connection, row["id"], left, now)
