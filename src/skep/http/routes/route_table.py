"""Routes that are declared beside their handlers.

A handler is a plain function of what it serves from, such as the engine, and the call. Its module has one table; the handlers stand in it
in the order in which they are documented and matched.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from skep.http.request.call import Answer, Call
from skep.http.request.permission import Permission
from skep.http.request.route import Parameter, Route

Served = TypeVar("Served")
ServingHandler = Callable[[Served, Call], Awaitable[Answer]]


class _Declared(Struct, Generic[Served]):
    """A route whose handler does not yet know what it serves from."""

    handler: ServingHandler[Served]
    fields: dict[str, Any]


class RouteTable(Generic[Served]):
    """The routes of a module, documented under one tag."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._declared: list[_Declared[Served]] = []

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
    ) -> Callable[[ServingHandler[Served]], ServingHandler[Served]]:
        """Declare that the function below handles this route; `Route` says what the arguments mean."""
        fields = {
            "method": method, "path": path, "access": access, "summary": summary, "answers": answers, "request": request,
            "optional": optional, "parameters": parameters, "description": description, "example": example, "tag": self.tag,
            "tenant_in": tenant_in, "by_link": by_link,
        }  # fmt: skip

        def declare(handler: ServingHandler[Served]) -> ServingHandler[Served]:
            self._declared.append(_Declared(handler, fields))
            return handler

        return declare

    def serve(self, served: Served) -> list[Route]:
        """The routes, whose handlers serve from this."""
        return [Route(handler=partial(one.handler, served), **one.fields) for one in self._declared]
