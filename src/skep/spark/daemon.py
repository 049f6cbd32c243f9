"""Spark's Python daemon, without two of its waits. Every Python worker is a fork of it.

Spark collects garbage after every task. That walks over every object of every module: some 40 ms, more than most tasks of a small
batch take. Here the collector looks only at objects that are new since the first tasks. Spark's daemon also loads few modules before
it forks, so that each worker loads the rest; here the workers share most modules. The setting `spark.python.daemon.module` makes Spark
run this as `python -m skep.spark.daemon`.
"""

from __future__ import annotations

import gc
import socket
import sys
from importlib import import_module

from pyspark import daemon

MODULES_STEP = 50
"""After so many more modules were loaded, their objects are set aside, too."""

SHARED = ("pyspark.worker", "pyspark.sql.datasource_internal", "skep.client.client")
"""Modules that are loaded before a worker is forked. None of them starts a thread, which a fork would lose; numpy and pyarrow do."""

GONE = 1
"""The exit code that ends this process; any code but 0 does."""

_run_task = daemon.worker
_set_aside = 0


def worker(sock: socket.socket, authenticated: bool) -> int:
    """Run a task. Then hide the objects from the garbage collector that live as long as this process."""
    global _set_aside
    try:
        code = _run_task(sock, authenticated)
    except (BrokenPipeError, ConnectionResetError):
        return GONE  # Spark has closed the connection: it has all rows, or was stopped, and nobody reads a traceback
    if len(sys.modules) >= _set_aside + MODULES_STEP:
        gc.collect()  # before the freeze, which would keep garbage for ever
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
