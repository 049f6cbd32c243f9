"""Calls (RPC) to a store in another process of this machine, over a local socket: for the workers of one SQLite file (ADR 0040)."""
