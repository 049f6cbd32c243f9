"""Spark's process that plans a stream, connected to Spark before it loads anything.

Spark gives up a stream whose process has not connected within ten seconds, which no setting changes. To load Spark's modules takes a
second, and more than ten on a busy machine. The program of `skep.spark.interpreter` starts this module in place of `RUNNER`.
"""

from __future__ import annotations

import os
import runpy
import socket

RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
SOCKET = "PYTHON_WORKER_FACTORY_SOCK_PATH"
"""Where Spark listens. It is not set where Spark listens on a port."""
BUFFER_BYTES = 65_536


def main() -> None:
    """Connect, then run what Spark has asked for."""
    if (path := os.environ.get(SOCKET)) is not None:
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(path)
        from pyspark import worker_util

        opened = connected.makefile("rwb", BUFFER_BYTES), connected
        worker_util.local_connect_and_auth = lambda *_: opened  # type: ignore[attr-defined] # the runner takes it from there
    runpy.run_module(RUNNER, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
