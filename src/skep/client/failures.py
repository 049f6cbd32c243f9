"""The errors of a call: the server refused it, or could not be reached. Both are `SkepError`, with fields for the retries."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.client.exchange import ERRORS, ApiResponse
from skep.errors import Code, SkepError
from skep.wire.problems import ErrorResponse

_decode = msgspec.json.Decoder(ErrorResponse)

_CODES = {
    400: Code.INVALID_REQUEST,
    401: Code.UNAUTHENTICATED,
    403: Code.FORBIDDEN,
    404: Code.ROUTE_NOT_FOUND,
    405: Code.METHOD_NOT_ALLOWED,
    408: Code.REQUEST_TIMEOUT,
    413: Code.PAYLOAD_TOO_LARGE,
    415: Code.UNSUPPORTED_MEDIA_TYPE,
    429: Code.TOO_MANY_REQUESTS,
    502: Code.SERVER_UNREACHABLE,
    503: Code.SERVER_UNREACHABLE,
    504: Code.SERVER_UNREACHABLE,
}
"""The code for a status without one: a proxy answered in the server's place."""


class AnsweredError(SkepError):
    """The server answered with an error: its code, message and details, the status, and when to try again."""

    def __init__(
        self, code: Code, message: str, details: dict[str, Any], status: int, retry_after_seconds: float | None
    ) -> None:
        super().__init__(code, message)
        self.details = details
        self.status = status
        self.retry_after_seconds = retry_after_seconds


class UnreachableError(SkepError):
    """No answer came. ``sent`` is false when the request certainly did not reach the server, and so had no effect."""

    def __init__(self, message: str, *, sent: bool, **details: object) -> None:
        super().__init__(Code.SERVER_UNREACHABLE, message, **details)
        self.sent = sent


class CircuitOpenError(UnreachableError):
    """Nothing was sent: all servers failed just now, and none is to be asked before ``retry_after_seconds``."""

    def __init__(self, retry_after_seconds: float) -> None:
        message = (
            f"no server was asked, since all failed just now; the next try is in {retry_after_seconds:.1f} seconds"
        )
        super().__init__(message, sent=False, retry_after_seconds=retry_after_seconds)


class ClosedError(UnreachableError):
    """The client is closed: nothing was sent, or the answer was not awaited. A retry would not help."""

    def __init__(self) -> None:
        super().__init__("the client is closed; make another", sent=True)


def error_of(answer: ApiResponse) -> AnsweredError:
    """The error of an answer outside 2xx."""
    retry_after = _seconds(answer.retry_after)
    try:
        problem = _decode.decode(answer.body).error
    except msgspec.DecodeError:
        # A redirect is not followed, so what was asked for is not there.
        code = Code.ROUTE_NOT_FOUND if answer.status < ERRORS else _CODES.get(answer.status, Code.INTERNAL)
        text = bytes(answer.body)[:200].decode("utf-8", "replace").strip()
        message = f"the answer was {answer.status} and not of Skep: {text!r}"
        return AnsweredError(code, message, {}, answer.status, retry_after)
    details = problem.details
    try:
        code = Code(problem.code)
    except ValueError:
        # A newer server may have codes that this client does not know yet.
        code, details = _CODES.get(answer.status, Code.INTERNAL), {**details, "code": problem.code}
    return AnsweredError(code, problem.message, details, answer.status, retry_after)


def unexpected(answer: ApiResponse, error: Exception) -> SkepError:
    """The error of a successful answer that cannot be read."""
    return SkepError(Code.INTERNAL, f"the answer ({answer.status}) is not what was asked for: {error}")


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After as seconds. The date it may be instead is ignored: it would trust two clocks to agree."""
    if retry_after is None or not retry_after.strip().isdecimal():
        return None
    return float(retry_after)
