"""A worker process of `skep run`: its order comes on stdin. When stdin ends, its parent process has gone."""

from __future__ import annotations

import sys

from msgspec import Struct

from skep.client.settings import client_settings
from skep.config import LogFormat, LogLevel
from skep.errors import SkepError
from skep.runtime.child import on_stdin_end, read_order
from skep.runtime.logs import configure_logs
from skep.runtime.loop import run
from skep.worker.app import App
from skep.worker.loading import load_app
from skep.worker.working import Working, WorkOptions


class WorkerOrder(Struct):
    """The order to a worker process."""

    target: str
    url: str
    allow_private: bool
    log_level: LogLevel
    log_format: LogFormat
    token: str | None = None
    """The worker's token for the server. It comes on stdin, so that no other process sees it."""

    def __repr__(self) -> str:
        """Without the token, since logs show this text."""
        return f"WorkerOrder(target={self.target!r}, url={self.url!r})"


async def _work(app: App, order: WorkerOrder) -> None:
    options = WorkOptions(allow_private=order.allow_private, signals=True)
    working = Working(app.spec, app.functions, client_settings(order.url, {"token": order.token}), options)
    on_stdin_end(working.stop)
    await working.run()


def main() -> int:
    """Be a worker."""
    order = read_order(WorkerOrder)
    configure_logs(order.log_level, order.log_format)
    try:
        run(_work(load_app(order.target), order))
    except SkepError as error:
        sys.stderr.write(f"skep: {error.shown}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
