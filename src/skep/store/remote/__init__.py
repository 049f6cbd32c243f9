"""A store that another process of this machine has: its verbs over a local socket, for the workers of one SQLite file (ADR 0040)."""
