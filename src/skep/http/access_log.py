"""The access log: one line for every request, at level debug. The query is left out, since it may carry secrets."""

from __future__ import annotations

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from skep.http.request.scope import CYCLE

log = structlog.get_logger("skep.http.access")


class AccessLog:
    """Logs every request that the application answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the request, and log it."""
        started = time.perf_counter()
        path = scope["raw_path"].decode("ascii", "replace")
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        finally:
            if (cycle := scope.get(CYCLE)) is not None:
                status = cycle.status or status
            log.debug(
                "request", method=scope["method"], path=path, status=status or None,
                client=(scope["client"] or ("",))[0], ms=round((time.perf_counter() - started) * 1_000, 2),
            )  # fmt: skip
