"""A span for each request that a handler answers, where the server sends spans. Elsewhere handlers stay as they are, and cost nothing more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Protocol
from urllib.parse import unquote

from skep.clock import Instant
from skep.errors import SkepError
from skep.http.request.call import Answer, Call, ClientGone
from skep.http.request.endpoint import Handler
from skep.http.request.statuses import seen_from_outside, status_of
from skep.wire.traceparent import TraceContext

UNSEEN = frozenset({"/health", "/ready", "/metrics"})
"""Routes that machines ask all the time; nobody looks for their spans."""


class RequestSpans(Protocol):
    """Takes the spans of requests."""

    def tell_request(
        self,
        name: str,
        attributes: Mapping[str, str | int],
        context: TraceContext | None,
        began_micros: int,
        ended_micros: int,
        error: str | None,
    ) -> None:
        """A request that was answered."""
        ...


def spanned(spans: RequestSpans, now: Callable[[], Instant], method: str, route: str, handler: Handler) -> Handler:
    """A handler whose requests have spans."""

    async def handle(call: Call) -> Answer:
        began = now()
        status, error = int(HTTPStatus.INTERNAL_SERVER_ERROR), None
        try:
            answer = await handler(call)
            status = answer.status
        except SkepError as raised:
            status, error = status_of(seen_from_outside(raised).code), str(raised.code)
            raise
        except ClientGone:
            status, error = 499, "client_gone"
            raise
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            attributes: dict[str, str | int] = {
                "http.request.method": method, "http.route": route, "http.response.status_code": int(status), "skep.tenant": call.tenant_or_none or "",
                "url.scheme": "https" if call.is_https else "http", "url.path": call.scope["raw_path"].decode("ascii", "replace"),
            }  # fmt: skip
            if (queue := call.scope.get("path_params", {}).get("queue")) is not None:
                attributes |= {"messaging.system": "skep", "messaging.destination.name": unquote(queue)}
            spans.tell_request(f"{method} {route}", attributes, call.trace_context, began, now(), error)
        return answer

    return handle
