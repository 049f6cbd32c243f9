"""Unordered queues: rows of `set_lease`, each a set of messages with the same attempts and the same lease.

All messages of a row were delivered ``attempts`` times, including the live lease. A row with more messages than wanted is split; an
empty row is deleted. No message waits behind another.
"""

from __future__ import annotations

from collections.abc import Iterator

from skep.clock import Instant
from skep.model import DeadReason
from skep.store.lease import Burial, Effects, LeasedSet, complete, run_out_set
from skep.store.rules import comes_alone, is_too_old, is_visible
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import count_expired, deliveries_of, pack, unpack
from skep.store.sqlite.pop_state import Claim
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "sets")

MAX_SET = 100
"""How many seqs one row holds at most."""

_ABOVE_ALL_PRIORITIES = 1 << 62


class SetRow(LeasedSet):
    """A row of `set_lease`, in the order of its columns as they are read; ``seqs`` is unpacked."""

    id: int
    group_id: int
    priority: int
    head_seq: int
    ready_at: int
    oldest_at: int
    expires_at: int | None

    def is_live(self, now: Instant) -> bool:
        """Whether a consumer holds it and its deadline has not passed."""
        return self.token is not None and self.ready_at > now


def set_of_row(row: Row) -> SetRow:
    """A row of a `set_lease` statement as a struct."""
    values = list(row)
    values[1] = unpack(row[1])
    return SetRow(*values)


def sets_of(session: Session, group: GroupRow, partition: str) -> list[SetRow]:
    """The rows of a partition, by (priority descending, ready_at, id)."""
    return [set_of_row(row) for row in session.rows(SQL["sets_of_partition"], (group.id, partition))]


def save_set(session: Session, held: SetRow) -> None:
    """Write the row, or delete it when it is empty."""
    if not held.seqs:
        session.db.execute(SQL["delete_set"], (held.id,))
        return
    values = (held.seqs[0], pack(held.seqs), held.attempts, held.token, held.leased_at, held.ready_at, held.oldest_at)
    session.db.execute(SQL["save_set"], (held.id, *values, held.expires_at, held.last_error, held.consumer))


def add_sets(session: Session, queue: QueueRow, group: GroupRow, rows: list[Row], now: Instant) -> None:
    """Rows for discovered messages, by (partition, priority)."""
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for position, partition, priority, created_at, _ in rows:
        found.setdefault((partition, priority), []).append((position & MAX_SEQ, created_at))
    for (partition, priority), messages in found.items():
        for start in range(0, len(messages), MAX_SET):
            part = messages[start : start + MAX_SET]
            first_seq, oldest_at = part[0]
            ready_at = _from(oldest_at, now) + queue.delay_micros
            times = (0, ready_at, oldest_at, _expiry(queue, oldest_at))
            seqs = pack([seq for seq, _ in part])
            session.db.execute(SQL["insert_set"], (group.id, partition, priority, first_seq, seqs, 0, *times, None))


def _from(created_at: int, now: Instant) -> int:
    """When the delay of a message begins. If the clock was put back, a message from the future counts as created now."""
    return min(created_at, now)


def _expiry(queue: QueueRow, oldest_at: int) -> int | None:
    lifetime = queue.lifetime_micros
    return None if lifetime is None else oldest_at + lifetime


def split_off(
    session: Session,
    queue: QueueRow,
    held: SetRow,
    seqs: list[int],
    oldest_at: int,
    ready_at: int,
    error: str | None,
    *,
    said_at: int = 0,
) -> None:
    """Move ``seqs`` into a free row of their own with the same attempts; ``said_at`` is the time of a nack."""
    rest = set(seqs)
    held.seqs = [seq for seq in held.seqs if seq not in rest]
    values = (
        held.group_id, held.partition, held.priority, seqs[0], pack(seqs), held.attempts, said_at, ready_at, oldest_at,
        _expiry(queue, oldest_at), error,
    )  # fmt: skip
    session.db.execute(SQL["insert_set"], values)


def take_back(session: Session, queue: QueueRow, group: GroupRow, held: SetRow, seqs: list[int], now: Instant) -> None:
    """Move ``seqs``, which reached nobody, into a free row that does not count this delivery."""
    rows = list(session.db.executemany(LEASES_SQL["age_at"], [(queue.base | seq,) for seq in seqs]))
    if len(rows) < len(seqs):
        there = {row[0] & MAX_SEQ for row in rows}
        held.seqs = [seq for seq in held.seqs if seq in there or seq not in seqs]
        count_expired(session, group, len(seqs) - len(rows))
    if rows:
        held.attempts -= 1
        split_off(session, queue, held, [row[0] & MAX_SEQ for row in rows], rows[0][1], now, held.last_error)
        held.attempts += 1


def claim_sets(session: Session, queue: QueueRow, group: GroupRow, claim: Claim, now: Instant, is_all: bool) -> None:
    """Claim ready rows by (priority descending, ready_at, id) until the batch is full, or one must be handed out alone.

    Rows that do not fill the batch are claimed only if ``is_all``: the next discovered ones may have a higher priority.
    """
    while claim.wanted > 0 and claim.expiries_left > 0:
        ready, is_enough = _ready_sets(session, queue, group, claim, now)
        if not ready or not (is_enough or is_all):
            return
        for held in ready:
            if claim.wanted > 0 and claim.expiries_left > 0:
                _claim_set(session, queue, group, held, claim, now)
        claim.apply(session, queue, group, now)


def _ready_sets(
    session: Session, queue: QueueRow, group: GroupRow, claim: Claim, now: Instant
) -> tuple[list[SetRow], bool]:
    """Ready rows in order, read until they should fill the batch; also returns whether they do.

    A row whose messages come alone is returned only if it is the first: then one message is the batch. It closes a claim that
    has deliveries: to skip it would mean to walk over all such rows. A row that must be buried ends the look, too, when the claim
    may bury no more.
    """
    ready: list[SetRow] = []
    promised = doomed = 0
    partitions = set(claim.partitions)
    limit = claim.request.max_partitions
    for held in _in_order(session, group, claim.request.partition, now):
        if limit > 0 and held.partition not in partitions:
            if len(partitions) >= limit:
                continue
            partitions.add(held.partition)
        if held.is_worn_out(queue.settings):
            if doomed >= claim.burials_left:
                claim.is_closed = not ready
                return ready, True
            doomed += len(held.seqs)
            ready.append(held)
            continue
        if comes_alone(queue.settings, held.attempts):
            claim.is_closed = bool(claim.deliveries) and not ready
            return ready or [held], not promised or promised + 1 >= claim.wanted
        ready.append(held)
        promised += len(held.seqs)
        if promised >= claim.wanted:
            return ready, True
    return ready, False


def _in_order(session: Session, group: GroupRow, partition: str | None, now: Instant) -> Iterator[SetRow]:
    """Ready rows by (priority descending, ready_at, id), of one partition or of all."""
    if partition is not None:
        rows = session.rows(SQL["sets_of_partition"], (group.id, partition))
        yield from (held for held in map(set_of_row, rows) if held.ready_at <= now)
        return
    priority = _ABOVE_ALL_PRIORITIES
    while (found := session.row(SQL["next_priority"], (group.id, priority))) is not None:
        priority = found[0]
        cursor = session.db.execute(SQL["ready_sets"], (group.id, priority, now))
        try:
            yield from map(set_of_row, cursor)
        finally:
            cursor.close()


def _claim_set(session: Session, queue: QueueRow, group: GroupRow, held: SetRow, claim: Claim, now: Instant) -> None:
    """Deliver messages of one ready row, as many as the batch wants."""
    if held.token is not None:
        messages = len(held.seqs)
        if run_out_set(held, queue.settings, claim.effects):
            claim.burials_left -= messages
            save_set(session, held)
            return
    delay = queue.delay_micros
    is_alone = comes_alone(queue.settings, held.attempts)
    seqs = held.seqs
    if delay or queue.lifetime_micros is not None:
        ages = read_set(session, queue, group, held)
        ages, expired = expire_set(queue, held, ages, claim.effects, claim.expiries_left, now)
        claim.expiries_left -= expired
        seqs = [position & MAX_SEQ for position, created_at in ages if is_visible(created_at, delay, now)]
        if not seqs or claim.expiries_left <= 0:
            if ages:
                _set_age(queue, held, ages[0][1])
                held.ready_at = max(held.ready_at, _from(held.oldest_at, now) + delay)
            save_set(session, held)
            return
    taken = _take(session, queue, group, held, seqs[: 1 if is_alone else claim.wanted], claim)
    if not taken:
        refresh_age(session, queue, held)
        save_set(session, held)
        return
    rest = held.seqs[len(taken) :]
    if rest:
        found = session.row(LEASES_SQL["created_at"], (queue.base | rest[0],))
        oldest_at = held.oldest_at if found is None else found[0]
        ready_at = max(held.ready_at, _from(oldest_at, now) + delay)
        split_off(session, queue, held, rest, oldest_at, ready_at, held.last_error)
    claim.partitions.add(held.partition)
    claim.is_closed = claim.is_closed or is_alone
    _hand_out(session, queue, held, taken, claim, now)


def _take(session: Session, queue: QueueRow, group: GroupRow, held: SetRow, seqs: list[int], claim: Claim) -> list[Row]:
    """The messages of the row's first ``seqs``, as far as they fit. Messages that are no longer in the log leave the row."""
    rows = claim.fitting(session.db.executemany(LEASES_SQL["message_at"], [(queue.base | seq,) for seq in seqs]))
    if len(rows) == len(seqs):
        return rows
    found = [row[0] & MAX_SEQ for row in rows]
    looked_at = len(seqs) if not claim.is_closed else seqs.index(found[-1]) + 1 if found else 0
    count_expired(session, group, looked_at - len(found))
    held.seqs = found + held.seqs[looked_at:]
    return rows


def read_set(session: Session, queue: QueueRow, group: GroupRow, held: SetRow) -> list[Row]:
    """Position and created_at of a row's messages. Messages that are no longer in the log leave the row and count as expired."""
    base = queue.base
    rows = list(session.db.executemany(LEASES_SQL["age_at"], [(base | seq,) for seq in held.seqs]))
    if len(rows) < len(held.seqs):
        count_expired(session, group, len(held.seqs) - len(rows))
        held.seqs = [row[0] & MAX_SEQ for row in rows]
    return rows


def expire_set(
    queue: QueueRow, held: SetRow, rows: list[Row], effects: Effects, limit: int, now: Instant
) -> tuple[list[Row], int]:
    """Settle messages of a free row that are past max_wait or max_age; returns the other rows, and how many were settled."""
    lifetime = queue.lifetime_micros
    if lifetime is None:
        return rows, 0
    done = 0
    while done < min(limit, len(rows)) and rows[done][1] + lifetime <= now:
        position, created_at = rows[done][:2]
        if is_too_old(queue.settings, created_at, now):
            effects.burials.append(Burial(position & MAX_SEQ, DeadReason.EXPIRED, held.last_error, held.attempts))
        else:
            effects.expired += 1
        done += 1
    if done:
        held.seqs = held.seqs[done:]
        if rows[done:]:
            _set_age(queue, held, rows[done][1])
    return rows[done:], done


def _set_age(queue: QueueRow, held: SetRow, oldest_at: int) -> None:
    held.oldest_at = oldest_at
    held.expires_at = _expiry(queue, oldest_at)


def refresh_age(session: Session, queue: QueueRow, held: SetRow) -> None:
    """Take the row's age from its first message that is still in the log."""
    for seq in held.seqs:
        found = session.row(LEASES_SQL["created_at"], (queue.base | seq,))
        if found is not None:
            _set_age(queue, held, found[0])
            return


def _hand_out(session: Session, queue: QueueRow, held: SetRow, rows: list[Row], claim: Claim, now: Instant) -> None:
    held.attempts += 1
    held.token = claim.request.token
    held.consumer = claim.request.consumer
    held.leased_at = now
    held.ready_at = claim.deadline
    _set_age(queue, held, rows[0][1])
    claim.deliveries += deliveries_of(rows, claim.request, held.attempts, claim.deadline)
    if claim.request.auto_ack:
        complete(held, held.seqs, claim.effects)
        held.seqs = []
    save_set(session, held)


def next_set_ready(session: Session, group: GroupRow, partition: str | None) -> int | None:
    """When the next row of the group, or of one partition, is ready; None without rows."""
    if partition is not None:
        rows = session.rows(SQL["sets_of_partition"], (group.id, partition))
        return min((set_of_row(row).ready_at for row in rows), default=None)
    earliest: int | None = None
    priority = _ABOVE_ALL_PRIORITIES
    while (found := session.row(SQL["next_priority"], (group.id, priority))) is not None:
        priority = found[0]
        ready = session.row(SQL["first_ready_of_priority"], (group.id, priority))
        if ready is not None and (earliest is None or ready[0] < earliest):
            earliest = ready[0]
    return earliest
