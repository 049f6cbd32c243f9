"""Locks of the PostgreSQL store that are dropped, one at a time. `docs/log.md` has the order of locks and their reasons."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "a group is not shared by who claims",
        "store/postgres/functions/locks.sql",
        "    PERFORM pg_advisory_xact_lock_shared(1936418164, p_group);\n",
        "",
        "tests/unit/store/postgres/test_group_races.py tests/unit/store/postgres/test_lock_order.py",
    ),
]
