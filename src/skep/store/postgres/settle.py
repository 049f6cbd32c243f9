"""Settling: acks, nacks, rejections and renewals, fenced by token.

Acks of ordered queues, and of whole leases, take one round trip (`settle_acks`). Everything else, and every lease that the fast way
would not take, goes the careful way: lock the rows in ascending order, decide in Python, write back, bury, count, all in one transaction.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import asyncpg
import msgspec
from msgspec import Struct

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.model import (
    Ordering,
    Outcome,
    Queue,
    QueueKey,
    Renewal,
    RenewResult,
    Retry,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.store.outcomes import COMPLETED_BEFORE, Swept, kept_answers, kept_sweep
from skep.store.postgres import dead_letters, queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.leases import (
    BURIED,
    COMPLETED,
    COMPLETED_FREES_NONE,
    REFUSED_NOT_IN_LEASE,
    REFUSED_STALE,
    Effects,
    Ending,
    Failure,
    Lease,
    is_whole_release,
    judge,
    lease_of,
    outcome_of,
    settle_lease,
    sweep,
    undo_delivery,
)
from skep.store.rules import FAILURES_KEPT, is_seq, kept_error, may_lose_messages, ready_at, wants_mark
from skep.store.statements import load_statements

SQL = load_statements(__package__, "settle")

LeaseKey = tuple[str, bytes]


class Account(Struct, frozen=True):
    """A queue and one group of it, as rows know them."""

    queue: Queue
    group_id: int
    group: str
    shard: int
    active_at: int = 0
    idle: bool = False


class AckedLease(NamedTuple):
    """A lease, the places of what is said of it, and what is acked: these seqs, or all of it up to one."""

    partition: str
    token: bytes
    indexes: list[int]
    seqs: Sequence[int]
    through: int | None


async def settle_acks(
    connection: Connection, settlements: Sequence[Settlement], now: Instant, shard: int
) -> list[SettleResult | None]:
    """The fast way for acks of one queue and group: None where the careful way must decide."""
    leases = acked_leases(settlements)
    done = await connection.fetchrow(SQL["settle_acks"], *columns(settlements[0], leases, now, shard))
    assert done is not None
    return acked(settlements, leases, done["o_leases"], done["o_messages"])


def columns(first: Settlement, leases: Sequence[AckedLease], now: Instant, shard: int) -> tuple[object, ...]:
    """What `settle_acks` takes."""
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
    """What `settle_acks` answered, settlement by settlement."""
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
    """The leases that the fast way may take. One that is acked as a whole is, unless the call says more of it than that."""
    found = []
    for (partition, token), indexes in _by_lease(settlements).items():
        if not any(settlements[i].outcome is Outcome.ACK_THROUGH for i in indexes):
            seqs = sorted({settlements[i].seq for i in indexes})
            found.append(AckedLease(partition, token, indexes, seqs, None))
        elif len(indexes) == 1:
            found.append(AckedLease(partition, token, indexes, [], settlements[indexes[0]].seq))
    return found


def is_simple(settlements: Sequence[Settlement]) -> bool:
    """Whether the fast way may be tried: only acks, of one queue and group, and of messages that can be."""
    first = settlements[0]
    return all(
        s.outcome in (Outcome.ACK, Outcome.ACK_THROUGH)
        and s.group == first.group
        and s.queue == first.queue
        and is_seq(s.seq)
        for s in settlements
    )


async def settle(
    connection: Connection,
    settlements: Sequence[Settlement],
    now: Instant,
    shard: int,
    ended: list[tuple[Account, list[Ending]]] | None = None,
    remember: bool = True,
) -> list[SettleResult]:
    """The careful way, for any settlements. With ``ended``, how leases ended goes there, for the caller to write down.

    Unless ``remember``, that is without the answers.
    """
    results: list[SettleResult] = [REFUSED_STALE] * len(settlements)
    order = sorted(range(len(settlements)), key=lambda i: (settlements[i].queue, settlements[i].group))
    settled: list[tuple[Account, list[int], Effects]] = []
    for (key, group), run in groupby(order, key=lambda i: (settlements[i].queue, settlements[i].group)):
        indexes = sorted(run)
        account = await find_account(connection, key, group, shard)
        if account is not None:
            if wants_mark(account.active_at, account.idle, now):
                await connection.execute(SQL["mark_active"], account.group_id, now)
            effects = Effects()
            outcome = await _settle_group(connection, account, [settlements[i] for i in indexes], now, effects)
            settled.append((account, indexes, effects))
            for i, result in zip(indexes, outcome, strict=True):
                results[i] = result
    # Burials come last: nobody who holds the log of a dead-letter queue waits for a group or a lease.
    doomed = [account.queue for account, _, effects in settled if effects.burials]
    if len(doomed) > 1:
        await dead_letters.open_graves(connection, doomed, now)
    for account, indexes, effects in settled:
        buried_in = await bury(connection, account, effects, now)
        if effects.burials:
            status = SettleStatus.DISCARDED if buried_in is None else SettleStatus.DEAD
            grave = SettleResult(status, dead_letter_queue=None if buried_in is None else buried_in.name)
            for i in indexes:
                if results[i] is BURIED:
                    results[i] = grave
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
    """Share the groups of all these settlements at once: for calls that take a later lock before they settle."""
    asked = sorted({(s.queue, s.group) for s in settlements})
    if asked:
        await connection.execute(
            SQL["share_groups"], [q.tenant for q, _ in asked], [q.name for q, _ in asked], [group for _, group in asked]
        )


async def find_account(connection: Connection, key: QueueKey, group: str, shard: int) -> Account | None:
    """The queue and group, or None when there is no such queue or group. Nobody takes its leases away until we are done."""
    row = await connection.fetchrow(SQL["account"], key.tenant, key.name, group)
    return (
        None
        if row is None
        else Account(queues.queue_of(row), row["group_id"], group, shard, row["active_at"], row["idle"])
    )


async def _settle_group(
    connection: Connection, account: Account, settlements: Sequence[Settlement], now: Instant, effects: Effects
) -> list[SettleResult]:
    if account.queue.settings.ordering is Ordering.UNORDERED:
        return await _settle_sets(connection, account, settlements, now, effects)
    return await _settle_partitions(connection, account, settlements, now, effects)


def _answered(
    account: Account, endings: Sequence[Ending], answers: Sequence[tuple[Settlement, SettleResult]]
) -> list[Ending]:
    """The rows for the lease history, each with what was answered under its token."""
    unordered = account.queue.settings.ordering is Ordering.UNORDERED
    # One token may lease several partitions, and in an unordered queue several sets, whose seqs lie between each other.
    said: dict[tuple[bytes | None, str], list[tuple[Settlement, SettleResult]]] = {}
    for settlement, result in sorted(answers, key=_seq_answered):
        if settlement.outcome is Outcome.ACK_THROUGH:
            continue  # it is told in the ending itself
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
    connection: Connection, account: Account, settlements: Sequence[Settlement], now: Instant, effects: Effects
) -> list[SettleResult]:
    leases = _by_lease(settlements)
    rows = await connection.fetch(SQL["lock_leases"], account.group_id, [k[0] for k in leases], [k[1] for k in leases])
    results: list[SettleResult] = [REFUSED_STALE] * len(settlements)
    locked = []
    for row in rows:
        lease = lease_of(row)
        locked.append(lease)
        indexes = leases[lease.partition, row["token"]]
        items = [settlements[i] for i in indexes]
        there = await _undoable(connection, account, lease) if is_whole_release(lease, items) else None
        if there is not None:
            outcome = undo_delivery(lease, items, there, now, effects)
        else:
            outcome = settle_lease(lease, list(map(_counted, items)), account.queue.settings, now, effects)
        for i, result in zip(indexes, outcome, strict=True):
            results[i] = result
    await write_leases(connection, account, [lease for lease in locked if lease.changed], now, effects)
    return results


def _counted(item: Settlement) -> Settlement:
    """A release of part of a lease is a nack: somebody got that lease."""
    if item.outcome is not Outcome.RELEASE:
        return item
    return msgspec.structs.replace(item, outcome=Outcome.NACK, retry=Retry.NOW)


async def _undoable(connection: Connection, account: Account, lease: Lease) -> int | None:
    """How many of a lease's messages are still in the log; None when one behind its first was settled.

    Only without such a gap can it be as if they had not been delivered. One row more than are open would show it.
    """
    if lease.attempts > 1:
        return len(lease.open)
    rows = await connection.fetch(
        SQL["delivered"], account.queue.id, account.group_id, lease.partition, lease.open[0], lease.delivered_seq,
        len(lease.open) + 1,
    )  # fmt: skip
    return len(rows) if {row["seq"] for row in rows}.issubset(lease.open) else None


async def write_leases(
    connection: Connection, account: Account, leases: Sequence[Lease], now: Instant, effects: Effects
) -> None:
    """Write changed rows back: delete the empty, look up what is now oldest in the others.

    A message from ahead, since the clock was put back, counts as created now.
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
                    # Up to the next message everything here is settled: with that the group's progress is exact.
                    lease.delivered_seq = head["next_seq"] - 1
                if lease.token is not None:
                    continue
                if not lease.open:
                    lease.ready_at = ready_at(account.queue.settings, lease.oldest_at, min(lease.newest_at, now))
                elif not lease.resting:
                    lease.ready_at = lease.oldest_at
            elif not lease.open:
                # What was pending here has been deleted from the log.
                effects.expired += lease.pending
                lease.pending = 0
            elif lease.token is None and not lease.resting:
                # The next open one has been deleted: it expires when it is claimed, which may be at once.
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
                 lease.token, lease.leased_at, lease.ready_at, lease.oldest_at, lease.last_error, lease.delivered_seq)
                for lease in kept
            ],
        )  # fmt: skip


async def _drop_gone(connection: Connection, account: Account, leases: Sequence[Lease], effects: Effects) -> None:
    """Take what is no longer in the log out of rows whose lease is over; it counts as expired."""
    if not may_lose_messages(account.queue.settings, account.queue.holds_dead_letters):
        return
    over = [lease for lease in leases if lease.token is None and lease.open]
    there = await _present(connection, account, [seq for lease in over for seq in lease.open])
    for lease in over:
        head, before = lease.open[0], len(lease.open)
        lease.open = [seq for seq in lease.open if seq in there]
        effects.expired += before - len(lease.open)
        if not lease.open or lease.open[0] != head:
            lease.attempts = 1 if lease.open else 0
            lease.last_error = None
        lease.resting = lease.resting and bool(lease.open)


async def _present(connection: Connection, account: Account, seqs: Sequence[int]) -> set[int]:
    """Which of some messages are still in the log."""
    if not seqs:
        return set()
    return {row["seq"] for row in await connection.fetch(SQL["present"], account.queue.id, seqs)}


async def _settle_sets(
    connection: Connection, account: Account, settlements: Sequence[Settlement], now: Instant, effects: Effects
) -> list[SettleResult]:
    tokens = list({s.token for s in settlements})
    rows = await connection.fetch(SQL["lock_sets"], account.queue.id, account.group_id, tokens)
    home = {(row["token"], seq): row for row in rows for seq in row["seqs"]}
    known = {row["token"] for row in rows}
    results: list[SettleResult] = []
    fates: dict[int, dict[int, str]] = {}
    failed: dict[int, list[tuple[int, SettleResult, str | None]]] = {}
    for s in settlements:
        if s.outcome is Outcome.ACK_THROUGH:
            results.append(REFUSED_STALE)
            continue
        row = home.pop((s.token, s.seq), None)
        if row is None:
            results.append(REFUSED_NOT_IN_LEASE if s.token in known else REFUSED_STALE)
            continue
        result, fate = judge(s, row["attempts"], account.queue.settings, now, effects)
        results.append(result)
        fates.setdefault(row["id"], {})[s.seq] = fate
        if fate == "retried":
            failed.setdefault(row["id"], []).append((s.seq, result, s.error))
        if fate in ("retried", "dead"):
            effects.failures.append(set_failure(row, s.seq, fate, s.error))
    swept = _sweep_sets(settlements, results, rows, home, fates, effects)
    again = [seq for fate in fates.values() for seq, name in fate.items() if name in ("retried", "released")]
    there = await _present(connection, account, again)
    effects.expired += len(again) - len(there)
    for row in rows:
        if row["id"] in fates:
            left = [one for one in failed.get(row["id"], []) if one[0] in there]
            await _move_out(connection, account, row["id"], left, now)
            await _take_back(connection, row["id"], fates[row["id"]], there, now)
            await _write_set(connection, row["id"], [q for q in row["seqs"] if q not in fates[row["id"]]])
            effects.endings.append(_set_ending(row, fates[row["id"]], swept.get(row["id"])))
    return results


def _sweep_sets(
    settlements: Sequence[Settlement],
    results: list[SettleResult],
    rows: Sequence[asyncpg.Record],
    left: dict[tuple[bytes, int], asyncpg.Record],
    fates: dict[int, dict[int, str]],
    effects: Effects,
) -> dict[int, Swept]:
    """Ack what single messages have ``left`` of whole leases; what that took of each set."""
    swept: dict[int, Swept] = {}
    for place, s in enumerate(settlements):
        if s.outcome is not Outcome.ACK_THROUGH:
            continue
        own = [row for row in rows if (row["token"], row["partition"]) == (s.token, s.partition)]
        messages = 0
        for row in own:
            unheard = [seq for seq in row["seqs"] if seq <= s.seq and (s.token, seq) in left]
            if unheard:
                found = swept.setdefault(row["id"], Swept())
                messages += sweep(s, unheard, fates.setdefault(row["id"], {}), found, effects).messages
                for seq in unheard:
                    del left[s.token, seq]
        if own:
            results[place] = (
                SettleResult(SettleStatus.COMPLETED, messages=messages) if messages else REFUSED_NOT_IN_LEASE
            )
    return swept


async def _write_set(connection: Connection, set_id: int, seqs: list[int]) -> None:
    if seqs:
        await connection.execute(SQL["shrink_set"], set_id, seqs)
    else:
        await connection.execute(SQL["delete_set"], set_id)


async def _move_out(
    connection: Connection,
    account: Account,
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


async def _take_back(connection: Connection, set_id: int, fates: dict[int, str], there: set[int], now: Instant) -> None:
    """Give the messages that reached nobody a row of their own, which does not count this delivery."""
    released = sorted(seq for seq, fate in fates.items() if fate == "released" and seq in there)
    if released:
        await connection.execute(SQL["insert_released"], set_id, released, now)


def _set_ending(row: asyncpg.Record, fates: dict[int, str], swept: Swept | None) -> Ending:
    completed = sum(fate == "completed" for fate in fates.values())
    return Ending(
        row["partition"], min(fates), max(fates), len(fates), completed, row["attempts"], row["leased_at"],
        outcome_of(fates.values()), row["token"], swept=swept,
    )  # fmt: skip


def set_failure(row: asyncpg.Record, seq: int, outcome: str, error: str | None) -> Failure:
    """That the attempt under a leased set failed for one of its messages."""
    return Failure(seq, row["attempts"], row["leased_at"] or 0, outcome, kept_error(error), row["consumer"])


async def apply(connection: Connection, account: Account, effects: Effects, now: Instant) -> None:
    """Bury, write the history and count."""
    await bury(connection, account, effects, now)
    await end_leases(connection, account, effects.endings, now)
    await note_failures(connection, account, effects.failures, now)
    await count(connection, account, effects)


async def bury(connection: Connection, account: Account, effects: Effects, now: Instant) -> QueueKey | None:
    """Bury what was given up on; where the dead letters went."""
    if not effects.burials:
        return None
    buried_in, missing = await dead_letters.bury(connection, account.queue, account.group, effects.burials, now)
    effects.dead -= missing
    effects.expired += missing
    return buried_in


async def end_leases(connection: Connection, account: Account, endings: Sequence[Ending], now: Instant) -> None:
    """Write down how leases ended."""
    if endings:
        *columns, _ = map(list, zip(*map(msgspec.structs.astuple, endings), strict=True))
        await connection.execute(SQL["end_leases"], account.queue.id, account.group_id, now, *columns)


async def note_failures(connection: Connection, account: Account, failures: Sequence[Failure], now: Instant) -> None:
    """Keep why attempts failed; of a message that is tried on and on, only the latest."""
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


async def count(connection: Connection, account: Account, effects: Effects) -> None:
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
            deadline,
            now,
        )
        results.append((renewal, RenewResult(Instant(deadline)) if found else RenewResult(None, Code.STALE_LEASE)))
    by_identity = {id(renewal): result for renewal, result in results}
    return [by_identity[id(renewal)] for renewal in renewals]
