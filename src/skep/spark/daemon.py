"""Spark's Python daemon, of which every worker is a fork, with two waits less.

Spark collects garbage after every task, which means a walk over every object of every module: some 40 ms, more than most tasks
of a small batch take. Here it looks only at what is new since the first tasks. And Spark's daemon loads little before it forks,
so that each worker loads the rest: here they share most of it. Spark runs this as `python -m skep.spark.daemon`, by
`spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import socket
import sys
from importlib import import_module

from pyspark import daemon

MODULES_STEP = 50
"""So many newly loaded modules make it worth while to set aside what they brought, too."""

SHARED = ("pyspark.worker", "pyspark.sql.datasource_internal", "skep.client.client")
"""Loaded before a worker is forked. None of them starts a thread, which a fork would lose: numpy and pyarrow do."""

GONE = 1
"""Ends this process; any other than 0 does."""

_run_task = daemon.worker
_set_aside = 0


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a task; then let the collector forget about what will live as long as this process."""
    global _set_aside
    try:
        code = _run_task(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return GONE  # Spark has hung up: it has all it wanted, or was stopped, and nobody reads a traceback of it
    if len(sys.modules) >= _set_aside + MODULES_STEP:
        gc.collect()  # or garbage would be kept for ever
        gc.freeze()
        _set_aside = len(sys.modules)
    return code


if __name__ == "__main__":
    for name in SHARED:
        import_module(name)
    gc.collect()
    gc.freeze()
    daemon.worker = worker
    daemon.manager()
