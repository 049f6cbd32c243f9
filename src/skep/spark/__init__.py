"""Spark: a queue as a table and as a stream, both ways, and what is computed from it. Needs the extra `spark`.

Uses the client and nothing of the server, since the machines of a cluster have none. PySpark is imported only in here.
"""
