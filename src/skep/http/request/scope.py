"""Names in a request's ASGI scope that are ours."""

from __future__ import annotations

from http import HTTPStatus

CYCLE = "skep.cycle"
"""Where a request's scope has its cycle, on a server of ours."""
NO_BODY = frozenset({HTTPStatus.NO_CONTENT})
