"""All mutants, by the part of the code that they are in."""

from __future__ import annotations

from tests.mutants import (
    Mutant,
    access,
    encryption,
    engine,
    http,
    lake,
    lease,
    postgres_locks,
    postgres_pairs,
    postgres_races,
    postgres_rules,
    postgres_tables,
    push_ways,
    simulation,
    spool,
    sqlite,
    sqlite_push,
    sqs,
    webhooks,
    workers,
)

TABLES: dict[str, list[Mutant]] = {
    "push ways": push_ways.MUTANTS,
    "spool": spool.MUTANTS,
    "engine": engine.MUTANTS,
    "encryption": encryption.MUTANTS,
    "http": http.MUTANTS,
    "sqs": sqs.MUTANTS,
    "webhooks": webhooks.MUTANTS,
    "access": access.MUTANTS,
    "workers": workers.MUTANTS,
    "lake": lake.MUTANTS,
    "lease": lease.MUTANTS,
    "sqlite push": sqlite_push.MUTANTS,
    "sqlite": sqlite.MUTANTS,
    "postgres locks": postgres_locks.MUTANTS,
    "postgres races": postgres_races.MUTANTS,
    "postgres pairs": postgres_pairs.MUTANTS,
    "postgres rules": postgres_rules.MUTANTS,
    "postgres tables": postgres_tables.MUTANTS,
    "simulation": simulation.MUTANTS,
}
