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
]
