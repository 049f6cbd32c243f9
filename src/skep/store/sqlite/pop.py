"""Pops: claim ready partitions in the order of (ready_at, partition), as many as fill the batch.

If at most one batch of messages is undiscovered, or the queue has a window buffer, a pop discovers first. Otherwise it discovers only
when the ready partitions do not fill the batch. Every step is bounded; ``more`` tells that something may be left.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant, seconds
from skep.model import DeadReason, PopRequest, PopResult
from skep.store.lease import Burial, Effects, complete, run_out
from skep.store.rules import group_is_external, is_too_old, is_visible
from skep.store.sqlite.bury import with_origins
from skep.store.sqlite.discover import discover, open_group
from skep.store.sqlite.leases import (
    PARTITION,
    SQL,
    LeaseRow,
    count_expired,
    deliveries_of,
    find_lease,
    lease_of_row,
    read_next,
    save_all,
    set_leased_head,
    settle_down,
)
from skep.store.sqlite.pop_state import AtHand, Claim
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import claim_sets, next_set_ready

DISCOVER_MESSAGES = 1_000
"""How many messages one round of discovery walks."""

MAX_ROUNDS = 16
"""How many rounds of discovery and claiming one pop may take."""

MAX_EXPIRED_PER_CLAIM = 1_000
"""How many expired messages one pop may settle."""


def pop(session: Session, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
    """Lease messages for each request in turn."""
    return [_pop_one(session, request, now) for request in requests]


def pop_if_any(session: Session, request: PopRequest, now: Instant) -> PopResult | None:
    """Like `pop`, for one waiting request; None when its queue is gone or its group external: its own pop then gets the error."""
    queue = session.find_queue(request.queue)
    if queue is None or ((group := session.find_group(queue, request.group)) is not None and group.external):
        return None
    return _pop_one(session, request, now)


def has_undiscovered(session: Session, request: PopRequest) -> bool:
    """Whether the log has messages that the group of a request has not discovered."""
    queue = session.find_queue(request.queue)
    group = None if queue is None else session.find_group(queue, request.group)
    return queue is not None and group is not None and group.scan_seq < queue.last_seq


def _pop_one(session: Session, request: PopRequest, now: Instant) -> PopResult:
    queue = session.queue(request.queue)
    group = open_group(session, queue, request.group, request.start, now)
    if group.external:
        raise group_is_external(request.queue.name, request.group)
    session.mark_active(group, now)
    if queue.settings.paused or request.batch <= 0:
        return PopResult([])
    lease_seconds = request.lease_seconds if request.lease_seconds is not None else queue.settings.lease_seconds
    deadline = Instant(now + seconds(lease_seconds))
    claim = Claim(request, deadline, [], set(), MAX_EXPIRED_PER_CLAIM, request.max_bytes)
    if queue.last_seq - group.scan_seq <= request.batch:
        claim.at_hand = AtHand(request.max_bytes) if queue.is_ordered else None
        discover(session, queue, group, DISCOVER_MESSAGES, now, claim.at_hand)
    elif queue.settings.window_buffer_seconds > 0:
        discover(session, queue, group, DISCOVER_MESSAGES, now)
    claim_ready = claim_partitions if queue.is_ordered else claim_sets
    for _ in range(MAX_ROUNDS):
        claim_ready(session, queue, group, claim, now, group.scan_seq >= queue.last_seq)
        if claim.wanted <= 0 or claim.expiries_left <= 0 or not discover(session, queue, group, DISCOVER_MESSAGES, now):
            break
    else:
        claim_ready(session, queue, group, claim, now, True)
    return _result(session, queue, group, claim, now)


def _result(session: Session, queue: QueueRow, group: GroupRow, claim: Claim, now: Instant) -> PopResult:
    """The deliveries, and when more messages may be ready."""
    request = claim.request
    if queue.holds_dead_letters:
        claim.deliveries = with_origins(session, queue, claim.deliveries)
    if group.scan_seq < queue.last_seq:
        return PopResult(claim.deliveries, now, True)
    if not queue.is_ordered:
        ready = next_set_ready(session, group, request.partition)
    elif request.partition is None:
        row = session.row(SQL["next_ready"], (group.id,))
        ready = None if row is None else row[0]
    else:
        lease = find_lease(session, group, request.partition)
        ready = None if lease is None else lease.ready_at
    if ready is None:
        return PopResult(claim.deliveries)
    return PopResult(claim.deliveries, Instant(max(ready, now)), ready <= now)


def claim_partitions(
    session: Session, queue: QueueRow, group: GroupRow, claim: Claim, now: Instant, is_all: bool
) -> None:
    """Claim ready rows until the batch is full or none is left.

    Rows that do not fill the batch are claimed only if ``is_all``: the next discovered ones may be older.
    """
    while claim.wanted > 0 and claim.expiries_left > 0:
        leases, is_enough = _ready_leases(session, queue, group, claim, now)
        if not leases or not (is_enough or is_all):
            return
        claimed: list[LeaseRow] = []
        for lease in leases:
            if claim.wanted <= 0 or claim.expiries_left <= 0:
                break
            _claim_row(session, queue, group, lease, claim, now)
            claimed.append(lease)
        claim.apply(session, queue, group, now)
        save_all(session, claimed)


def _ready_leases(
    session: Session, queue: QueueRow, group: GroupRow, claim: Claim, now: Instant
) -> tuple[list[LeaseRow], bool]:
    """Ready rows, read until they should fill the batch or ``max_partitions``; also returns whether they do.

    When the claim may bury no more, it leaves alone leases that ran out: it would have to walk over all that must be buried.
    """
    if claim.request.partition is not None:
        lease = find_lease(session, group, claim.request.partition)
        is_ready = lease is not None and lease.ready_at <= now and lease.partition not in claim.partitions
        return [lease] if lease is not None and is_ready else [], is_ready
    leases: list[LeaseRow] = []
    wanted = claim.wanted
    promised = doomed = 0
    room = claim.request.max_partitions - len(claim.partitions) if claim.request.max_partitions > 0 else None
    cursor = session.db.execute(SQL["claim_ready" if claim.burials_left > 0 else "claim_free"], (group.id, now))
    for row in cursor:
        if row[PARTITION] in claim.partitions:
            continue  # this pop has claimed it with auto-ack, and it is ready again
        if promised >= wanted or (room is not None and len(leases) >= room):
            break
        lease = lease_of_row(row)
        if lease.is_worn_out(queue.settings):
            if doomed >= claim.burials_left:
                cursor.close()
                return leases, True
            doomed += 1
        leases.append(lease)
        promised += 1 if lease.open or queue.settings.max_attempts == 1 else lease.pending
    cursor.close()
    return leases, promised >= wanted or (room is not None and len(leases) >= room)


def _claim_row(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, claim: Claim, now: Instant) -> None:
    """Deliver messages of one ready row, as many as the batch wants. The caller saves the row."""
    if lease.token is not None:
        claim.burials_left -= lease.is_worn_out(queue.settings)
        close_run_out(session, queue, group, lease, claim.effects, now)
    if queue.lifetime_micros is not None:
        claim.expiries_left -= expire_heads(session, queue, group, lease, claim.effects, claim.expiries_left, now)
    if claim.expiries_left <= 0 or lease.ready_at > now:
        return  # the rest is not ready yet, or this pop has expired enough messages
    rows = _take_open(session, queue, group, lease, claim)
    if not rows and not claim.is_closed:
        rows = _take_next(session, queue, group, lease, claim, now)
    if rows:
        claim.partitions.add(lease.partition)
        _hand_out(session, queue, group, lease, rows, claim, now)
    elif not claim.is_closed:
        settle_down(session, queue, group, lease, now)


def close_run_out(
    session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, effects: Effects, now: Instant
) -> None:
    """End a lease that ran out. Its remaining messages are ready at once."""
    head = lease.open[0]
    run_out(lease, queue.settings, effects)
    if not lease.open or lease.open[0] != head:
        settle_down(session, queue, group, lease, now)


def expire_heads(
    session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, effects: Effects, limit: int, now: Instant
) -> int:
    """Settle messages at the head of a free row that are past max_wait or max_age; returns how many."""
    lifetime = queue.lifetime_micros
    if lifetime is None:
        return 0
    done = 0
    while done < limit and lease.oldest_at + lifetime <= now and (lease.open or lease.pending > 0):
        if is_too_old(queue.settings, lease.oldest_at, now):
            attempts = lease.attempts if lease.open else 0
            error = lease.last_error
            effects.burials.append(Burial(lease.head_seq, DeadReason.EXPIRED, error, attempts))
        else:
            effects.expired += 1
        if lease.open:
            del lease.open[0]
        else:
            lease.delivered_seq = lease.head_seq
            lease.pending -= 1
        settle_down(session, queue, group, lease, now)
        done += 1
    return done


def _take_open(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, claim: Claim) -> list[Row]:
    """The first open message, alone: one that kills its consumer must not use up its neighbours' attempts."""
    while lease.open:
        row = session.row(SQL["message_at"], (queue.base | lease.open[0],))
        if row is not None:
            rows = claim.fitting([row])
            lease.attempts += len(rows)
            return rows
        del lease.open[0]
        lease.attempts = 1 if lease.open else 0
        lease.last_error = None
        count_expired(session, group, 1)
    return []


def _take_next(
    session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, claim: Claim, now: Instant
) -> list[Row]:
    """The next messages beyond ``delivered_seq`` that are old enough to be processed."""
    if lease.pending <= 0:
        return []
    limit = min(lease.pending, 1 if queue.settings.max_attempts == 1 else claim.wanted)
    at_hand = None if claim.at_hand is None else claim.at_hand.take(lease.partition, lease.delivered_seq, lease.pending)
    rows = claim.fitting(read_next(session, queue, group, lease, limit) if at_hand is None else at_hand[:limit])
    if len(rows) < limit and not claim.is_closed:
        # The missing messages were discovered, but are gone from the log.
        count_expired(session, group, lease.pending - len(rows))
        lease.pending = len(rows)
    delay = queue.delay_micros
    if delay and rows:
        rows = [row for row in rows if is_visible(row[1], delay, now)]
        claim.is_closed = claim.is_closed and bool(rows)
    if rows:
        lease.open = [row[0] & MAX_SEQ for row in rows]
        lease.delivered_seq = lease.open[-1]
        lease.pending -= len(rows)
        lease.attempts = 1
        lease.last_error = None
    return rows


def _hand_out(
    session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, rows: list[Row], claim: Claim, now: Instant
) -> None:
    """Lease the row to the request, or settle it at once (auto-ack)."""
    attempt = lease.attempts
    lease.token = claim.request.token
    lease.consumer = claim.request.consumer
    lease.leased = len(rows)
    lease.leased_at = now
    lease.ready_at = claim.deadline
    claim.deliveries += deliveries_of(rows, claim.request, attempt, claim.deadline)
    if claim.request.auto_ack:
        complete(lease, lease.held, claim.effects)
        del lease.open[: len(rows)]
        settle_down(session, queue, group, lease, now)
    elif lease.head_seq != lease.open[0]:
        set_leased_head(session, queue, lease)
