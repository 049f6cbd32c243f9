"""An operation of the API: how it is reached, what does it, and how it is documented."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from skep.http.endpoint import Handler


class Parameter(Struct, frozen=True):
    """A parameter of the query or, when it is in braces there, of the path."""

    name: str
    type: Any
    description: str
    required: bool = False


class Operation(Struct, frozen=True, kw_only=True):
    """One method of one path. ``answers`` has the body's type by status; None for an empty body."""

    method: str
    path: str
    handler: Handler
    summary: str
    request: Any = None
    answers: dict[int, Any]
    parameters: tuple[Parameter, ...] = ()
    description: str = ""
