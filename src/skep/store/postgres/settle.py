"""Settling: acks, nacks, rejections and renewals, fenced by token.

Acks of ordered queues, and of whole leases, take one round trip (`settle_acks`). Everything else, and every lease that the fast way
would not take, goes the careful way: lock the rows in ascending order, decide in Python, write back, bury, count, all in one transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import msgspec

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.model import Ordering, Outcome, QueueKey, Renewal, RenewResult, Settlement, SettleResult, SettleStatus
from skep.store.lease import (
    BURIED,
    COMPLETED,
    COMPLETED_FREES_NONE,
    REFUSED_STALE,
    AttemptRow,
    Effects,
    Ending,
    buried_in,
    is_whole_release,
    settle_lease,
    settle_sets,
    undo_delivery,
)
from skep.store.outcomes import COMPLETED_BEFORE, LOST, kept_answers, kept_sweep
from skep.store.postgres import queues
from skep.store.postgres.bury import bury, open_graves
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.leases import QueueAndGroup, lease_of, present, set_of, undoable, write_leases
from skep.store.postgres.outcomes import remembered
from skep.store.rules import FAILURES_KEPT, is_seq, wants_mark
from skep.store.statements import load_statements

SQL = load_statements(__package__, "settle")

LeaseKey = tuple[str, bytes]


class AckedLease(NamedTuple):
    """A lease, the indexes of its settlements in the call, and the acked seqs: a list, or all up to ``through``."""

    partition: str
    token: bytes
    indexes: list[int]
    seqs: Sequence[int]
    through: int | None


async def settle(db: Database, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
    """Settle each message, independently of the others."""
    if not settlements:
        return []
    if not is_simple(settlements):
        return await db.pool.transaction(settle_once, settlements, now, db.shard)
    quick = await db.pool.once(settle_acks, settlements, now, db.shard)
    return await settle_rest(db, settlements, quick, now)


async def settle_rest(
    db: Database, settlements: Sequence[Settlement], quick: Sequence[SettleResult | None], now: Instant
) -> list[SettleResult]:
    """Settle the messages that the fast way did not touch (None in ``quick``), in a transaction of their own."""
    left = [settlement for settlement, result in zip(settlements, quick, strict=True) if result is None]
    careful = iter(await db.pool.transaction(settle_once, left, now, db.shard) if left else [])
    return [next(careful) if result is None else result for result in quick]


async def settle_acks(
    connection: Connection, settlements: Sequence[Settlement], now: Instant, shard: int
) -> list[SettleResult | None]:
    """The fast way for acks of one queue and group: None where the careful way must decide."""
    leases = acked_leases(settlements)
    done = await connection.fetchrow(SQL["settle_acks"], *columns(settlements[0], leases, now, shard))
    assert done is not None
    return acked(settlements, leases, done["o_leases"], done["o_messages"])


def columns(first: Settlement, leases: Sequence[AckedLease], now: Instant, shard: int) -> tuple[object, ...]:
    """The parameters of the statement `settle_acks`."""
    ends = list(accumulate(len(lease.seqs) for lease in leases))
    return (
        first.queue.tenant, first.queue.name, first.group,
        [lease.partition for lease in leases], [lease.token for lease in leases],
        [end - len(lease.seqs) + 1 for end, lease in zip(ends, leases, strict=True)], ends,
        [seq for lease in leases for seq in lease.seqs], [lease.through for lease in leases],
        [None if lease.through is None else kept_sweep(lease.through, None) for lease in leases], now, shard,
    )  # fmt: skip


def acked(
    settlements: Sequence[Settlement],
    leases: Sequence[AckedLease],
    numbers: Sequence[int] | None,
    completed_messages: Sequence[int] | None,
) -> list[SettleResult | None]:
    """The results of `settle_acks` by settlement; None for those that it did not touch."""
    results: list[SettleResult | None] = [None] * len(settlements)
    for number, messages in zip(numbers or (), completed_messages or (), strict=True):
        lease = leases[abs(number) - 1]
        if lease.through is not None:
            results[lease.indexes[0]] = SettleResult(SettleStatus.COMPLETED, frees=number < 0, messages=messages)
            continue
        heard: set[int] = set()
        completed = COMPLETED if number < 0 else COMPLETED_FREES_NONE
        for i in lease.indexes:
            results[i] = COMPLETED_BEFORE if settlements[i].seq in heard else completed
            heard.add(settlements[i].seq)
    return results


def acked_leases(settlements: Sequence[Settlement]) -> list[AckedLease]:
    """The leases for the fast way. A lease with an ACK_THROUGH is one only if the call has no other settlement of it."""
    found = []
    for (partition, token), indexes in _by_lease(settlements).items():
        if not any(settlements[i].outcome is Outcome.ACK_THROUGH for i in indexes):
            seqs = sorted({settlements[i].seq for i in indexes})
            found.append(AckedLease(partition, token, indexes, seqs, None))
        elif len(indexes) == 1:
            found.append(AckedLease(partition, token, indexes, [], settlements[indexes[0]].seq))
    return found


def is_simple(settlements: Sequence[Settlement]) -> bool:
    """Whether the fast way may be tried: only acks, all of one queue and group, with seqs in range."""
    first = settlements[0]
    return all(
        s.outcome in (Outcome.ACK, Outcome.ACK_THROUGH)
        and s.group == first.group
        and s.queue == first.queue
        and is_seq(s.seq)
        for s in settlements
    )


async def settle_once(
    connection: Connection, settlements: Sequence[Settlement], now: Instant, shard: int
) -> list[SettleResult]:
    """Settle each message. A repeated settlement gets its first answer in place of a refusal."""
    results = await settle_each(connection, settlements, now, shard)
    lost: dict[tuple[QueueKey, str], list[int]] = {}
    for place, result in enumerate(results):
        if result.code in LOST:
            lost.setdefault((settlements[place].queue, settlements[place].group), []).append(place)
    for (key, name), places in lost.items():
        account = await find_account(connection, key, name, shard)
        if account is None:
            continue
        found = await remembered(connection, account, {settlements[place].token for place in places}, now)
        ordered = account.queue.settings.ordering is not Ordering.UNORDERED
        for place in places:
            answer = found.answer(settlements[place], ordered)
            if answer is not None:
                results[place] = answer
    return results


async def settle_each(
    connection: Connection,
    settlements: Sequence[Settlement],
    now: Instant,
    shard: int,
    ended: list[tuple[QueueAndGroup, list[Ending]]] | None = None,
    remember: bool = True,
) -> list[SettleResult]:
    """The careful way, for any settlements. With ``ended``, the ends of leases are added to it, and the caller stores them.

    Unless ``remember``, they are without the answers.
    """
    results: list[SettleResult] = [REFUSED_STALE] * len(settlements)
    order = sorted(range(len(settlements)), key=lambda i: (settlements[i].queue, settlements[i].group))
    settled: list[tuple[QueueAndGroup, list[int], Effects]] = []
    for (key, group), run in groupby(order, key=lambda i: (settlements[i].queue, settlements[i].group)):
        indexes = sorted(run)
        account = await find_account(connection, key, group, shard)
        if account is not None:
            if wants_mark(account.active_at, account.idle, now):
                await connection.execute(SQL["mark_active"], account.group_id, now)
            effects = Effects()
            is_unordered = account.queue.settings.ordering is Ordering.UNORDERED
            settle_group = _settle_sets if is_unordered else _settle_partitions
            outcome = await settle_group(connection, account, [settlements[i] for i in indexes], now, effects)
            settled.append((account, indexes, effects))
            for i, result in zip(indexes, outcome, strict=True):
                results[i] = result
    # Burials come last: a holder of a dead-letter queue's log must not wait for a group or a lease.
    graves = await _bury_all(connection, [(account, effects) for account, _, effects in settled], now)
    for (account, indexes, effects), grave in zip(settled, graves, strict=True):
        if effects.burials:
            told = buried_in(None if grave is None else grave.name)
            for i in indexes:
                if results[i] is BURIED:
                    results[i] = told
        endings = effects.endings
        if remember:
            endings = _answered(account, endings, [(settlements[i], results[i]) for i in indexes])
        if ended is None:
            await end_leases(connection, account, endings, now)
        else:
            ended.append((account, endings))
        await note_failures(connection, account, effects.failures, now)
        await count(connection, account, effects)
    return results


async def share_groups(connection: Connection, settlements: Iterable[Settlement]) -> None:
    """Take the shared locks of all these groups at once, for calls that lock logs before they settle."""
    asked = sorted({(s.queue, s.group) for s in settlements})
    if asked:
        await connection.execute(
            SQL["share_groups"], [q.tenant for q, _ in asked], [q.name for q, _ in asked], [group for _, group in asked]
        )


async def find_account(connection: Connection, key: QueueKey, group: str, shard: int) -> QueueAndGroup | None:
    """The queue and group, locked so that its leases stay; None when there is no such queue or group."""
    row = await connection.fetchrow(SQL["account"], key.tenant, key.name, group)
    if row is None:
        return None
    return QueueAndGroup(queues.queue_of(row), row["group_id"], group, shard, row["active_at"], row["idle"])


def _answered(
    account: QueueAndGroup, endings: Sequence[Ending], answers: Sequence[tuple[Settlement, SettleResult]]
) -> list[Ending]:
    """The ends of leases, each with the answers that were given under its token."""
    unordered = account.queue.settings.ordering is Ordering.UNORDERED
    # One token may lease several partitions, and in an unordered queue several sets, whose seqs lie between each other.
    said: dict[tuple[bytes | None, str], list[tuple[Settlement, SettleResult]]] = {}
    for settlement, result in sorted(answers, key=_seq_answered):
        if settlement.outcome is Outcome.ACK_THROUGH:
            continue  # the ending itself has its answer
        place = settlement.token, "" if unordered else settlement.partition
        said.setdefault(place, []).append((settlement, result))
    told = []
    for ending in endings:
        mine = said.get((ending.token, "" if unordered else ending.partition), [])
        first = bisect_left(mine, ending.first_seq, key=_seq_answered)
        end = bisect_right(mine, ending.last_seq, key=_seq_answered)
        told.append(msgspec.structs.replace(ending, answer=kept_answers(mine[first:end], ending.swept)))
    return told


def _seq_answered(answer: tuple[Settlement, SettleResult]) -> int:
    return answer[0].seq


def _by_lease(settlements: Sequence[Settlement]) -> dict[LeaseKey, list[int]]:
    """Which settlements belong to which lease, in ascending order: the order in which everyone locks them."""
    leases: dict[LeaseKey, list[int]] = {}
    for i, settlement in enumerate(settlements):
        leases.setdefault((settlement.partition, settlement.token), []).append(i)
    return {key: leases[key] for key in sorted(leases)}


async def _settle_partitions(
    connection: Connection, account: QueueAndGroup, settlements: Sequence[Settlement], now: Instant, effects: Effects
) -> list[SettleResult]:
    leases = _by_lease(settlements)
    rows = await connection.fetch(SQL["lock_leases"], account.group_id, [k[0] for k in leases], [k[1] for k in leases])
    results: list[SettleResult] = [REFUSED_STALE] * len(settlements)
    changed = []
    for row in rows:
        lease = lease_of(row)
        indexes = leases[lease.partition, row["token"]]
        items = [settlements[i] for i in indexes]
        there = await undoable(connection, account, lease) if is_whole_release(lease, items) else None
        if there is not None:
            outcome = undo_delivery(lease, items, there, now, effects)
        else:
            outcome = settle_lease(lease, items, account.queue.settings, now, effects)
        for i, result in zip(indexes, outcome, strict=True):
            results[i] = result
        if any(result.code is None for result in outcome):
            changed.append(lease)
    await write_leases(connection, account, changed, now, effects)
    return results


async def _settle_sets(
    connection: Connection, account: QueueAndGroup, settlements: Sequence[Settlement], now: Instant, effects: Effects
) -> list[SettleResult]:
    tokens = list({s.token for s in settlements})
    rows = await connection.fetch(SQL["lock_sets"], account.queue.id, account.group_id, tokens)
    results, settled = settle_sets(list(map(set_of, rows)), settlements, account.queue.settings, now, effects)
    again = [seq for one in settled for seq, fate in one.fates.items() if fate in ("retried", "released")]
    there = await present(connection, account, again)
    effects.expired += len(again) - len(there)
    for one in settled:
        retries = [retry for retry in one.retries if retry[0] in there]
        await _move_out(connection, account, one.of.id, retries, now)
        await _take_back(connection, one.of.id, [seq for seq in one.released if seq in there], now)
        await _write_set(connection, one.of.id, one.left)
    return results


async def _write_set(connection: Connection, set_id: int, seqs: list[int]) -> None:
    if seqs:
        await connection.execute(SQL["shrink_set"], set_id, seqs)
    else:
        await connection.execute(SQL["delete_set"], set_id)


async def _move_out(
    connection: Connection,
    account: QueueAndGroup,
    set_id: int,
    failed: Sequence[tuple[int, SettleResult, str | None]],
    now: Instant,
) -> None:
    """Give each failed message a row of its own."""
    if failed:
        await connection.executemany(
            SQL["insert_failed"],
            [
                (account.queue.id, account.group_id, set_id, [seq], result.retry_at, error, seq, now)
                for seq, result, error in failed
            ],
        )


async def _take_back(connection: Connection, set_id: int, released: Sequence[int], now: Instant) -> None:
    """Give the messages that reached nobody a row of their own, which does not count this delivery."""
    if released:
        await connection.execute(SQL["insert_released"], set_id, released, now)


async def apply(connection: Connection, account: QueueAndGroup, effects: Effects, now: Instant) -> None:
    """Bury messages, store the ends of leases and the failures, and count."""
    await apply_all(connection, [(account, effects)], now)


async def apply_all(connection: Connection, done: Sequence[tuple[QueueAndGroup, Effects]], now: Instant) -> None:
    """The same for several groups."""
    await _bury_all(connection, done, now)
    for account, effects in done:
        await end_leases(connection, account, effects.endings, now)
        await note_failures(connection, account, effects.failures, now)
        await count(connection, account, effects)


async def _bury_all(
    connection: Connection, done: Sequence[tuple[QueueAndGroup, Effects]], now: Instant
) -> list[QueueKey | None]:
    """Bury the messages that were given up on, before anything is counted: who waits for a log holds no counters. Returns their
    dead-letter queues.
    """
    doomed = [account.queue for account, effects in done if effects.burials]
    if len(doomed) > 1:
        await open_graves(connection, doomed, now)
    return [await bury_given_up(connection, account, effects, now) for account, effects in done]


async def bury_given_up(
    connection: Connection, account: QueueAndGroup, effects: Effects, now: Instant
) -> QueueKey | None:
    """Bury the messages that were given up on; returns their dead-letter queue."""
    if not effects.burials:
        return None
    effects.burials.sort(key=lambda burial: burial.seq)
    grave, missing = await bury(connection, account.queue, account.group, effects.burials, now)
    effects.dead -= missing
    effects.expired += missing
    return grave


async def end_leases(connection: Connection, account: QueueAndGroup, endings: Sequence[Ending], now: Instant) -> None:
    """Store the ends of leases in the lease history."""
    if endings:
        *columns, _ = map(list, zip(*map(msgspec.structs.astuple, endings), strict=True))
        await connection.execute(SQL["end_leases"], account.queue.id, account.group_id, now, *columns)


async def note_failures(
    connection: Connection, account: QueueAndGroup, failures: Sequence[AttemptRow], now: Instant
) -> None:
    """Store failed attempts; of a message only the latest `FAILURES_KEPT`."""
    if not failures:
        return
    columns = map(list, zip(*map(msgspec.structs.astuple, failures), strict=True))
    await connection.execute(SQL["note_failures"], account.queue.id, account.group, now, *columns)
    often = [one for one in failures if one.attempt > FAILURES_KEPT]
    if often:
        await connection.execute(
            SQL["forget_failures"], account.queue.id, account.group, [one.seq for one in often],
            [one.attempt - FAILURES_KEPT for one in often],
        )  # fmt: skip


async def count(connection: Connection, account: QueueAndGroup, effects: Effects) -> None:
    """Add to the group's counters."""
    if effects.completed or effects.dead or effects.expired or effects.retried:
        await connection.execute(
            SQL["count_up"], account.queue.id, account.group_id, account.shard, effects.completed, effects.dead,
            effects.expired, effects.retried,
        )  # fmt: skip


async def renew(connection: Connection, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
    """Move the deadlines of leases whose tokens are good."""
    results = []
    for renewal in sorted(renewals, key=lambda r: (r.queue, r.group, r.partition)):
        deadline = now + seconds(renewal.lease_seconds)
        found = await connection.fetchval(
            SQL["renew"],
            renewal.queue.tenant,
            renewal.queue.name,
            renewal.group,
            renewal.partition,
            renewal.token,
            renewal.seq,
            deadline,
            now,
        )
        results.append((renewal, RenewResult(Instant(deadline)) if found else RenewResult(None, Code.STALE_LEASE)))
    by_identity = {id(renewal): result for renewal, result in results}
    return [by_identity[id(renewal)] for renewal in renewals]
