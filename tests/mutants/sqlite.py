"""Faults of the SQLite store."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "settle: any token settles a lease",
        "store/sqlite/settle.py",
        "if row is None or row[TOKEN] != held.token:",
        "if row is None:",
        "tests/contract/test_fencing.py -k sqlite",
    ),
    Mutant(
        "renew: any token renews a lease",
        "store/sqlite/settle.py",
        "if lease is None or lease.token != renewal.token:",
        "if lease is None:",
        "tests/contract/test_fencing.py -k sqlite",
    ),
    Mutant(
        "settle: a nack that names a whole lease counts as an ack",
        "store/sqlite/whole_leases.py",
        "if one.seq != seq or one.outcome is not Outcome.ACK:",
        "if one.seq != seq:",
        "tests/contract/test_settle.py tests/contract/test_retries.py -k sqlite",
    ),
    Mutant(
        "settle: the completed count of a whole lease is lost",
        "store/sqlite/whole_leases.py",
        "    group.completed += len(done)\n",
        "",
        "tests/contract/test_settle.py tests/contract/test_stats.py -k sqlite",
    ),
]
