"""`/openapi.json` and `/docs`: the reference of the API, for programs and for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec

from skep.config import Limits
from skep.http.openapi import document
from skep.http.reference import page
from skep.http.request.call import Answer, Call
from skep.http.request.permission import KNOWN
from skep.http.request.route import Media, Route

HTML = b"text/html; charset=utf-8"


def routes(every: Callable[[], Sequence[Route]], limits: Limits) -> list[Route]:
    """The reference; ``every`` gives all routes, which include these, ``limits`` are those of the server."""

    @cache
    def written() -> bytes:
        return msgspec.json.encode(document(every(), limits))

    async def openapi(call: Call) -> Answer:  # noqa: ARG001 - the same for everyone
        return Answer(200, written())

    async def docs(call: Call) -> Answer:  # noqa: ARG001 - the same for everyone
        told = page()
        return Answer(200, told.html, HTML, [(b"content-security-policy", told.policy)])

    return [
        Route(
            method="GET", path="/openapi.json", access=KNOWN, by_cookie=True, by_link=True, handler=openapi, tag="Server", answers={200: dict[str, Any]},
            summary="This reference as an OpenAPI 3.1 document",
        ),
        Route(
            method="GET", path="/docs", access=KNOWN, by_cookie=True, by_link=True, handler=docs, tag="Server", answers={200: Media("text/html")},
            summary="This reference as a page",
        ),
    ]  # fmt: skip
