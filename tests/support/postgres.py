"""PostgreSQL for tests: the same server that benchmarks use."""

from skep.testing.postgres import PostgresServer, running_postgres

__all__ = ["PostgresServer", "running_postgres"]
