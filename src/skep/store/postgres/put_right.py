"""Correct the times in the store after the clock was put back: deadlines at once, times of the past (stamps) later.

Deadlines (leases, retries, claims of operations) are short, and moving them is harmless whichever of the two times was wrong.
Deadlines that were written since then are left alone, so no live lease is cut short.
Stamps decide which data is too old. A clock that is not set yet would make everything too old, so they wait for `PROVEN_MICROS`.
"""

from __future__ import annotations

import structlog

from skep.clock import MICROS_PER_SECOND, Instant
from skep.model.chores import Chore
from skep.store.postgres.connection import Connection
from skep.store.rules import (
    AHEAD_MICROS,
    LONGEST_WAIT_MICROS,
    NOTICED_MICROS,
    OLDEST_CLOCK,
    PROVEN_MICROS,
    RECEIPT_MICROS_MAX,
)
from skep.store.statements import load_statements

SQL = load_statements(__package__, "put_right")

_STAMPED = (
    "stamp_live_operations", "stamp_operations", "stamp_leases", "stamp_failures", "stamp_traces", "stamp_replays",
    "stamp_audit", "stamp_refusals", "drop_samples", "drop_past", "drop_retention", "cut_keys",
)  # fmt: skip
_CUT = ("cut_receipts", "cut_staged")

log = structlog.get_logger("skep.store.postgres")


async def put_right(connection: Connection, now: Instant, limit: int) -> Chore:
    """Note the time. When it is earlier than the noted one, correct the times that lie ahead of it."""
    row = await connection.fetchrow(SQL["read"])
    assert row is not None
    back = row["latest_at"] - now
    if back > NOTICED_MICROS:
        log.warning("the clock was put back", seconds=round(back / MICROS_PER_SECOND, 3))
        await connection.execute(SQL["put_back"], now)
        return Chore(1 + await connection.fetchval(SQL["shift_deadlines"], now, back, LONGEST_WAIT_MICROS))
    await connection.execute(SQL["note"], now)
    put_back_at = row["put_back_at"]
    if put_back_at is None or now < put_back_at + PROVEN_MICROS or now < OLDEST_CLOCK:
        return Chore()
    done = 0
    for queue in await connection.fetch(SQL["queues_ahead"], now + AHEAD_MICROS):
        await connection.execute(SQL["lock_log"], queue["id"])
        done += await connection.fetchval(SQL["stamp_ahead"], queue["id"], put_back_at, now, limit - done)
        if done >= limit:
            break
    if done:
        # The rest is for another pass: a holder of a log must not wait for locks that come before it (functions/locks.sql).
        return Chore(done, more=True)
    for statement in _STAMPED:
        done += _changed(await connection.execute(SQL[statement], now))
    for statement in _CUT:
        done += _changed(await connection.execute(SQL[statement], now, RECEIPT_MICROS_MAX))
    # Last: groups come after operations and receipts in the order of locks, and logs after groups.
    done += _changed(await connection.execute(SQL["stamp_groups"], now))
    queues = [queue["id"] for queue in await connection.fetch(SQL["queues_ahead_by_letters"], now)]
    for queue in queues:
        await connection.execute(SQL["lock_log"], queue)
    done += _changed(await connection.execute(SQL["stamp_letters"], now, queues))
    await connection.execute(SQL["all_right"])
    log.info("what the clock had stamped ahead of time was put right", rows=done)
    return Chore(done)


def _changed(status: str) -> int:
    """How many rows a command says it changed."""
    return int(status.rsplit(" ", 1)[1])
