"""After the clock was put back: deadlines are moved at once, stamps when the clock has run on for a while.

Deadlines (leases, retries, claims of operations) are short, so moving them is harmless whichever of the two times was wrong. Deadlines
that were written since then stay: no live lease is cut short. Stamps decide which messages are too old, and by a wrong clock that
may be all of them. So stamps wait for `PROVEN_MICROS`.
"""

from __future__ import annotations

import structlog

from skep.clock import MICROS_PER_SECOND, Instant
from skep.ids import minted_at
from skep.model import WINDOW_CAP_FACTOR, QueueKey
from skep.model.chores import Chore
from skep.store.rules import (
    AHEAD_MICROS,
    LONGEST_WAIT_MICROS,
    NOTICED_MICROS,
    OLDEST_CLOCK,
    PROVEN_MICROS,
    RECEIPT_MICROS_MAX,
)
from skep.store.sqlite.chores import SQL as CHORES_SQL
from skep.store.sqlite.log_position import find_seq_at
from skep.store.sqlite.session import MAX_SEQ, QueueRow, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "put_right")

_SHIFTED = ("shift_sets", "shift_endpoints")
_STAMPED = (
    "stamp_partition_leases", "stamp_newest", "stamp_set_leases", "stamp_leases", "stamp_failures", "stamp_traces", "stamp_replays", "stamp_letters", "stamp_live_operations", "stamp_operations",
    "stamp_groups", "stamp_audit", "stamp_refusals", "drop_samples", "drop_past", "drop_retention", "cut_keys",
)  # fmt: skip
_CUT = ("cut_receipts", "cut_staged")

log = structlog.get_logger("skep.store.sqlite")


def write_something(session: Session) -> None:
    """Write the row of the noted time without a change, to see whether the file takes writes."""
    session.db.execute(SQL["write_something"])


def put_right(session: Session, now: Instant, limit: int) -> Chore:
    """Note the time. If the clock was put back since the last note, correct deadlines and stamps that are ahead of it."""
    session.flush()
    latest_at, put_back_at = session.one(SQL["read"])
    back = latest_at - now
    if back > NOTICED_MICROS:
        log.warning("the clock was put back", seconds=round(back / MICROS_PER_SECOND, 3))
        session.db.execute(SQL["put_back"], (now,))
        done = _change(session, ("shift_leases",), (now, back, WINDOW_CAP_FACTOR))
        done += _change(session, ("shift_operations",), (now, back, LONGEST_WAIT_MICROS))
        done += _change(session, _SHIFTED, (now, back)) + _change(session, ("shift_sessions",), (now,))
        return Chore(1 + done)
    session.db.execute(SQL["note"], (now,))
    if put_back_at is None or now < put_back_at + PROVEN_MICROS or now < OLDEST_CLOCK:
        return Chore()
    done = 0
    for tenant, name in session.rows(CHORES_SQL["all_queues"]):
        queue = session.find_queue(QueueKey(name, tenant))
        if queue is not None and queue.last_at > now + AHEAD_MICROS:
            done += _stamp(session, queue, put_back_at, now, limit - done)
        if done >= limit:
            return Chore(done, more=True)
    session.flush()
    done += _change(session, _STAMPED, (now,)) + _change(session, _CUT, (now, RECEIPT_MICROS_MAX))
    session.db.execute(SQL["all_right"])
    # Groups in the cache still have the old times.
    session.forget()
    log.info("what the clock had stamped ahead of time was put right", rows=done)
    return Chore(done)


def _stamp(session: Session, queue: QueueRow, put_back_at: int, now: Instant, limit: int) -> int:
    """Correct the created_at of messages that are ahead of the clock, from the first on; returns how many.

    The id of a message that came after the clock was put back has the right time. The messages before it came no later.
    """
    first = queue.base | find_seq_at(session, queue, now + 1)
    before = session.row(SQL["before"], (queue.base, first - 1))
    earliest = 0 if before is None else before[0]
    latest: int = now
    stamps: list[tuple[int, int]] = []
    for position, id_ in reversed(session.rows(SQL["ahead"], (first, queue.base | MAX_SEQ, limit))):
        latest = min(latest, max(minted_at(id_) or now, put_back_at))
        stamps.append((position, max(earliest, latest)))
    session.db.executemany(SQL["stamp"], stamps)
    session.find_log_end(queue)
    return len(stamps)


def _change(session: Session, statements: tuple[str, ...], values: tuple[int, ...]) -> int:
    done = 0
    for statement in statements:
        session.db.execute(SQL[statement], values)
        done += session.db.changes()
    return done
