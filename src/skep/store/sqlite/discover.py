"""Discovery: a group walks the log once, and notes the partitions that have work. Also where a group starts."""

from __future__ import annotations

from skep.clock import Instant, seconds
from skep.model import WINDOW_CAP_FACTOR, Start, StartMode
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.log_position import find_seq_at
from skep.store.sqlite.pop_state import AtHand
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Session
from skep.store.sqlite.sets import add_sets


def start_seq(session: Session, queue: QueueRow, start: Start) -> int:
    """The first seq that a group gets when it starts at ``start``."""
    end = queue.last_seq + 1
    match start.mode:
        case StartMode.ALL:
            return queue.first_seq
        case StartMode.NEW:
            return end
        case StartMode.TIME:
            return min(max(find_seq_at(session, queue, start.value), queue.first_seq), end)
        case StartMode.SEQ:
            return min(max(start.value, queue.first_seq), end)


def open_group(session: Session, queue: QueueRow, name: str, start: Start, now: Instant) -> GroupRow:
    """The group, made at ``start`` when there is none."""
    group = session.find_group(queue, name)
    if group is None:
        group = session.make_group(queue, name, start_seq(session, queue, start) - 1, now)
    return group


def discover(
    session: Session, queue: QueueRow, group: GroupRow, limit: int, now: Instant, at_hand: AtHand | None = None
) -> bool:
    """Walk at most ``limit`` messages beyond the group's scan_seq, and note their partitions; False when the log ends there.

    Messages for another group are skipped. A seq without a message counts as expired, unless it was counted when the message was
    deleted (``gaps``). With ``at_hand``, messages are read whole and kept there.
    """
    if group.scan_seq >= queue.last_seq:
        return False
    between = (queue.base | group.scan_seq, queue.base | queue.last_seq, limit)
    if at_hand is None:
        rows = session.rows(LEASES_SQL["discover"], between)
    else:
        rows = []
        for row in session.db.execute(LEASES_SQL["discover_whole"], between):
            audience = row[10]
            if audience is None or audience == group.id:
                at_hand.keep(row[:10])
            rows.append((row[0], row[4], row[2], row[1], audience))
    reached = rows[-1][0] & MAX_SEQ if len(rows) == limit else queue.last_seq
    gaps = reached - group.scan_seq - len(rows)
    known = min(gaps, group.gaps)
    group.gaps -= known
    group.expired += gaps - known
    group.scan_seq = reached
    session.touch_group(group)
    meant = [row for row in rows if row[4] is None or row[4] == group.id]
    group.skipped += len(rows) - len(meant)
    if queue.is_ordered:
        _note_partitions(session, queue, group, meant, now)
    else:
        add_sets(session, queue, group, meant, now)
    return True


def _note_partitions(
    session: Session, queue: QueueRow, group: GroupRow, rows: list[tuple[int, str, int, int, int]], now: Instant
) -> None:
    """One upsert per partition that was seen."""
    seen: dict[str, list[int]] = {}
    for position, partition, _, created_at, _ in rows:
        found = seen.get(partition)
        if found is None:
            seen[partition] = [position & MAX_SEQ, 1, created_at, created_at]
        else:
            found[1] += 1
            found[3] = created_at
    lifetime = queue.lifetime_micros
    delay = queue.delay_micros
    window = seconds(queue.settings.window_buffer_seconds)
    cap = WINDOW_CAP_FACTOR * window
    session.db.executemany(
        LEASES_SQL["note_work"],
        [
            (group.id, partition, first, count, oldest, newest, lifetime and oldest + lifetime, delay, window, cap, now)
            for partition, (first, count, oldest, newest) in seen.items()
        ],
    )
