"""Operations: calls that wait for their turn. A worker claims them for a while, and performs them once.

There is one writer, so a claim needs no lock. A claim still has a token that fences it: after its timeout another worker may claim
the same operations. The effect of an operation and its end are one transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from skep.clock import Instant
from skep.errors import Code
from skep.ids import Id
from skep.model import Ordering, QueueKey, Token
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
from skep.store.rules import CLAIM_HEADS, CLAIM_LOOKS, CLAIM_PASSED, SEQ_MAX, in_turn, ready_heads
from skep.store.sqlite.bury import bury_new
from skep.store.sqlite.push import push
from skep.store.sqlite.session import Row, Session
from skep.store.sqlite.settle import settle
from skep.store.statements import load_statements

SQL = load_statements(__package__, "operations")

WALK = 10_000
"""How many operations one page looks at."""


def enqueue(session: Session, requests: Sequence[NewOperations], now: Instant) -> list[list[Enqueued]]:
    """Store calls as operations, each call whole."""
    return [
        [_keep(session, operation, now) for operation in split(request, _fifo(session, request))]
        for request in requests
    ]


def _fifo(session: Session, request: NewOperations) -> dict[QueueKey, bool]:
    keys = set() if request.push is None else {message.queue for message in request.push.messages}
    found = {key: session.find_queue(key) for key in keys}
    return {key: True for key, queue in found.items() if queue is not None and queue.settings.ordering is Ordering.FIFO}


def _keep(session: Session, o: NewOperation, now: Instant) -> Enqueued:
    session.db.execute(
        SQL["enqueue"],
        (
            o.id, o.kind, lane_of(o.kind), o.queue.tenant, o.queue.name, o.partition, PRIORITY[o.kind], len(o.payload), o.messages,
            now, o.timeout_seconds, o.max_retries, o.payload,
        ),
    )  # fmt: skip
    session.operations_changed()
    return Enqueued(o.id, o.kind, o.queue, o.partition, session.db.last_insert_rowid(), o.indexes)


def claim(session: Session, worker: str, token: Token, limits: ClaimLimits, now: Instant) -> ClaimedOperations:
    """Claim the next operations that are ready, by priority and age. If the first ones all wait, it looks by partition."""
    walk = session.head_walk
    candidates = session.db.execute(SQL["candidates"])
    chosen = _choose(candidates, limits, now)
    candidates.close()
    after = walk.after
    for _ in range(CLAIM_LOOKS):
        if chosen:
            break
        ready, after = ready_heads(session.rows(SQL["heads"], (*walk.after, CLAIM_HEADS)), now, limits.operations)
        following = (session.rows(SQL["partition_candidates"], (head, limits.operations)) for head in ready)
        chosen = _choose(chain.from_iterable(following), limits, now)
        if not chosen and not walk.go_on(after):
            return ClaimedOperations([])
    if not chosen:
        return ClaimedOperations([], more=True)
    walk.found(after)
    rows = [session.row(SQL["claim"], (position, token, worker, now, GROWTHS, LOST)) for position in sorted(chosen)]
    return ClaimedOperations([_claimed(row) for row in rows if row is not None])


def _choose(candidates: Iterable[Row], limits: ClaimLimits, now: Instant) -> set[int]:
    """The first candidates that can be claimed together. It reads no further than needed, and skips a bounded number."""
    chosen: set[int] = set()
    lane, messages_left, bytes_left, passed = "", limits.messages, limits.bytes, 0
    for position, its_lane, messages, size_bytes, tries, ready_at, before in candidates:
        if ready_at > now or (before is not None and before not in chosen):
            passed += 1
            if passed >= CLAIM_PASSED:
                break
            continue
        if chosen and (its_lane != lane or tries > 0 or messages > messages_left or size_bytes > bytes_left):
            break
        lane = its_lane
        messages_left -= messages
        bytes_left -= size_bytes
        chosen.add(position)
        if len(chosen) >= limits.operations or tries > 0:
            break
    return chosen


def _claimed(row: Row) -> Claimed:
    (position, id_, kind, queue, tenant, partition, payload, messages, tries, max_retries, timeout, created_at, blocked_at, code,
     error) = row  # fmt: skip
    return Claimed(
        position, id_, OperationKind(kind), QueueKey(queue, tenant), partition, payload, messages, tries, max_retries, timeout,
        created_at, blocked_at, None if code is None else Code(code), error,
    )  # fmt: skip


def perform(
    session: Session, token: Token, claimed: Sequence[Claimed], now: Instant, create_queues: bool = True
) -> Performed:
    """Perform claimed operations of one lane, and complete them."""
    rows = {one.position: session.row(SQL["claimed"], (one.position, token)) for one in claimed}
    mine = in_turn({position: row[-1] for position, row in rows.items() if row is not None})
    todo = [one for one in claimed if one.position in mine]
    lost = [one.position for one in claimed if one.position not in mine]
    if not todo:
        return Performed({}, lost, {})
    try:
        with session.savepoint():
            results = _do(session, todo, now, create_queues)
    except _RefusedError as refused:
        return Performed({}, lost, refused.refused)
    done = {one.position: result for one, result in zip(todo, results, strict=True)}
    session.db.executemany(SQL["complete"], [(position, now, result) for position, result in done.items()])
    session.operations_changed()
    return Performed(done, lost, {})


def _do(session: Session, todo: Sequence[Claimed], now: Instant, create_queues: bool) -> list[bytes]:
    if lane_of(todo[0].kind) is OperationLane.PUSH:
        outcomes = push(session, [one.batch for one in todo], now, create_queues, in_turn=True)
        refused = {
            one.position: refusal(outcome) for one, outcome in zip(todo, outcomes, strict=True) if outcome.refused
        }
        if refused:
            raise _RefusedError(refused)
        return [encode_pushed(outcome) for outcome in outcomes]
    asked = [one.settlements for one in todo]
    settled = iter(settle(session, list(chain.from_iterable(asked)), now))
    return [encode_settled(one, [next(settled) for _ in one]) for one in asked]


class _RefusedError(Exception):
    """An operation was refused: undoes all operations of the call, as others may stand behind it."""

    def __init__(self, refused: dict[int, tuple[Code, str]]) -> None:
        super().__init__("refused")
        self.refused = refused


def give_back(session: Session, token: Token, back: Sequence[GivenBack], now: Instant) -> list[int]:
    """Give back operations for a retry, or let them fail; returns the positions that the claim still held."""
    mine = []
    for one in sorted(back, key=lambda one: one.position):
        row = session.row(SQL["claimed"], (one.position, token))
        if row is None:
            continue
        mine.append(one.position)
        if one.retry_at is not None:
            session.db.execute(
                SQL["retry"], (one.position, one.retry_at, one.error, one.code, one.untried, one.blocked_at, now)
            )
            continue
        target = _bury(session, row, one, now)
        session.db.execute(SQL["fail"], (one.position, now, one.error, one.code, target))
    session.operations_changed()
    return mine


def _bury(session: Session, row: Row, one: GivenBack, now: Instant) -> str | None:
    """Bury the messages of a failed push; returns the dead-letter queue, or None when that is not possible."""
    queue, tenant, kind, tries, payload, _ = row
    key = QueueKey(queue, tenant)
    if kind != OperationKind.PUSH:
        return None
    try:
        batch = decode_push(one.payload or payload, key)
    except msgspec.DecodeError:  # this may be why the operation failed
        return None
    return bury_new(session, key, batch, one.error, tries, now)


def cancel(session: Session, tenant: str, id_: Id, now: Instant) -> bool:
    """Cancel a pending or blocked operation; False when there is none with this id."""
    session.db.execute(SQL["cancel"], (id_, tenant, now))
    session.operations_changed()
    return session.db.changes() == 1


def find(session: Session, tenant: str, id_: Id) -> Operation | None:
    row = session.row(SQL["find"], (id_, tenant))
    return None if row is None else _operation(row)


def _operation(row: Row) -> Operation:
    return Operation(
        position=row[0],
        id=row[1],
        kind=OperationKind(row[2]),
        queue=QueueKey(row[3], row[4]),
        partition=row[5],
        priority=row[6],
        status=OperationStatus(row[7]),
        size_bytes=row[8],
        messages=row[9],
        created_at=row[10],
        started_at=row[11],
        processed_at=row[12],
        ready_at=row[13] or None,
        worker=row[14],
        timeout_seconds=row[15],
        tries=row[16],
        max_retries=row[17],
        error=row[18],
        code=None if row[19] is None else Code(row[19]),
        dead_letter_queue=row[20],
        result=row[21],
        blocked_at=row[22],
        error_at=row[23],
    )


def browse(session: Session, wanted: OperationFilter, after: int | None, limit: int) -> OperationPage:
    """Operations before position ``after``, newest first."""
    first = SEQ_MAX if after is None else after
    if wanted.status is None:
        cursor = session.db.execute(SQL["list"], (first, WALK))
    else:
        cursor = session.db.execute(SQL["list_status"], (first, WALK, wanted.status))
    found: list[Operation] = []
    walked, position = 0, 0
    for row in cursor:
        walked, position = walked + 1, row[0]
        if _matches(wanted, row):
            found.append(_operation(row))
            if len(found) == limit:
                cursor.close()
                return OperationPage(found, position)
    return OperationPage(found, position if walked == WALK else None)


def _matches(wanted: OperationFilter, row: Row) -> bool:
    return (
        row[4] == wanted.tenant
        and wanted.kind in (None, row[2])
        and wanted.queue in (None, row[3])
        and wanted.partition in (None, row[5])
    )


def waiting(session: Session, now: Instant, limit: int) -> WaitingOperations:
    """The live operations, counted up to ``limit``."""
    rows = session.rows(SQL["waiting"], (limit, STUCK_TIMEOUTS, now))
    if not rows:
        return WaitingOperations({})
    return WaitingOperations(
        {OperationKind(row[0]): row[1] for row in rows},
        min(row[2] for row in rows),
        sum(row[3] for row in rows),
        sum(row[4] for row in rows),
    )


def figures(session: Session, tenant: str, limit: int) -> list[OperationFigures]:
    """Figures by kind and status."""
    return [
        OperationFigures(OperationKind(row[0]), row[1], OperationStatus(row[2]), *row[3:])
        for row in session.rows(SQL["figures"], (tenant, limit))
    ]


def sweep(session: Session, completed_before: Instant, ended_before: Instant, limit: int) -> int:
    """Delete operations that ended long ago; returns how many."""
    session.db.execute(SQL["sweep_completed"], (completed_before, limit))
    done = session.db.changes()
    if done < limit:
        session.db.execute(SQL["sweep_ended"], (ended_before, limit - done))
        done += session.db.changes()
    return done
