"""Decide whether a failed call is tried again, and after which pause. stamina makes the pauses.

Network failures and 5xx are tried again with a growing pause, other errors not. Exceptions: 429 is tried again unless ``retry_on_429`` is off, after the pause
that Retry-After names if there is one and ``honor_retry_after`` is on; a full queue only by calls that wait for room. A request that must not be repeated (a push without transaction ids) is tried again only when it certainly had no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from skep.client.exchange import REDIRECTS, SERVER_ERRORS, TOO_MANY, ApiCall, ApiResponse, Request
from skep.client.failures import AnsweredError, CircuitOpenError, ClosedError, UnreachableError, error_of
from skep.client.servers import Servers
from skep.client.settings import ClientSettings
from skep.clock import Clock
from skep.errors import Code, SkepError

T = TypeVar("T")

Hook = Callable[[Exception], bool | float]
Outcome = ApiResponse | UnreachableError
Round = Generator[str, Outcome, T]

_CERTAINLY_NOTHING = frozenset({Code.STORE_BUSY, Code.STORE_FULL, Code.SERVER_BUSY, Code.STOPPING})
"""Errors with a status of 5xx after which nothing of the call can have happened."""


def one_round(call: ApiCall[T], servers: Servers, clock: Clock) -> Round[T]:
    """One try of a call: ask the servers in turn until one is well. Yields a URL, wants an answer or why there is none."""
    error: SkepError | None = None
    for index in servers.candidates(clock, call.request.spread_by):
        outcome = yield servers.urls[index]
        if isinstance(outcome, ApiResponse):
            if outcome.status < SERVER_ERRORS:
                servers.succeeded(index, call.request.spread_by)
                if outcome.status >= REDIRECTS:
                    raise error_of(outcome)
                return call.read(outcome)
            error = error_of(outcome)
        else:
            error = outcome
        servers.failed(index, clock.steady())
        if not may_repeat(call.request, error):
            break
    raise error or servers.closed_to_all(clock.steady())


def may_repeat(request: Request, error: SkepError) -> bool:
    """Whether the request may be sent again after this failure."""
    return request.repeatable or not may_have_happened(error)


def may_have_happened(error: SkepError) -> bool:
    """Whether the call may have taken effect although it failed."""
    if isinstance(error, UnreachableError):
        return error.sent
    return isinstance(error, AnsweredError) and error.status >= SERVER_ERRORS and error.code not in _CERTAINLY_NOTHING


def retry_hook(request: Request, settings: ClientSettings) -> Hook:
    """The answer to stamina after a failure: no, yes with its own pause, or yes after a number of seconds."""

    def decide(error: Exception) -> bool | float:
        # An open circuit fails at once: that is what it is for. A closed client stays closed.
        if not isinstance(error, SkepError) or isinstance(error, CircuitOpenError | ClosedError):
            return False
        if isinstance(error, AnsweredError):
            if error.code is Code.QUEUE_FULL and not request.waits_for_room:
                return False
            if error.status == TOO_MANY:
                if not settings.retry_on_429:
                    return False
                asked = error.retry_after_seconds if settings.honor_retry_after else None
                return True if asked is None else min(asked, settings.max_retry_delay)
            return error.status >= SERVER_ERRORS and may_repeat(request, error)
        return isinstance(error, UnreachableError) and may_repeat(request, error)

    return decide
