"""Spark's Python daemon, which collects garbage after every task; here it looks only at what is new since the first ones.

Without this the collector walks over every object of every module after each task, which takes some 40 ms, and that is more
than most tasks of a small batch take. Spark runs this as `python -m skep.spark.daemon`, by `spark.python.daemon.module`.
"""

from __future__ import annotations

import gc
import socket
import sys

from pyspark import daemon

MODULES_STEP = 50
"""So many newly loaded modules make it worth while to set aside what they brought, too."""

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
    daemon.worker = worker
    daemon.manager()
