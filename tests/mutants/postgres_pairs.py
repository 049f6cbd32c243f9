"""Locks of the PostgreSQL store that are dropped, as `test_pairs.py` notices them: by what two calls at once leave behind, not by the lock."""

from __future__ import annotations

from tests.mutants import Mutant

MUTANTS = [
    Mutant(
        "pairs: a group is not shared by who pops",
        "store/postgres/functions/locks.sql",
        "        PERFORM pg_advisory_xact_lock_shared(1936418164, group_id);\n",
        "",
        'tests/unit/store/postgres/test_pairs.py -k "pop_some-seek"',
    ),
    Mutant(
        "pairs: a group is not taken, only waited past",
        "store/postgres/functions/locks.sql",
        "        PERFORM pg_advisory_xact_lock(1936418164, p_group);\n",
        "        NULL;\n",
        'tests/unit/store/postgres/test_pairs.py -k "pop_some-seek"',
    ),
    Mutant(
        "pairs: push_plain does not lock the log",
        "store/postgres/functions/push.sql",
        "    PERFORM pg_advisory_xact_lock(1936418160, v_id);\n",
        "",
        'tests/unit/store/postgres/test_pairs.py -k "push-push_plain"',
    ),
    Mutant(
        "pairs: a change of ordering lets others lock operations",
        "store/postgres/functions/operations.sql",
        "    LOCK TABLE operation IN EXCLUSIVE MODE;\n",
        "    LOCK TABLE operation IN SHARE MODE;\n",
        'tests/unit/store/postgres/test_pairs.py -k "who_has_operations"',
    ),
]
