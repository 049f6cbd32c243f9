"""The door as an ASGI application: the routes of a port of their own, behind the bounds and the guard of the main one."""

from __future__ import annotations

import asyncio

from starlette import routing

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.app import HttpApp, Resource
from skep.http.queen.door import QueenDoor, refuse
from skep.http.queen.routes import routes
from skep.http.request.call import Receive, Scope, Send
from skep.http.request.endpoint import send_answer

DOOR = "queen:"
"""The beginning of the names of its routes in the metrics."""


class QueenApp:
    """Serves Queen's wire. Its counters are those of the main application."""

    def __init__(self, app: HttpApp, engine: Engine) -> None:
        self._engine = engine
        self._door = QueenDoor(engine, app.meter, app.answers, asyncio.Event())
        self.routes = routes(self._door, app.routes)
        served = app.behind(DOOR, self.routes)
        exact: dict[str, list[str]] = {}
        for route, _ in served:
            if "{" not in route.path:
                exact.setdefault(route.path, []).append(route.method)
        resources: dict[str, Resource] = {}
        for route, endpoint in served:
            resources.setdefault(route.path, Resource(exact, refuse)).add(route, endpoint)
        self._router = routing.Router(
            [routing.Route(path, resource) for path, resource in resources.items()], default=self._no_route
        )
        self._router.redirect_slashes = False  # as in the main application

    def end_polls(self) -> None:
        """Answer every waiting pop without messages, as the engine's; also those that wait for a queue."""
        self._door.ending.set()
        self._engine.end_polls()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. Paths are matched as they were quoted, so that a name may contain a slash."""
        if scope["type"] == "http":
            scope["path"] = scope["raw_path"].decode("ascii")
            await self._router(scope, receive, send)

    async def _no_route(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - nothing is read
        error = SkepError(
            Code.ROUTE_NOT_FOUND, f"there is no {scope['path']} for clients of Queen; docs/queen.md has the routes"
        )
        await send_answer(scope, send, refuse(error))
