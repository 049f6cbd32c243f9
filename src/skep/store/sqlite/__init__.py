"""The SQLite store: one file, one connection that writes, one fsync for many calls."""

from skep.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
