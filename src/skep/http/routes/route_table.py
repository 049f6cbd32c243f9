"""Routes that are declared beside their handlers.

A handler is a plain function of the engine, or of the parts of the server, and the call. Its module has one table, with the handlers in
the order in which they are documented and matched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from skep.apps.catalogue import Catalogue
from skep.engine import Engine
from skep.engine.answers import Answers
from skep.http.request.call import Answer, Call
from skep.http.request.permission import Permission
from skep.http.request.route import Parameter, Route
from skep.observe.metrics import Meter


class Served(NamedTuple):
    """The parts of the server, for handlers that need more than the engine."""

    engine: Engine
    catalogue: Catalogue
    meter: Meter
    total: Callable[[], Meter]
    """The counters of this process, or of all processes on its port."""
    answers: Answers
    """The room (memory) of payloads in answers."""


Source = TypeVar("Source", Engine, Served)
ServingHandler = Callable[[Source, Call], Awaitable[Answer]]


class RouteTable(Generic[Source]):
    """The routes of a module, documented under one tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._declared: list[tuple[ServingHandler[Source], dict[str, Any]]] = []

    def route(
        self,
        method: str,
        path: str,
        access: Permission,
        summary: str,
        *,
        answers: dict[int, Any],
        request: Any = None,
        optional: bool = False,
        parameters: tuple[Parameter, ...] = (),
        description: str = "",
        example: Any = None,
        tenant_in: str | None = None,
        by_link: bool = False,
    ) -> Callable[[ServingHandler[Source]], ServingHandler[Source]]:
        """Declare that the function below handles this route; `Route` says what the arguments mean."""
        fields = {
            "method": method, "path": path, "access": access, "summary": summary, "answers": answers, "request": request,
            "optional": optional, "parameters": parameters, "description": description, "example": example, "tag": self.tag,
            "tenant_in": tenant_in, "by_link": by_link,
        }  # fmt: skip

        def declare(handler: ServingHandler[Source]) -> ServingHandler[Source]:
            self._declared.append((handler, fields))
            return handler

        return declare

    def serve(self, source: Source) -> list[Route]:
        """The routes, whose handlers serve from this."""
        return [Route(handler=partial(handler, source), **fields) for handler, fields in self._declared]
