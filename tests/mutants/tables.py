"""All mutants, by the part of the code that they are in."""

from __future__ import annotations

from tests.mutants import (
    Mutant,
    encryption,
    engine,
    lease,
    postgres_locks,
    postgres_pairs,
    postgres_races,
    postgres_rules,
    push_ways,
    simulation,
    sqlite,
    sqlite_push,
    webhooks,
)

TABLES: dict[str, list[Mutant]] = {
    "push ways": push_ways.MUTANTS,
    "engine": engine.MUTANTS,
    "encryption": encryption.MUTANTS,
    "webhooks": webhooks.MUTANTS,
    "lease": lease.MUTANTS,
    "simulation": simulation.MUTANTS,
    "sqlite push": sqlite_push.MUTANTS,
    "sqlite": sqlite.MUTANTS,
    "postgres locks": postgres_locks.MUTANTS,
    "postgres pairs": postgres_pairs.MUTANTS,
    "postgres races": postgres_races.MUTANTS,
    "postgres rules": postgres_rules.MUTANTS,
}
