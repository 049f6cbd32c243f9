"""Spark: queues as tables and streams, for reading and writing, and pipelines over them. Needs the extra `spark`.

The package uses the client and nothing of the server, since the machines of a cluster have no server. No other package imports PySpark.
"""
