"""Errors on the wire: all have one shape."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class Problem(Struct):
    """A stable code, a sentence for people, details for programs."""

    code: str
    message: str
    details: dict[str, Any]


class ErrorResponse(Struct):
    """The body of every answer outside 2xx."""

    error: Problem
