"""Spark's Python daemon, without two of its waits. Every Python worker is a fork of it.

Here the workers set aside what the garbage collector need not look at. Spark's daemon also loads few modules before it forks, so that
each worker loads the rest; here the workers share most modules. The setting `spark.python.daemon.module` makes Spark run this as
`python -m skep.spark.daemon`.
"""

from __future__ import annotations

import socket
from importlib import import_module

from pyspark import daemon

from skep.spark.garbage import set_aside

SHARED = ("pyspark.worker", "pyspark.sql.datasource_internal", "skep.client.client")
"""Modules that are loaded before a worker is forked. None of them starts a thread, which a fork would lose; numpy and pyarrow do."""

GONE = 1
"""The exit code that ends this process; any code but 0 does."""

_run_task = daemon.worker


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a task, and then set aside what lives as long as this process."""
    try:
        code = _run_task(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return GONE  # Spark has closed the connection: it has all rows, or was stopped, and nobody reads a traceback
    set_aside()
    return code


if __name__ == "__main__":
    for name in SHARED:
        import_module(name)
    set_aside()
    daemon.worker = worker
    daemon.manager()
