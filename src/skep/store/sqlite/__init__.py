"""The SQLite store: one file, one writing thread, one fsync for many calls."""

from skep.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
