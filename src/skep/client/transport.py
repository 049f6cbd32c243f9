"""Send requests. Only this module and `skep.client.connections` touch the network. One class for threads, one for asyncio.

Requests to plain ``http://`` go over connections of our own: pyreqwest hands each over to a thread of its own and back, which takes four times
the CPU time. TLS, proxies, and bodies that are read while they come are pyreqwest's.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import cached_property, lru_cache
from typing import TypeVar

from pyreqwest.bytes import Bytes
from pyreqwest.client import Client, ClientBuilder, SyncClient, SyncClientBuilder
from pyreqwest.exceptions import ClientClosedError, RequestError
from pyreqwest.request import RequestBuilder, SyncRequestBuilder
from pyreqwest.response import Response, SyncResponse, SyncResponseBodyReader

from skep import __version__
from skep.client.connections import AsyncConnections, NoAnswerError, SyncConnections
from skep.client.consumer import HEADER, consumer_header
from skep.client.exchange import ERRORS, ApiResponse, Request
from skep.client.failures import ClosedError, UnreachableError
from skep.client.plain import Heads, plain_servers
from skep.client.settings import ClientSettings
from skep.client.tracing import carrying
from skep.errors import Code, SkepError
from skep.model.record import DEFAULT_TENANT

SETTLE_SECONDS = 0.03
"""How long a program that used the asynchronous client waits when it exits. The thread of pyreqwest may be about to let go of
Python objects; if the interpreter is being torn down by then, it aborts the process."""

READ_AHEAD_BYTES = 8 * 1024 * 1024
"""How many bytes of a streamed body are fetched ahead."""

LEAST_SECONDS = 0.05
"""The least time of a request, however little is left."""

B = TypeVar("B", RequestBuilder, SyncRequestBuilder)
C = TypeVar("C", ClientBuilder, SyncClientBuilder)

_NEVER_SENT = "client error (Connect)"
"""The cause that tells that there was no connection. The class does not: a connection that broke is a ConnectError, too."""


class SyncTransport:
    """Sends and waits in the calling thread; any number of threads may share it."""

    def __init__(
        self,
        settings: ClientSettings,
        shared: SyncTransport | None = None,
        *,
        time_left: Callable[[], float | None] | None = None,
        silence_seconds: float | None = None,
    ) -> None:
        """With ``shared``, over its connections: then the tenant is said with each request.

        ``time_left`` says at each request how many seconds are left for it, where that is less than usual. A body that is read while
        it comes may be silent for ``silence_seconds``.
        """
        self._settings = settings
        self._owner = self if shared is None else shared
        self.closed = False
        self._time_left = time_left
        self._silence_seconds = silence_seconds
        self.plain: dict[str, SyncConnections] = (
            plain_servers(settings, SyncConnections) if shared is None else shared.plain
        )
        self._heads = _heads(settings, shared is not None)

    @cached_property
    def pyreqwest(self) -> SyncClient:
        """For what needs more than a socket. It takes long to make, and most clients never need it."""
        if self._owner is not self:
            return self._owner.pyreqwest
        builder = SyncClientBuilder()
        if self._silence_seconds is not None:
            builder = builder.read_timeout(timedelta(seconds=self._silence_seconds))
        return _configured(builder, self._settings).build()

    def for_tenant(self, settings: ClientSettings) -> SyncTransport:
        """The same connections for another tenant; closing it lets go of none of them."""
        return SyncTransport(settings, self._owner)

    def send(self, url: str, request: Request) -> ApiResponse | UnreachableError:
        """The server's answer, or why there is none."""
        if self._owner.closed:
            return ClosedError()
        usual = self._settings.timeout_seconds
        if self._time_left is not None and (left := self._time_left()) is not None:
            usual = min(usual, max(left, LEAST_SECONDS))
        request = carrying(request)
        try:
            timeout = timedelta(seconds=usual + request.wait_seconds)
            if (connections := self.plain.get(url)) is not None:
                head = self._heads.of(url, request)
                return connections.ask(request.method, head, request.body, timeout.total_seconds())
            builder = self.pyreqwest.request(request.method, url + request.target).timeout(timeout)
            response = _prepared(builder, request, self._settings, self._owner is not self).build().send()
            return _answer(response, response.bytes().to_bytes())
        except NoAnswerError as error:
            return _unanswered(url, error, self._owner.closed)
        except RequestError as error:
            return _unreachable(url, error)
        except (ValueError, OverflowError) as error:
            raise _unsendable(error) from error

    @contextmanager
    def opened(self, url: str, request: Request) -> Iterator[ApiResponse | Body | UnreachableError]:
        """The server's answer with a body to be read while it comes, or whole when it tells of an error."""
        if self._owner.closed:
            yield ClosedError()
            return
        with ExitStack() as stack:
            try:
                timeout = timedelta(seconds=self._settings.timeout_seconds + request.wait_seconds)
                builder = self.pyreqwest.request(request.method, url + request.target).timeout(timeout)
                streamed = _prepared(
                    builder, request, self._settings, self._owner is not self
                ).streamed_read_buffer_limit(READ_AHEAD_BYTES)
                response = stack.enter_context(streamed.build_streamed())
                if response.status < ERRORS:
                    body: ApiResponse | Body | UnreachableError = Body(url, response.body_reader)
                else:
                    body = _answer(response, response.bytes().to_bytes())
            except RequestError as error:
                body = _unreachable(url, error)
            except (ValueError, OverflowError) as error:
                raise _unsendable(error) from error
            yield body

    def close(self) -> None:
        """Close all connections that are its own; pyreqwest may take more requests for a moment, and so we remember it."""
        if self._owner is self:
            self.closed = True
            for connections in self.plain.values():
                connections.close()
            if "pyreqwest" in vars(self):
                self.pyreqwest.close()


class Body:
    """The body of an answer as a file, read while it comes; it may end in an `UnreachableError`."""

    closed = False

    def __init__(self, url: str, reader: SyncResponseBodyReader) -> None:
        self._url = url
        self._reader = reader
        self._last = b""

    def ends_with(self, end: bytes) -> bool:
        """Whether what was read so far ends with these bytes, at most 8."""
        return self._last.endswith(end)

    def read(self, size: int = -1) -> bytes | Bytes:
        """The next ``size`` bytes, fewer only at the end; all that are left when no number is given."""
        read = self._read(size)
        self._last = (self._last + bytes(memoryview(read)[-8:]))[-8:]
        return read

    def _read(self, size: int) -> bytes | Bytes:
        if size == 0:
            return b""
        try:
            if size < 0:
                return b"".join(iter(self._reader.read, None))
            part = self._reader.read(size)
            if part is None or len(part) == size:
                return b"" if part is None else part  # nearly always, and not copied
            parts, left = [part], size - len(part)
            while left and (part := self._reader.read(left)) is not None:
                parts.append(part)
                left -= len(part)
        except RequestError as error:
            raise _unreachable(self._url, error) from error
        return b"".join(parts)


class AsyncTransport:
    """Sends and waits in the running event loop."""

    def __init__(self, settings: ClientSettings, shared: AsyncTransport | None = None) -> None:
        """With ``shared``, over its connections: then the tenant is said with each request."""
        self._settings = settings
        self._owner = self if shared is None else shared
        self.closed = False
        self.plain: dict[str, AsyncConnections] = (
            plain_servers(settings, AsyncConnections) if shared is None else shared.plain
        )
        self._heads = _heads(settings, shared is not None)

    @cached_property
    def pyreqwest(self) -> Client:
        """For what needs more than a socket. It takes long to make, and most clients never need it."""
        if self._owner is not self:
            return self._owner.pyreqwest
        _settle_at_exit()
        return _configured(ClientBuilder(), self._settings).build()

    def for_tenant(self, settings: ClientSettings) -> AsyncTransport:
        """The same connections for another tenant; closing it lets go of none of them."""
        return AsyncTransport(settings, self._owner)

    async def send(self, url: str, request: Request) -> ApiResponse | UnreachableError:
        """The server's answer, or why there is none."""
        if self._owner.closed:
            return ClosedError()
        request = carrying(request)
        try:
            timeout = timedelta(seconds=self._settings.timeout_seconds + request.wait_seconds)
            if (connections := self.plain.get(url)) is not None:
                head = self._heads.of(url, request)
                return await connections.ask(request.method, head, request.body, timeout.total_seconds())
            builder = self.pyreqwest.request(request.method, url + request.target).timeout(timeout)
            response = await _prepared(builder, request, self._settings, self._owner is not self).build().send()
            return _answer(response, (await response.bytes()).to_bytes())
        except NoAnswerError as error:
            return _unanswered(url, error, self._owner.closed)
        except RequestError as error:
            return _unreachable(url, error)
        except (ValueError, OverflowError) as error:
            raise _unsendable(error) from error

    async def close(self) -> None:
        """Close all connections that are its own."""
        if self._owner is self:
            self.closed = True
            for connections in self.plain.values():
                await connections.close()
            if "pyreqwest" in vars(self):
                await self.pyreqwest.close()


@lru_cache(maxsize=1)
def _settle_at_exit() -> None:
    atexit.register(time.sleep, SETTLE_SECONDS)


def headers_of(settings: ClientSettings, says_tenant: bool) -> dict[str, str]:
    """The headers of all requests. The tenant is named only where it must be: a key may be for one tenant only."""
    headers = {"User-Agent": f"skep-python/{__version__}", "Content-Type": "application/json"}
    if says_tenant or settings.tenant != DEFAULT_TENANT:
        headers["Skep-Tenant"] = settings.tenant
    if settings.token:  # an empty variable is none
        headers["Authorization"] = f"Bearer {settings.token}"
    return headers


def _heads(settings: ClientSettings, says_tenant: bool) -> Heads:
    try:
        return Heads(settings, headers_of(settings, says_tenant))
    except ValueError as error:
        raise SkepError(Code.INVALID_REQUEST, f"the client cannot be set up so: {error}") from error


def _configured(builder: C, settings: ClientSettings) -> C:
    try:
        # Redirects are not followed: a body and a token belong to the server that was named.
        return (
            builder.default_headers(headers_of(settings, says_tenant=False))
            .follow_redirects(False)
            .timeout(timedelta(seconds=settings.timeout_seconds))
            .connect_timeout(timedelta(seconds=settings.connect_timeout_seconds))
        )
    except ValueError as error:
        raise SkepError(Code.INVALID_REQUEST, f"the client cannot be set up so: {error}") from error


def _prepared(builder: B, request: Request, settings: ClientSettings, says_tenant: bool) -> B:
    if says_tenant:
        builder = builder.header("Skep-Tenant", settings.tenant)
    if request.says_who:
        builder = builder.header(HEADER, consumer_header(settings.client_name))
    if request.body is not None:
        builder = builder.body_bytes(request.body)
    for name, value in (request.headers or {}).items():
        builder = builder.header(name, value)
    return builder


def _answer(response: Response | SyncResponse, body: bytes) -> ApiResponse:
    status = response.status
    retry_after = response.get_header("retry-after") if status >= ERRORS else None
    return ApiResponse(status, body, retry_after)


def _unsendable(error: Exception) -> SkepError:
    """A URL that is none, or a time to wait that is beyond all measure: no try would do better."""
    return SkepError(Code.INVALID_REQUEST, f"the request cannot be sent so: {error}")


def _unanswered(url: str, error: NoAnswerError, closed: bool) -> UnreachableError:
    if closed:  # meanwhile
        return ClosedError()
    return UnreachableError(f"{url} did not answer: {error}", sent=error.sent, url=url)


def _unreachable(url: str, error: RequestError) -> UnreachableError:
    if isinstance(error, ClientClosedError):
        return ClosedError()
    causes = [cause["message"] for cause in error.details.get("causes") or []]
    message = f"{url} did not answer: {'; '.join(causes[-2:]) or error.message}"
    return UnreachableError(message, sent=_NEVER_SENT not in causes, url=url)
