"""PostgreSQL for tests: the same server that benchmarks use."""

from skep.store.postgres import PostgresStore
from skep.testing.postgres import PostgresServer, running_postgres

__all__ = ["PostgresServer", "make_tables", "running_postgres"]


async def make_tables(dsn: str) -> None:
    """Bring an empty database to where a store has it."""
    store = PostgresStore(dsn)
    await store.open()
    await store.close()
