"""A route of the API: its method and path, its handler, and its documentation."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from skep.http.request.endpoint import Handler, Teller
from skep.http.request.permission import Permission

TEXTS = list[str]


class Parameter(Struct, frozen=True):
    """A parameter of the query or, when it is in braces there, of the path."""

    name: str
    type: Any
    description: str
    required: bool = False


class Media(Struct, frozen=True):
    """A body that is not the JSON of a struct: its media type, and what it holds."""

    type: str
    schema: Any = str


class Route(Struct, frozen=True, kw_only=True):
    """One method of one path.

    ``request`` and each of the ``answers`` by status is the type of a JSON body, a `Media`, a tuple of these, or None when
    there is no body; a ``request`` that is ``optional`` may be left out.
    ``tag`` is its group in the documentation, ``verb`` the verb whose latency it counts towards, ``access``
    the permission that it needs. ``tenant_in`` is the parameter of the query that may name the tenant instead of the header.
    ``by_cookie`` lets a browser show its session in a cookie, ``by_link`` lets a link from any page lead here.
    ``checks_query`` says that the handler itself checks the query, also for unknown parameters. ``tell`` makes the answers of
    its errors, where they are not those of the API.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    tag: str
    request: Any = None
    optional: bool = False
    answers: dict[int, Any]
    parameters: tuple[Parameter, ...] = ()
    description: str = ""
    example: Any = None
    verb: str = "other"
    access: Permission
    tenant_in: str | None = None
    by_cookie: bool = False
    by_link: bool = False
    checks_query: bool = False
    tell: Teller | None = None

    @property
    def query_names(self) -> frozenset[str]:
        """The parameters that its query may have."""
        return frozenset(parameter.name for parameter in self.parameters if f"{{{parameter.name}}}" not in self.path)

    @property
    def repeatable(self) -> frozenset[str]:
        """The parameters that may be given several times: those whose type is a list."""
        return frozenset(parameter.name for parameter in self.parameters if parameter.type == TEXTS)
