"""One POST over HTTP/1.1 to an address that was chosen before: a connection of its own, no redirects, an answer of bounded size.

We do not use a library, since the connection must go to the address that was checked, with the name only in the Host header and in TLS.
There is no pool, no proxy of the environment, no decompression.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from typing import cast
from urllib.parse import quote, unquote, urlsplit

import httptools
from msgspec import Struct

from skep.errors import Code, SkepError

ANSWER_BYTES = 65_536
"""The most bytes of an answer that are read. The error text has only the beginning of the body."""
BODY_SECONDS = 1.0
"""How long the body of an answer is waited for. The status is the answer, and the receiver has acted on the message already."""
_FINAL = 200
_SAFE = "/:?#[]@!$&'()*+,;=-._~%"


class Target(Struct, frozen=True):
    """The target of a URL: its host, port and path."""

    secure: bool
    host: str
    port: int
    path: str
    authority: str
    credentials: str | None
    """The Authorization header of a URL with a user."""

    @classmethod
    def of(cls, url: str) -> Target:
        """The target of a URL. Its fragment is not sent."""
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        host = parts.hostname or ""
        port = parts.port or (443 if secure else 80)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        name = f"[{host}]" if ":" in host else _ascii(host)
        authority = name if port == (443 if secure else 80) else f"{name}:{port}"
        user = None
        if parts.username is not None:
            plain = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            user = f"Basic {base64.b64encode(plain.encode()).decode()}"
        return cls(secure, _ascii(host), port, quote(path, safe=_SAFE), authority, user)


class Answered(Struct, frozen=True):
    """An answer: the status, the headers with lower-case names, and the beginning of the body."""

    status: int
    headers: dict[str, str]
    body: bytes


async def post(
    target: Target, address: str, headers: dict[str, str], body: bytes, *, context: ssl.SSLContext | None
) -> Answered:
    """Post to an address; SERVER_UNREACHABLE when there is no answer. The caller sets the time limit."""
    loop = asyncio.get_running_loop()
    exchange = _Exchange(_head(target, headers, len(body)) + body, loop.create_future())
    try:
        transport, _ = await loop.create_connection(
            lambda: exchange,
            address,
            target.port,
            ssl=context if target.secure else None,
            server_hostname=target.host if target.secure else None,
        )
    except (OSError, ssl.CertificateError) as error:
        raise _unreachable(target, address, error) from error
    try:
        return await exchange.answered
    except (OSError, httptools.HttpParserError) as error:
        raise _unreachable(target, address, error) from error
    finally:
        # Abort instead of a clean close: a receiver that did not read to the end must not make us wait.
        transport.abort()


def _head(target: Target, headers: dict[str, str], length: int) -> bytes:
    lines = [f"POST {target.path} HTTP/1.1", f"Host: {target.authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {length}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("utf-8")


class _Exchange(asyncio.Protocol):
    """One request, and the answer as it comes in. An answer that comes before all was written counts, and one whose body has no end.

    100 Continue and 103 Early Hints are answers that another one follows.
    """

    def __init__(self, request: bytes, answered: asyncio.Future[Answered]) -> None:
        self.answered = answered
        self._request = request
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._status = 0
        self._read = 0

    # the connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are of no class of asyncio's.
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        if self.answered.done():
            return
        self._read += len(data)
        try:
            self._parser.feed_data(data[: max(0, len(data) - (self._read - ANSWER_BYTES))])
        except httptools.HttpParserError as error:
            self.answered.set_exception(error)
        except httptools.HttpParserUpgrade:  # which is no HttpParserError
            self.answered.set_exception(ConnectionError("the answer was to speak another protocol (101)"))
        if self._read >= ANSWER_BYTES:
            self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)

    def _end(self, error: Exception | None) -> None:
        if self.answered.done():
            return
        if self._status >= _FINAL:
            self.answered.set_result(Answered(self._status, self._headers, b"".join(self._body)))
        else:
            ended = ConnectionError("the connection ended, or the headers went on and on, before there was an answer")
            self.answered.set_exception(error if isinstance(error, OSError) else ended)

    # the parser

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        if self._status >= _FINAL:
            self.answered.get_loop().call_later(BODY_SECONDS, self._end, None)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        if self._status >= _FINAL:
            self._end(None)


def _unreachable(target: Target, address: str, error: BaseException) -> SkepError:
    cause = str(error) or type(error).__name__
    return SkepError(Code.SERVER_UNREACHABLE, f"{target.authority} ({address}): {cause}")


def _ascii(host: str) -> str:
    try:
        return host if host.isascii() else host.encode("idna").decode()
    except UnicodeError as error:
        raise SkepError(Code.SERVER_UNREACHABLE, f"{host!r} cannot be a host's name: {error}") from error
