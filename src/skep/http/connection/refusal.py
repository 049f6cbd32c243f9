"""An answer by the connection itself: the bytes never became a request for the application."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from skep.errors import Code, SkepError
from skep.http.request.call import NOSNIFF, Answer
from skep.http.request.statuses import error_answer

TellRefusal = Callable[[SkepError], Answer]
"""Makes the answer of a refusal, in the shape that the clients of a port read."""


class Refused(Exception):  # noqa: N818 - it carries a refusal out of the parser
    """A request that is read no further. It has an HTTP status of its own, since error codes do not distinguish these cases."""

    def __init__(self, status: int, code: Code, message: str) -> None:
        super().__init__(message)
        self.status = HTTPStatus(status)
        self.error = SkepError(code, message)

    def response(self, tell: TellRefusal = error_answer) -> bytes:
        """The whole response, after which the connection ends."""
        answer = tell(self.error)
        body = answer.body if isinstance(answer.body, bytes) else b""
        headers = [
            (b"content-type", answer.media_type),
            (b"content-length", b"%d" % len(body)),
            NOSNIFF,
            answer.caching,
            *answer.headers,
            (b"connection", b"close"),
        ]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
        return f"HTTP/1.1 {self.status} {self.status.phrase}\r\n".encode() + lines + b"\r\n" + body
