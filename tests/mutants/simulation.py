"""Faults that the simulation must find: of servers that share a store, of their connection to it, and of what outlives them."""

from __future__ import annotations

from tests.mutants import Mutant

KILLED_BY = "tests/simulation/test_simulation.py -k in_simulated_runs"

MUTANTS = [
    Mutant(
        "owner: pushes of one server are not announced to the others",
        "store/remote/owner.py",
        "                    if other.watched.has(key, now):\n",
        "                    if False:\n",
        KILLED_BY,
    ),
    Mutant(
        "frames: the beginning of a frame is lost when its end comes later",
        "store/remote/frames.py",
        "        if rest:\n            self._begun += rest\n",
        "",
        KILLED_BY,
    ),
    Mutant(
        "remote store: calls under way wait for ever when the owner is lost",
        "store/remote/store.py",
        "        for future, _ in waiting.values():\n            if not future.done():\n",
        "        for future, _ in waiting.values():\n            if future.done():\n",
        KILLED_BY,
    ),
    Mutant(
        "lanes: the answers of merged calls go to the wrong callers",
        "engine/batching.py",
        "        for (request, future), answer in zip(batch, answers, strict=True):\n",
        "        for (request, future), answer in zip(batch, reversed(answers), strict=True):\n",
        KILLED_BY,
    ),
    Mutant(
        "settle: a stale token settles",
        "store/sqlite/settle.py",
        "    if row is None or row[TOKEN] != held.token:\n",
        "    if row is None:\n",
        KILLED_BY,
    ),
    Mutant(
        "claim: a live lease is claimed again",
        "store/sqlite/leases.sql",
        "WHERE group_id = ?1 AND token IS NOT NULL AND ready_at <= ?2\nORDER BY ready_at, partition\n\n-- name: claim_free",
        "WHERE group_id = ?1 AND token IS NOT NULL AND ready_at <= ?2 + 1000000\nORDER BY ready_at, partition\n\n-- name: claim_free",
        KILLED_BY,
    ),
    Mutant(
        "push: a known transaction id counts as new",
        "store/sqlite/push.py",
        '        found = self.session.row(SQL["find_key"], (plan.queue.id, transaction_id, partition, self.now))\n',
        "        found = None\n",
        KILLED_BY,
    ),
    Mutant(
        "promote: messages enter the log a second before their time",
        "store/sqlite/chores.py",
        '    due = session.db.execute(SQL["due"], (queue.id, now, limit))\n',
        '    due = session.db.execute(SQL["due"], (queue.id, now + 1_000_000, limit))\n',
        KILLED_BY,
    ),
    Mutant(
        "seek: leases of the group stay",
        "store/sqlite/groups.py",
        "        _drop_rows(session, found)\n        found.start_seq",
        "        found.start_seq",
        KILLED_BY,
    ),
    Mutant(
        "transact: a refused transaction keeps what it settled",
        "store/sqlite/transact.py",
        "                raise _RefusedTransactionError(undone(transaction, settled, pushed))\n",
        "                return undone(transaction, settled, pushed)\n",
        KILLED_BY,
    ),
    Mutant(
        "session: counters of groups stay in memory",
        "store/sqlite/session.py",
        "        if self._changed_groups:\n            self.db.executemany(\n",
        "        if len(self._changed_groups) > 1:\n            self.db.executemany(\n",
        KILLED_BY,
    ),
    Mutant(
        "pop: messages that were acked at once stay leased",
        "store/sqlite/pop.py",
        "    if claim.request.auto_ack:\n        complete",
        "    if claim.request.auto_ack and len(rows) > 1:\n        complete",
        KILLED_BY,
    ),
    Mutant(
        "pop: messages of an unordered queue that were acked at once stay leased",
        "store/sqlite/sets.py",
        "    if claim.request.auto_ack:\n",
        "    if claim.request.auto_ack and len(rows) > 1:\n",
        KILLED_BY,
    ),
    Mutant(
        "expiry: messages of an ordered queue expire a second too early",
        "store/sqlite/pop.py",
        "    while done < limit and lease.oldest_at + lifetime <= now and",
        "    while done < limit and lease.oldest_at + lifetime <= now + 1_000_000 and",
        KILLED_BY,
    ),
    Mutant(
        "expiry: a pop hands out messages of an unordered queue that have expired",
        "store/sqlite/sets.py",
        "    while done < min(limit, len(rows)) and rows[done][1] + lifetime <= now:\n",
        "    while done < min(limit, len(rows)) and rows[done][1] + 2 * lifetime <= now:\n",
        KILLED_BY,
    ),
    Mutant(
        "retention: messages leave the log before their time",
        "store/sqlite/retain.py",
        "    old = find_seq_at(session, queue, now - seconds(settings.retention_seconds) + 1) - 1\n",
        "    old = find_seq_at(session, queue, now + 1) - 1\n",
        KILLED_BY,
    ),
    Mutant(
        "retention: it does not wait for the slowest group",
        "store/sqlite/retain.py",
        "    return min((progress_of(session, queue, group) for group in session.holding_groups(queue)), default=None)\n",
        "    return max((progress_of(session, queue, group) for group in session.holding_groups(queue)), default=None)\n",
        KILLED_BY,
    ),
    Mutant(
        "retention: a settlement brings no pass",
        "engine/upkeep.py",
        "            self._due(plan.retain, Instant(now + plan.settled_after))\n",
        "            pass\n",
        KILLED_BY,
    ),
]
