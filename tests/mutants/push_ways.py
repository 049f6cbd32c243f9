"""Faults of the ways in: the entrance, QoS 0, operations, and the spool."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "spool: a push is answered without an fsync",
        "engine/push/spool/push_file.py",
        'db.pragma("synchronous", "FULL")',
        'db.pragma("synchronous", "NORMAL")',
        "tests/spool/test_slot.py tests/spool/test_crash.py",
    ),
]
