"""Rows of `partition_lease`: read as leases, and written back. `skep.store.lease` decides about them."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from msgspec import Struct

from skep.clock import Instant
from skep.model import Queue
from skep.store.lease import Effects, Lease, LeasedSet, lose, still_there
from skep.store.postgres.connection import Connection
from skep.store.rules import may_lose_messages, ready_at
from skep.store.statements import load_statements

SQL = load_statements(__package__, "leases")


class QueueAndGroup(Struct, frozen=True):
    """A queue and one of its groups, with their ids."""

    queue: Queue
    group_id: int
    group: str
    shard: int
    active_at: int = 0
    idle: bool = False


def lease_of(row: asyncpg.Record) -> Lease:
    """The lease that a row holds."""
    return Lease(
        row["partition"], row["delivered_seq"], row["pending"], list(row["open"]), row["leased"], row["attempts"],
        row["token"], row["leased_at"] or 0, row["ready_at"], row["oldest_at"], row["newest_at"], row["last_error"],
        row["consumer"],
    )  # fmt: skip


class SetRow(LeasedSet):
    """A row of `set_lease`."""

    id: int


def set_of(row: asyncpg.Record) -> SetRow:
    """The set that a row holds."""
    return SetRow(
        row["partition"], list(row["seqs"]), row["attempts"], row["token"], row["leased_at"] or 0, row["last_error"],
        row["consumer"], row["id"],
    )  # fmt: skip


async def undoable(connection: Connection, account: QueueAndGroup, lease: Lease) -> int | None:
    """How many of a lease's messages are still in the log; None when a message behind its first was settled (an extra row shows it)."""
    if lease.attempts > 1:
        return len(lease.open)
    rows = await connection.fetch(
        SQL["delivered"], account.queue.id, account.group_id, lease.partition, lease.open[0], lease.delivered_seq,
        len(lease.open) + 1,
    )  # fmt: skip
    return still_there(lease, [row["seq"] for row in rows])


async def write_leases(
    connection: Connection, account: QueueAndGroup, leases: Sequence[Lease], now: Instant, effects: Effects
) -> None:
    """Write changed rows back: delete empty rows, and look up the oldest message of the others.

    If the clock was put back, a message from the future counts as created now.
    """
    await _drop_gone(connection, account, leases, effects)
    left = [lease for lease in leases if not lease.is_empty]
    if left:
        heads = await connection.fetch(
            SQL["next_created"], account.queue.id, account.group_id, [lease.partition for lease in left],
            [lease.delivered_seq for lease in left], [lease.open[0] if lease.open else None for lease in left],
        )  # fmt: skip
        for lease, head in zip(left, heads, strict=True):
            if head["created_at"] is not None:
                lease.oldest_at = min(head["created_at"], now)
                if head["next_seq"] is not None:
                    # All messages before the next one are settled: so the group's progress is exact.
                    lease.delivered_seq = head["next_seq"] - 1
                if lease.token is not None:
                    continue
                if not lease.open:
                    lease.ready_at = ready_at(account.queue.settings, lease.oldest_at, min(lease.newest_at, now))
                elif not lease.is_resting:
                    lease.ready_at = lease.oldest_at
            elif not lease.open:
                # The pending messages have been deleted from the log.
                effects.expired += lease.pending
                lease.pending = 0
            elif lease.token is None and not lease.is_resting:
                # The next open message has been deleted: it expires at the next claim, which may be at once.
                lease.ready_at = min(lease.oldest_at, now)
    gone = [lease.partition for lease in leases if lease.is_empty]
    if gone:
        await connection.execute(SQL["delete_leases"], account.queue.id, account.group_id, gone)
    kept = [lease for lease in leases if not lease.is_empty]
    if kept:
        await connection.executemany(
            SQL["update_lease"],
            [
                (account.queue.id, account.group_id, lease.partition, lease.pending, lease.open, lease.leased, lease.attempts,
                 lease.token, lease.leased_at or None, lease.ready_at, lease.oldest_at, lease.last_error, lease.delivered_seq)
                for lease in kept
            ],
        )  # fmt: skip


async def _drop_gone(connection: Connection, account: QueueAndGroup, leases: Sequence[Lease], effects: Effects) -> None:
    """Remove messages that are no longer in the log from rows without a lease; they count as expired."""
    if not may_lose_messages(account.queue.settings, account.queue.holds_dead_letters):
        return
    over = [lease for lease in leases if lease.token is None and lease.open]
    there = await present(connection, account, [seq for lease in over for seq in lease.open])
    for lease in over:
        lose(lease, there, effects)


async def present(connection: Connection, account: QueueAndGroup, seqs: Sequence[int]) -> set[int]:
    """The seqs that are still in the log."""
    if not seqs:
        return set()
    return {row["seq"] for row in await connection.fetch(SQL["present"], account.queue.id, seqs)}
