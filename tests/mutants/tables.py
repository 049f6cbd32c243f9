"""All mutants, by the part of the code that they are in."""

from __future__ import annotations

from tests.mutants import Mutant, lease, postgres_locks, sqlite

TABLES: dict[str, list[Mutant]] = {
    "lease": lease.MUTANTS,
    "sqlite": sqlite.MUTANTS,
    "postgres locks": postgres_locks.MUTANTS,
}
