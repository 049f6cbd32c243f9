"""Skep: a message queue for Python teams whose messages end up in Spark."""

__version__ = "0.1.0"
