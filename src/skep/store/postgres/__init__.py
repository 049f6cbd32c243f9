"""The PostgreSQL store."""

from skep.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
